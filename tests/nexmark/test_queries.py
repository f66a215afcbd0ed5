"""NEXMark's stateful queries, each epoch captured, return what a batch computation returns."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamstate as ss
from benchmarks.nexmark.generator import Events
from benchmarks.nexmark.measuring import from_files
from benchmarks.nexmark.oracle import answers
from benchmarks.nexmark.queries import QUERIES, Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENTS = Events(seed=7, rate=50)
COUNT, EACH = 3_000, 1_500
Rows = list[tuple[Any, ...]]


@pytest.fixture(scope="module")
def results(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Rows], dict[str, Rows]]:
    """The rows of each query, and those of the oracle."""
    folder = tmp_path_factory.mktemp("nexmark")
    EVENTS.write(folder / "input", 0, COUNT, EACH)
    EVENTS.close(folder / "input", COUNT)
    stream = Stream(partial(from_files, spark, folder / "input"), EVENTS.longest_auction)
    returned: dict[str, list[pa.Table]] = {name: [] for name in QUERIES}

    def collect(name: str, frame: DataFrame, _: int) -> None:
        returned[name].append(frame.toArrow())

    started = [
        ss.start(
            query.build(stream),
            name,
            folder / "store",
            mode=query.mode,
            sink=partial(collect, name),
            trigger="available-now",
        )
        for name, query in QUERIES.items()
    ]
    for running in started:
        assert running.wait(timeout=300) >= COUNT // EACH
        running.stop()
    epochs = times(folder / "checkpoints" / "q12", sorted((folder / "input").iterdir()))
    expected = answers(pq.read_table(folder / "input"), COUNT, epochs)
    return {name: newest(tables, QUERIES[name].key) for name, tables in returned.items()}, expected


def times(checkpoint: Path, files: list[Path]) -> Iterable[tuple[int, int, int]]:
    """Each epoch's first and last event, and its time, as the checkpoint has it."""
    for epoch, file in enumerate(files):
        numbers = pq.read_table(file)["number"]
        offsets = (checkpoint / "offsets" / str(epoch)).read_text().splitlines()
        yield numbers[0].as_py(), numbers[-1].as_py(), json.loads(offsets[1])["batchTimestampMs"]


def newest(epochs: list[pa.Table], key: tuple[str, ...]) -> Rows:
    """All rows, or those of the last epoch that has rows of a key; times in milliseconds."""
    found: dict[tuple[Any, ...], Rows] = {}
    for table in epochs:
        of_epoch: dict[tuple[Any, ...], Rows] = {}
        for row in zip(*map(plain, table.columns), strict=True):
            values = tuple(row[table.column_names.index(name)] for name in key)
            of_epoch.setdefault(values, []).append(row)
        if key:
            found |= of_epoch
        else:
            found.setdefault((), []).extend(of_epoch.get((), []))
    return [row for rows in found.values() for row in rows]


def plain(column: pa.ChunkedArray) -> list[Any]:
    """A column's values; times in milliseconds."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz)).cast(pa.int64())
    values: list[Any] = column.to_pylist()
    return values


@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES)
def test_results_equal_a_batch_computation(name: str, results: tuple[dict[str, Rows], dict[str, Rows]]) -> None:
    """Every row, once the input has ended and the windows are closed."""
    ours, expected = results
    assert ours[name]
    assert sorted(ours[name]) == sorted(expected[name])


@pytest.mark.slow
def test_every_published_stateful_query_is_there(results: tuple[dict[str, Rows], dict[str, Rows]]) -> None:
    """Queries 3 to 9, 11, 12 and 18 to 20."""
    assert list(QUERIES) == [f"q{number}" for number in (*range(3, 10), 11, 12, *range(18, 21))]
    assert set(results[1]) == set(QUERIES)
