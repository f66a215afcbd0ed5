"""The bottleneck of queries that Spark runs, each slow for another reason."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from conftest import Source
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

import streamstate as ss
from streamstate.operations.policies.bottleneck import Bottleneck, bottleneck_of, keys_of_epoch
from streamstate.snapshots.capture.spark_load import load_of, with_tasks

pytestmark = pytest.mark.slow  # a query of several epochs for each reason
_ROWS = 20_000
_PARTITIONS = 4


@pytest.fixture
def find(spark: SparkSession, tmp_path: Path) -> Callable[..., Bottleneck]:
    """Runs a query over its input, and returns the bottleneck of its epochs but the first."""

    def finding(frame: DataFrame, cores: int = 2, **options: Any) -> Bottleneck:
        options = {"trigger": "available-now", **options}
        running = ss.start(
            frame, "slow", tmp_path / "store", checkpoint=tmp_path / "checkpoint", partitions=_PARTITIONS, **options
        )
        running.wait(epoch=2, timeout=300)
        query = running.query
        assert query is not None
        running.stop()
        seen = [progress for progress in query.recentProgress if progress["numInputRows"]][1:]
        loads = [with_tasks(load_of(one), query, one["batchId"]) for one in seen]
        assert all(load.tasks is not None for load in loads)
        heavy = keys_of_epoch(running.history, seen[-1]["batchId"], loads[-1].rows)
        return bottleneck_of(loads, cores, heavy=heavy)

    return finding


def worked(stream: DataFrame) -> DataFrame:
    """A stateful operator that takes 200 µs a row."""

    def work(_key: Any, pieces: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        rows = sum(len(piece) for piece in pieces)
        time.sleep(rows * 200e-6)
        state.update((rows,))
        yield pd.DataFrame({"n": [rows]})

    return stream.groupBy("k").applyInPandasWithState(work, "n long", "n long", "update", "NoTimeout")


def in_partition(spark: SparkSession, partition: int, count: int) -> list[str]:
    """Keys that Spark's hash puts into a partition."""
    keys = spark.range(1000).select(F.concat(F.lit("k"), F.col("id")).alias("k"))
    chosen = keys.where(F.pmod(F.hash("k"), F.lit(_PARTITIONS)) == partition).limit(count)
    return [row["k"] for row in chosen.collect()]


def add(source: Source, heavy: list[str], share: float) -> None:
    """Add three epochs of input, a share of which falls on some heavy keys."""
    many = int(_ROWS * share)
    keys = [*(heavy[number % len(heavy)] for number in range(many)), *(f"k{n % 40}" for n in range(_ROWS - many))]
    for _ in range(3):
        source.add({"k": keys, "v": [*range(_ROWS)]})


@pytest.mark.exhaustive  # test_rescale_by_policy.py has one too
def test_a_hot_key_is_named(find: Callable[..., Bottleneck], source: Source) -> None:
    """Half of all rows have one key."""
    add(source, ["ORD"], 0.5)
    bottleneck = find(worked(source.stream()))
    assert (bottleneck.kind, bottleneck.name, bottleneck.helps) == ("hot key", "k='ORD'", False)
    assert bottleneck.share == pytest.approx(0.5, abs=0.01)


def test_heavy_keys_in_one_partition_can_be_separated(
    find: Callable[..., Bottleneck], source: Source, spark: SparkSession
) -> None:
    """Four heavy keys have the same hash; more partitions help."""
    add(source, in_partition(spark, 1, 4), 0.6)
    bottleneck = find(worked(source.stream()))
    assert (bottleneck.kind, bottleneck.name, bottleneck.helps) == ("partition", "partition 1", True)


@pytest.mark.parametrize(("cores", "helps"), [(2, False), pytest.param(16, True, marks=pytest.mark.exhaustive)])
def test_a_stateful_operator(find: Callable[..., Bottleneck], source: Source, cores: int, *, helps: bool) -> None:
    """Its tasks are even: more partitions help only while cores are idle."""
    add(source, [f"k{n}" for n in range(40)], 0.5)
    bottleneck = find(worked(source.stream()), cores)
    assert (bottleneck.kind, bottleneck.helps) == ("operator", helps)
    assert bottleneck.name == "applyInPandasWithState"


def test_a_function_before_the_state(find: Callable[..., Bottleneck], source: Source) -> None:
    """It runs in the stage that reads the source."""

    @F.udf("long")
    def slow(value: int) -> int:
        time.sleep(50e-6)
        return value

    add(source, ["a"], 0.1)
    bottleneck = find(source.stream().groupBy("k").agg(F.sum(slow("v"))))
    assert (bottleneck.kind, bottleneck.name, bottleneck.helps) == ("operator", "reading and computing", False)


def test_a_slow_sink(find: Callable[..., Bottleneck], source: Source) -> None:
    """Its function is not in Spark's tasks."""
    add(source, ["a"], 0.1)

    def write(rows: DataFrame, _epoch: int) -> None:
        rows.count()
        time.sleep(2)

    bottleneck = find(source.stream().groupBy("k").count(), sink=write)
    assert (bottleneck.kind, bottleneck.helps) == ("sink", False)


def slow_numbers() -> type[DataSource]:
    """A source of numbers that takes long to say which are new; Spark's processes cannot import it from a test."""

    class Reader(SimpleDataSourceStreamReader):
        def initialOffset(self) -> dict[str, int]:  # noqa: N802 (Spark's name)
            return {"next": 0}

        def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[int]], dict[str, int]]:
            time.sleep(2)
            first = start["next"]
            return iter([(number,) for number in range(first, first + 10)]), {"next": first + 10}

        def readBetweenOffsets(  # noqa: N802 (Spark's name)
            self, start: dict[str, int], end: dict[str, int]
        ) -> Iterator[tuple[int]]:
            return iter([(number,) for number in range(start["next"], end["next"])])

    class SlowNumbers(DataSource):
        @classmethod
        def name(cls) -> str:
            return "slow_numbers"

        def schema(self) -> str:
            return "k long"

        def simpleStreamReader(self, schema: Any) -> SimpleDataSourceStreamReader:  # noqa: N802 (Spark's name)
            return Reader()

    return SlowNumbers


def test_a_slow_source(find: Callable[..., Bottleneck], spark: SparkSession) -> None:
    """It takes long to say what is new."""
    spark.dataSource.register(slow_numbers())
    frame = spark.readStream.format("slow_numbers").load().groupBy("k").count()
    bottleneck = find(frame, trigger="500ms")
    assert (bottleneck.kind, bottleneck.helps) == ("source", False)
