"""A fork can be repartitioned, and its rows edited; the rest of its state equals the original's."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from operators.processors import TRANSFORM
from operators.queries import JOINS, OTHERS, WINDOWS, aggregated, in_format
from operators.running import CHANGELOG_OFF, FORMAT_1, HDFS, START, Query, Run, with_settings
from oracle import compare, spark_rows
from pyspark.sql import SparkSession
from sampling import sampled
from stepping import tree, untouched

import streamstate as ss
from streamstate.errors import (
    InvalidArgumentError,
    InvalidSQLError,
    UnknownColumnError,
    UnknownTableError,
    UnsupportedStateError,
)
from streamstate.replay.forks import Edit, forked_from
from streamstate.replay.forks.rewritten_state import offsets_with_partitions
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles

pytestmark = pytest.mark.slow

QUERIES: dict[str, tuple[Query, Mapping[str, str]]] = {
    "two aggregations, without changelogs": (OTHERS["two aggregations"], CHANGELOG_OFF),
    "join, left_outer": (JOINS["left_outer"], {}),
    "join, in one store": (JOINS["inner"], in_format(3)),
    "global aggregation": (OTHERS["global aggregation"], {}),
    "limit after deduplication": (
        Query(lambda s: s.dropDuplicates(["k", "t"]).limit(25), ("op0", "op1"), "append"),
        {},
    ),
    "variables and timers": (TRANSFORM["rows, event time and timers"], {}),
    "session window, format 1": (WINDOWS["session window"], FORMAT_1),
}


def same_rows(spark: SparkSession, original: Path, fork: Path, query: Query, epoch: int) -> None:
    """Check that Spark's reader finds the same rows in every table of two checkpoints."""
    for table in query.tables:
        assert spark_rows(spark, fork, table, epoch) == spark_rows(spark, original, table, epoch), table


def changes(spark: SparkSession, original: Path, fork: Path, table: str, epoch: int) -> tuple[list[Any], list[Any]]:
    """The rows that only the original has, and the rows that only the fork has."""
    before, after = (spark_rows(spark, path, table, epoch) for path in (original, fork))
    return [json.loads(row) for row in before - after], [json.loads(row) for row in after - before]


def step(run: Run, fork: Path, query: Query, epoch: int, settings: Mapping[str, str]) -> None:
    """Run the next epoch of a fork with the original's input."""
    partitions = CheckpointFiles(fork).partitions(epoch - 1)
    assert partitions is not None
    offsets = (run.checkpoint / f"offsets/{epoch}").read_text(encoding="utf-8")
    (fork / f"offsets/{epoch}").write_text(offsets_with_partitions(offsets, partitions), encoding="utf-8")
    for source in (run.checkpoint / "sources").iterdir():
        (fork / "sources" / source.name).mkdir(parents=True, exist_ok=True)
        shutil.copy(source / str(epoch), fork / "sources" / source.name / str(epoch))
    session = with_settings(run.spark, query.conf, settings)
    writer = query.build(run.inputs.stream(session)).writeStream.format("noop").outputMode(query.mode)
    writer.option("checkpointLocation", str(fork)).trigger(once=True).start().awaitTermination()
    assert CheckpointFiles(fork).committed()[-1] == epoch


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", sampled(QUERIES, 1))
def test_a_repartitioned_fork_equals_its_original(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Their rows are the same at the forked epoch, and at the next epoch after the same input."""
    query, settings = QUERIES[name]
    run, fork = Run(spark, tmp_path), tmp_path / "fork"
    run.start(query, settings, epochs=range(3))
    report = ss.Checkpoint(run.checkpoint).fork(fork, at=1, partitions=4, spark=spark)
    assert report.new_bytes > 0
    assert CheckpointFiles(fork).partitions(1) == CheckpointFiles(fork).partitions(0) == 4
    assert (record := forked_from(fork)) is not None
    assert record.partitions == 4
    same_rows(spark, run.checkpoint, fork, query, 1)
    step(run, fork, query, 2, settings)
    same_rows(spark, run.checkpoint, fork, query, 2)


def test_repartitioning_needs_rocksdb(spark: SparkSession, tmp_path: Path) -> None:
    """With another state store provider, an error is raised before the target is created."""
    run = Run(spark, tmp_path)
    run.start(WINDOWS["tumbling window"], HDFS, epochs=range(2))
    with pytest.raises(UnsupportedStateError, match="RocksDB"):
        ss.Checkpoint(run.checkpoint).fork(tmp_path / "fork", partitions=4, spark=spark)
    assert not (tmp_path / "fork").exists()


@pytest.mark.parametrize("partitions", [0, -2, 2.0, True, "4"])
def test_an_invalid_number_of_partitions_is_rejected(tmp_path: Path, partitions: object) -> None:
    """Only positive integers are valid."""
    with pytest.raises(InvalidArgumentError, match="expected an integer of at least 1"):
        ss.Checkpoint(tmp_path / "original").fork(tmp_path / "fork", partitions=partitions)  # type: ignore[arg-type]


def test_only_edited_rows_differ(spark: SparkSession, tmp_path: Path) -> None:
    """Updates, deletes and inserts are applied, and the next epoch continues from the edited state."""
    query = aggregated("count(*) AS n", "max(make_dt_interval(v))", "avg(v)")
    run, fork = Run(spark, tmp_path), tmp_path / "fork"
    run.start(query, epochs=range(3))
    before = tree(run.checkpoint)
    edits: list[str | Edit] = [
        "UPDATE op0 SET count = count + 1000 WHERE k = 'k1'; DELETE FROM op0 WHERE k IS NULL",
        "INSERT INTO op0 (k, count, max, sum, count_2) VALUES ('new', 7, 5000000, 2.5, 2)",
        Edit("op0", key={"k": "k2"}, set={"max": 1_500_000, "sum": 0}),
    ]
    report = ss.Checkpoint(run.checkpoint).fork(fork, at=1, edit=edits, spark=spark)
    assert untouched(before, run.checkpoint)
    assert report.edited_rows == 4
    removed, added = changes(spark, run.checkpoint, fork, "op0", 1)
    assert {row[0] for row in removed} == {"k1", None, "k2"}
    before_edit = {row[0]: row for row in removed}
    after_edit = {row[0]: row for row in added}
    assert after_edit["k1"] == ["k1", before_edit["k1"][1] + 1000, *before_edit["k1"][2:]]
    assert after_edit["k2"] == ["k2", before_edit["k2"][1], 1_500_000, 0.0, before_edit["k2"][4]]
    assert after_edit["new"] == ["new", 7, 5_000_000, 2.5, 2]
    assert {*after_edit} == {"k1", "k2", "new"}
    step(run, fork, query, 2, {})
    removed, added = changes(spark, run.checkpoint, fork, "op0", 2)
    counts = {row[0]: row[1] for row in added}
    assert counts["k1"] - 1000 == {row[0]: row[1] for row in removed}["k1"]
    assert counts[None] == 1
    record = forked_from(fork)
    assert record is not None
    assert record.edits[-1] == "op0: set max = 1500000, sum = 0 where k = 'k2'"


@pytest.mark.exhaustive
def test_a_fork_can_be_edited_and_repartitioned_at_once(spark: SparkSession, tmp_path: Path) -> None:
    """Inserted rows are in the right partitions: the next epoch updates them."""
    query = WINDOWS["tumbling window"]
    run, fork = Run(spark, tmp_path), tmp_path / "fork"
    run.start(query, FORMAT_1, epochs=range(3))
    window = {"start": START.replace(hour=2, minute=0, second=0, microsecond=0)}
    window["end"] = window["start"] + dt.timedelta(hours=1)
    new = [f"only{number}" for number in (2, *range(90, 99))]
    edits = [Edit("op0", key={"window": window, "k": name}, set={"sum": 10_000}) for name in new]
    report = ss.Checkpoint(run.checkpoint).fork(fork, at=1, partitions=5, edit=edits, spark=spark)
    assert report.edited_rows == len(new)
    step(run, fork, query, 2, FORMAT_1)
    removed, added = changes(spark, run.checkpoint, fork, "op0", 2)
    (before,), after = [row for row in removed if row[1] == "only2"], [row for row in added if row[1] == "only2"]
    assert [row[2] for row in after] == [before[2] + 10_000]
    assert len(added) == len(new)
    ss.Checkpoint(fork).capture(tmp_path / "store", "q", spark=spark)
    assert compare(spark, fork, ss.open_store(tmp_path / "store")["q"]) == 2


@pytest.mark.exhaustive
def test_variables_of_a_processor_can_be_edited(spark: SparkSession, tmp_path: Path) -> None:
    """Values, maps, lists, timers and what has a TTL are edited; the next epoch goes on from there."""
    query = TRANSFORM["rows, processing time, TTL and timers"]
    run, fork = Run(spark, tmp_path), tmp_path / "fork"
    run.start(query, epochs=range(3))
    edits = [
        "UPDATE op0_total SET n = 0, last = 'edited' WHERE k = 'k1'",
        "DELETE FROM op0_by_kind WHERE k = 'k1'",
        "INSERT INTO op0_by_kind (k, kind, even, n) VALUES ('k1', 'r9', true, 77)",
        "DELETE FROM op0_seen WHERE k = 'k1' AND _position = 0",
        "UPDATE op0_seen SET v = -v WHERE k = 'k1' AND _position = 1",
        "INSERT INTO op0_seen (k, _position, v, tags) VALUES ('new', 0, 1, array('a')), ('new', 7, 2, array('b'))",
        "UPDATE op0_kept SET ttlExpirationMs = ttlExpirationMs + 1 WHERE k = 'k2'",
        "DELETE FROM op0_map_ttl WHERE k = 'k2'",
        "DELETE FROM op0_timers WHERE k = 'only0'",  # other keys may have expired timers only
    ]
    before = {table: [*spark_rows(spark, run.checkpoint, table, 1).elements()] for table in query.tables}
    ss.Checkpoint(run.checkpoint).fork(fork, at=1, edit=edits, spark=spark)
    _, (total,) = changes(spark, run.checkpoint, fork, "op0_total", 1)
    assert total[:3] == ["k1", 0, "edited"]
    removed, added = changes(spark, run.checkpoint, fork, "op0_by_kind", 1)
    assert added == [["k1", "r9", True, 77]]
    assert {row[0] for row in removed} == {"k1"}
    seen = {table: [json.loads(row) for row in spark_rows(spark, fork, table, 1).elements()] for table in query.tables}
    was = sorted(row for row in map(json.loads, before["op0_seen"]) if row[0] == "k1")
    now = sorted(row for row in seen["op0_seen"] if row[0] == "k1")
    assert now == [["k1", 0, -was[1][2], was[1][3]], *([key, at - 1, *rest] for key, at, *rest in was[2:])]
    assert sorted(row for row in seen["op0_seen"] if row[0] == "new") == [["new", 0, 1, ["a"]], ["new", 1, 2, ["b"]]]
    (kept,), (later,) = changes(spark, run.checkpoint, fork, "op0_kept", 1)
    assert later == [*kept[:-1], kept[-1] + 1]
    for table, key in (("op0_map_ttl", "k2"), ("op0_timers", "only0")):
        removed, added = changes(spark, run.checkpoint, fork, table, 1)
        assert removed == sorted(row for row in map(json.loads, before[table]) if row[0] == key) != []
        assert not added
    step(run, fork, query, 2, {})


@pytest.mark.exhaustive
def test_edited_rows_of_operators_with_special_keys(spark: SparkSession, tmp_path: Path) -> None:
    """Deduplication has no value columns, a session window hashes part of its key, a global aggregation has no key."""
    queries = [
        (OTHERS["distinct"], "INSERT INTO op0 VALUES ('new'); DELETE FROM op0 WHERE k = 'k1'", 2),
        (WINDOWS["session window"], "UPDATE op0 SET sum = 5 WHERE k = 'k2'", 2),
        (OTHERS["global aggregation"], "UPDATE op0 SET count = 0", 1),
    ]
    for number, (query, edit, rows) in enumerate(queries):
        run = Run(spark, tmp_path / str(number))
        run.start(query, epochs=range(2))
        report = ss.Checkpoint(run.checkpoint).fork(run.folder / "fork", at=0, edit=edit, spark=spark)
        assert report.edited_rows == rows
        step(run, run.folder / "fork", query, 1, {})


BAD_EDITS: dict[str, tuple[object, type[Exception], str]] = {
    "no such table": ("DELETE FROM op1", UnknownTableError, "op0"),
    "no such column": ("UPDATE op0 SET n = 1", UnknownColumnError, "count"),
    "no such column in a condition": ("DELETE FROM op0 WHERE nope = 1", UnknownColumnError, "nope"),
    "no such key column": (Edit("op0", key={"x": 1}, delete=True), UnknownColumnError, "k"),
    "a key column": ("UPDATE op0 SET k = 'a'", InvalidArgumentError, "cannot be changed"),
    "no matching row": ("DELETE FROM op0 WHERE k = 'K1'", InvalidArgumentError, "No row"),
    "text for a number": ("UPDATE op0 SET count = 'many'", InvalidArgumentError, "many"),
    "a fraction for an integer": (Edit("op0", {"k": "k1"}, {"count": 1.5}), InvalidArgumentError, "does not fit"),
    "a moment for a number": ("UPDATE op0 SET count = DATE '2024-01-01'", InvalidArgumentError, "Invalid value for"),
    "a row that exists": ("INSERT INTO op0 VALUES ('k1', 1, 1)", InvalidArgumentError, "already"),
    "a row twice": ("INSERT INTO op0 VALUES ('a', 1, 1), ('a', 1, 1)", InvalidArgumentError, "twice"),
    "too few columns": ("INSERT INTO op0 (k) VALUES ('a')", InvalidArgumentError, "missing: count, max"),
    "too few values": ("INSERT INTO op0 VALUES ('a')", InvalidArgumentError, "3 values"),
    "text without quotes": ("INSERT INTO op0 VALUES (a, 1, 1)", InvalidArgumentError, "quotes"),
    "a query": ("SELECT * FROM op0", InvalidSQLError, "query other tables"),
    "a subquery": ("UPDATE op0 SET count = (SELECT 1)", InvalidSQLError, "query other tables"),
    "another statement": ("DROP TABLE op0", InvalidSQLError, "does not edit"),
    "malformed SQL": ("UPDATE op0 SET WHERE (", InvalidSQLError, "does not parse"),
    "an update of nothing": ("UPDATE op0", InvalidSQLError, "does not edit"),
    "nothing": ([], InvalidArgumentError, "no edit"),
    "something else": ([3], InvalidArgumentError, "Invalid edit 3"),
}


@pytest.fixture(scope="module")
def counted_once(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A query with two epochs and the columns ``k``, ``count`` and ``max``."""
    run = Run(spark, tmp_path_factory.mktemp("edits"))
    run.start(aggregated("count(*)", "max(v)"), epochs=range(2))
    return run


@pytest.mark.parametrize("name", BAD_EDITS)
def test_an_invalid_edit_is_rejected(spark: SparkSession, counted_once: Run, name: str) -> None:
    """The original is unchanged, and no fork is made."""
    edit, error, message = BAD_EDITS[name]
    before = tree(counted_once.checkpoint)
    with pytest.raises(error, match=message):
        ss.Checkpoint(counted_once.checkpoint).fork(counted_once.folder / "fork", edit=edit, spark=spark)  # type: ignore[arg-type]
    assert not (counted_once.folder / "fork").exists()
    assert untouched(before, counted_once.checkpoint)


def test_an_incomplete_edit_is_rejected() -> None:
    """An edit has a key, and either sets columns or deletes the row."""
    with pytest.raises(InvalidArgumentError, match="expected either set"):
        Edit("op0", key={"k": "a"})
    with pytest.raises(InvalidArgumentError, match="expected a key"):
        Edit("op0", delete=True)


def test_sides_of_a_join_can_be_edited(spark: SparkSession, tmp_path: Path) -> None:
    """The rows of a key are numbered without gaps and counted again, so that the next epoch joins what is left."""
    query = JOINS["left_outer"]
    run, fork = Run(spark, tmp_path), tmp_path / "fork"
    run.start(query, epochs=range(3))
    edit = "DELETE FROM op0_left WHERE k = 'k0' AND index = 0; UPDATE op0_right SET v2 = 0 WHERE k2 = 'k3'"
    ss.Checkpoint(run.checkpoint).fork(fork, at=1, edit=edit, spark=spark)
    every = [[*map(json.loads, sorted(spark_rows(spark, path, "op0_left", 1)))] for path in (run.checkpoint, fork)]
    was, now = ([row for row in rows if row[0] == "k0"] for rows in every)
    assert [row[1] for row in now] == [*range(len(was) - 1)]
    assert [row[2:] for row in now] == [row[2:] for row in was[1:]]
    others = [[row for row in rows if row[0] != "k0"] for rows in every]
    assert others[0] == others[1]
    step(run, fork, query, 2, {})
    removed, added = changes(spark, run.checkpoint, fork, "op0_right", 2)
    assert removed
    assert {row[0] for row in (*removed, *added)} <= {"k0", "k3"}
    assert {row[3] for row in added if row[0] == "k3"} == {0}


def test_all_rows_of_a_large_state_can_be_edited(spark: SparkSession, tmp_path: Path) -> None:
    """Their number has no limit: the rows stay with the executors."""
    stream = (
        spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 30_000).option("numPartitions", 2).load()
    )
    counted = stream.groupBy("value").count().writeStream.format("noop").outputMode("update")
    checkpoint, fork = tmp_path / "checkpoint", tmp_path / "fork"
    counted.option("checkpointLocation", str(checkpoint)).trigger(once=True).start().awaitTermination()
    report = ss.Checkpoint(checkpoint).fork(fork, edit="UPDATE op0 SET count = value + 7", spark=spark)
    assert report.edited_rows == 30_000
    rows = {tuple(json.loads(row)) for row in spark_rows(spark, fork, "op0", 0)}
    assert rows == {(at, at + 7) for at in range(30_000)}


@pytest.mark.parametrize("name", sampled(["limit", "join"], 1))
def test_what_cannot_be_edited_is_refused(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Spark records no schema of a limit; joins in state format 4 also order their rows by time."""
    query = JOINS["inner"] if name == "join" else Query(lambda s: s.limit(5), ("op0",), "append")
    run = Run(spark, tmp_path)
    run.start(query, in_format(4), epochs=range(1))
    with pytest.raises(UnsupportedStateError, match="cannot be edited"):
        ss.Checkpoint(run.checkpoint).fork(tmp_path / "fork", edit=f"DELETE FROM {query.tables[0]}", spark=spark)
    assert not (tmp_path / "fork").exists()
