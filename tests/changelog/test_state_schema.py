"""The state tables of a checkpoint, and how their rows stand in its changelogs, known from its files alone."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from operators.processors import PANDAS_STATE, TRANSFORM, evolving
from operators.queries import JOINS, KEYS, OTHERS, VALUES, WINDOWS, aggregated, grouped, in_format
from operators.running import AVRO, FORMAT_1, HDFS, Query, Run
from oracle import listed_sources
from pyspark.sql import SparkSession
from recorded.make import HERE
from recorded.queries import QUERIES, WIDE, recorded
from recorded.unpacked import VERSIONS
from sampling import sampled

from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.decoding.operator_metadata import sources_in_metadata
from streamstate.snapshots.checkpoint.decoding.state_schema import UnsupportedTable, table_formats
from streamstate.snapshots.checkpoint.decoding.state_table_format import KeyEncoding, Part, TableFormat
from streamstate.snapshots.checkpoint.state_tables import Shape
from streamstate.snapshots.spark.state_reader import StateReader

_STORE = "spark.sql.streaming.stateStore"
CHECKSUMS = {f"{_STORE}.rowChecksum.enabled": "true"}


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Unpacks the checkpoints of a version of Spark, without the one of 200 partitions."""

    def unpack(version: str) -> Path:
        folder = tmp_path_factory.mktemp("recordings")
        with tarfile.open(HERE / f"spark-{version}.tar.xz") as archive:
            archive.extractall(folder, [entry for entry in archive if WIDE not in entry.name], filter="data")
        return folder / version

    return cache(unpack)


def described(checkpoint: Path | str, epoch: int) -> dict[str, TableFormat | UnsupportedTable]:
    """The format of each table."""
    found = CheckpointFiles(checkpoint)
    tables = [source.table for source in sources_in_metadata(found, epoch)]
    return dict(zip(tables, table_formats(found, epoch), strict=True))


def supported(checkpoint: Path | str, epoch: int) -> dict[str, TableFormat]:
    """The format of each table; all are described."""
    found = described(checkpoint, epoch)
    assert not [table for table in found.values() if isinstance(table, UnsupportedTable)]
    return {name: table for name, table in found.items() if isinstance(table, TableFormat)}


@pytest.mark.parametrize("version", sampled(VERSIONS, 2))
def test_checkpoints_of_each_version_are_described(recordings: Callable[[str], Path], version: str) -> None:
    """Every table of every recorded query is described, as the current version describes the same query."""
    current = {name: supported(recordings("4.2") / "RocksDB-with-changelog" / name, 2) for name in QUERIES}
    for name, provider in recorded(version):
        if name == WIDE:
            continue
        found = supported(recordings(version) / provider / name, 2)
        assert found.keys() == current[name].keys() == {*QUERIES[name].tables}
        for table, written in found.items():
            expected = current[name][table]
            in_rocksdb = provider != "HDFS"
            assert written.provider == ("RocksDB" if in_rocksdb else "HDFS")
            assert (written.store, written.store_index) == (expected.store, expected.store_index)
            assert written.key_encoding is (expected.key_encoding if in_rocksdb else KeyEncoding.ROW)
            assert written.prefix == (expected.prefix if in_rocksdb else 0)
            assert [plain(part) for part in (written.key, written.value)] == [
                plain(part) for part in (expected.key, expected.value)
            ]


def test_a_recorded_join_and_session_window(recordings: Callable[[str], Path]) -> None:
    """Each side of a join has a store of its own; session windows are looked up by their grouping keys."""
    right = supported(recordings("3.5") / "HDFS" / "left-outer-join", 2)["op0_right"]
    assert (right.store, right.store_index, right.family_id) == ("right-keyWithIndexToValue", 3, None)
    assert names(right.key) == ["field0", "index"]
    assert names(right.value) == ["k2", "w", "u", "matched"]
    sessions = supported(recordings("3.5") / "RocksDB" / "session-window", 2)["op0"]
    assert (sessions.key_encoding, sessions.prefix) == (KeyEncoding.PREFIX, 1)
    assert sessions.parts == (Part("key", of_key=True), Part("value", of_key=False))


def test_as_spark_lists_and_reads_them(spark: SparkSession, counted: tuple[Path, Path]) -> None:
    """The tables are those that Spark lists, and their columns those of Spark's change feed."""
    assert as_spark(spark, counted[0], 1) == 1


TWS = {f"transformWithState: {name}": (query,) for name, query in TRANSFORM.items()}
CASES: dict[str, tuple[Any, ...]] = {
    **{f"window: {name}": (query,) for name, query in WINDOWS.items()},
    **{f"other: {name}": (query,) for name, query in OTHERS.items()},
    **{f"join in format {version}": (JOINS["full_outer"], in_format(version)) for version in (2, 3, 4)},
    "join in HDFS": (JOINS["inner"], {**HDFS, **in_format(2)}),
    "session window in HDFS": (WINDOWS["session window"], HDFS),
    "session window in format 1": (WINDOWS["session window"], FORMAT_1),
    **{f"applyInPandasWithState: {name}": (query,) for name, query in PANDAS_STATE.items()},
    "applyInPandasWithState in format 1": (
        PANDAS_STATE["no timeout"],
        {"spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion": "1"},
    ),
    "aggregation in format 1": (
        WINDOWS["tumbling window"],
        {"spark.sql.streaming.aggregation.stateFormatVersion": "1"},
    ),
    "row checksums": (WINDOWS["tumbling window"], CHECKSUMS),
    **TWS,
    "transformWithState in format 1": (TRANSFORM["rows, no time"], FORMAT_1, CHECKSUMS),
    **{f"key: {name}": (grouped(*keys),) for name, keys in KEYS.items()},
    **{f"value: {name}": (aggregated(*values),) for name, values in VALUES.items() if name != "variants"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(CASES, 2))
def test_every_operator_and_setting(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Each table is described as Spark reads it; Spark has no change feed of timers."""
    query, *settings = CASES[name]
    run = Run(spark, tmp_path)
    run.start(query, *settings, epochs=range(2))
    for epoch in CheckpointFiles(run.checkpoint).committed():
        assert as_spark(spark, run.checkpoint, epoch) == sum(not table.endswith("_timers") for table in query.tables)
        for table in described(run.checkpoint, epoch).values():
            assert isinstance(table, UnsupportedTable) or table.row_checksums == (CHECKSUMS in settings)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_restarts_that_change_variables(spark: SparkSession, tmp_path: Path) -> None:
    """An added variable gets a number of its own; the others keep theirs. Epochs before the restart do not have it."""
    run = Run(spark, tmp_path)
    run.start(evolving("n long"), epochs=range(1))
    run.start(evolving("n long", added=True), epochs=range(1, 2))
    run.start(evolving("n long"), epochs=range(2, 3))
    numbers = [
        {table: written.family_id for table, written in supported(run.checkpoint, epoch).items()} for epoch in range(3)
    ]
    assert numbers == [{"op0_total": 2}, {"op0_total": 2, "op0_added": 3}, {"op0_total": 2}]
    assert [as_spark(spark, run.checkpoint, epoch) for epoch in range(3)] == [1, 2, 1]


@pytest.mark.slow
def test_values_in_avro_are_not_described(spark: SparkSession, tmp_path: Path) -> None:
    """Avro values of several schemas can be in one file, each with the number of its schema."""
    run = Run(spark, tmp_path)
    run.start(evolving("n int"), AVRO, epochs=range(1))
    run.start(evolving("n long, extra string"), AVRO, epochs=range(1, 2))
    for epoch in range(2):
        (table,) = described(run.checkpoint, epoch).values()
        assert isinstance(table, UnsupportedTable)
        assert "'avro'" in table.reason
        assert as_spark(spark, run.checkpoint, epoch) == 0


@pytest.mark.exhaustive
def test_a_repartitioned_state(spark: SparkSession, tmp_path: Path) -> None:
    """Every partition has the number that its own snapshots give the variable, before and after the repartition."""
    run = Run(spark, tmp_path)
    query: Query = TRANSFORM["rows, no time"]
    run.start(query, epochs=range(2))
    spark._streamingCheckpointManager.repartition(str(run.checkpoint), 3, False)
    run.start(query, epochs=range(2, 4))
    for epoch in CheckpointFiles(run.checkpoint).committed():
        assert as_spark(spark, run.checkpoint, epoch) == 3


def as_spark(spark: SparkSession, checkpoint: Path, epoch: int) -> int:
    """Compare the tables and their columns with Spark's; returns the number of tables that are described."""
    found = CheckpointFiles(checkpoint)
    session = StateReader(spark, found).session(epoch)
    sources = listed_sources(session, found, epoch)
    assert [*map(vars, sources_in_metadata(found, epoch))] == [*map(vars, sources)]
    count = 0
    for source, table in zip(sources, table_formats(found, epoch), strict=True):
        if isinstance(table, UnsupportedTable) or source.shape is Shape.TIMERS:
            continue  # Spark's change feed has no timers
        feed = {"readChangeFeed": "true", "changeStartBatchId": str(epoch), "changeEndBatchId": str(epoch)}
        frame = session.read.format("statestore").options(**source.options, **feed).load(str(checkpoint))
        columns = {field["name"]: plain(field["type"]) for field in json.loads(frame.schema.json())["fields"]}
        assert [*columns][2:-1] == [part.name for part in table.parts]
        for part in table.parts:
            assert plain(at(table.key if part.of_key else table.value, part.path)) == columns[part.name]
        count += 1
    return count


def at(kind: Any, path: tuple[int, ...]) -> Any:
    """The type of a nested field."""
    for position in path:
        kind = kind["fields"][position]["type"]
    return kind


def plain(kind: Any) -> Any:
    """A type without nullability and metadata, which the schema file and the reader write differently."""
    if isinstance(kind, Mapping):
        return {key: plain(value) for key, value in kind.items() if key not in _DETAILS}
    return [plain(member) for member in kind] if isinstance(kind, list) else kind


_DETAILS = {"nullable", "metadata", "containsNull", "valueContainsNull"}


def names(kind: dict[str, Any]) -> list[str]:
    """The names of a struct's fields."""
    return [field["name"] for field in kind["fields"]]
