"""A fork may differ from its original: the number of its partitions, or rows of its state. Nothing else does."""

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
from streamstate.snapshots.checkpoint import Checkpoint
from streamstate.snapshots.errors import (
    InvalidArgumentError,
    InvalidSQLError,
    UnknownColumnError,
    UnknownTableError,
    UnsupportedStateError,
)
from streamstate.snapshots.forks import Edit, forked_from
from streamstate.snapshots.forks.spread import offsets_over

pytestmark = pytest.mark.slow

QUERIES: dict[str, tuple[Query, Mapping[str, str]]] = {
    "two aggregations, without changelogs": (OTHERS["two aggregations"], CHANGELOG_OFF),
    "session window, format 1": (WINDOWS["session window"], FORMAT_1),
    "join, left_outer": (JOINS["left_outer"], {}),
    "join, in one store": (JOINS["inner"], in_format(3)),
    "global aggregation": (OTHERS["global aggregation"], {}),
    "limit after deduplication": (
        Query(lambda s: s.dropDuplicates(["k", "t"]).limit(25), ("op0", "op1"), "append"),
        {},
    ),
    "variables and timers": (TRANSFORM["rows, event time and timers"], {}),
}


def same_rows(spark: SparkSession, one: Path, other: Path, query: Query, epoch: int) -> None:
    """Spark's reader finds the same in every table of two checkpoints."""
    for table in query.tables:
        assert spark_rows(spark, other, table, epoch) == spark_rows(spark, one, table, epoch), table


def changes(spark: SparkSession, one: Path, other: Path, table: str, epoch: int) -> tuple[list[Any], list[Any]]:
    """Rows that only the one checkpoint has, and those that only the other has."""
    was, now = (spark_rows(spark, each, table, epoch) for each in (one, other))
    return [json.loads(row) for row in was - now], [json.loads(row) for row in now - was]


def step(run: Run, fork: Path, query: Query, epoch: int, settings: Mapping[str, str]) -> None:
    """Run a fork's next epoch with the input that the original had in it."""
    partitions = Checkpoint(fork).partitions(epoch - 1)
    assert partitions is not None
    planned = (run.checkpoint / f"offsets/{epoch}").read_text(encoding="utf-8")
    (fork / f"offsets/{epoch}").write_text(offsets_over(planned, partitions), encoding="utf-8")
    for source in (run.checkpoint / "sources").iterdir():
        (fork / "sources" / source.name).mkdir(parents=True, exist_ok=True)
        shutil.copy(source / str(epoch), fork / "sources" / source.name / str(epoch))
    session = with_settings(run.spark, query.conf, settings)
    writer = query.build(run.inputs.stream(session)).writeStream.format("noop").outputMode(query.mode)
    writer.option("checkpointLocation", str(fork)).trigger(once=True).start().awaitTermination()
    assert Checkpoint(fork).committed()[-1] == epoch


@pytest.mark.parametrize("name", sampled(QUERIES, 3))
def test_a_fork_with_other_partitions_equals_and_goes_on(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """At its epoch it has the original's rows, and an epoch later, after the same input, again."""
    query, settings = QUERIES[name]
    run, fork = Run(spark, tmp_path), tmp_path / "fork"
    run.start(query, settings, epochs=range(3))
    made = ss.fork(run.checkpoint, fork, at=1, partitions=4, spark=spark)
    assert made.new_bytes > 0
    assert Checkpoint(fork).partitions(1) == Checkpoint(fork).partitions(0) == 4
    assert (record := forked_from(fork)) is not None
    assert record.partitions == 4
    same_rows(spark, run.checkpoint, fork, query, 1)
    step(run, fork, query, 2, settings)
    same_rows(spark, run.checkpoint, fork, query, 2)


def test_a_provider_that_spark_cannot_write(spark: SparkSession, tmp_path: Path) -> None:
    """The error says what works, and comes before anything is made."""
    run = Run(spark, tmp_path)
    run.start(WINDOWS["tumbling window"], HDFS, epochs=range(2))
    with pytest.raises(UnsupportedStateError, match="RocksDB"):
        ss.fork(run.checkpoint, tmp_path / "fork", partitions=4, spark=spark)
    assert not (tmp_path / "fork").exists()


@pytest.mark.parametrize("partitions", [0, -2, 2.0, True, "4"])
def test_a_number_of_partitions_that_cannot_be_meant(tmp_path: Path, partitions: object) -> None:
    """Only whole numbers above zero can."""
    with pytest.raises(InvalidArgumentError, match="at least 1"):
        ss.fork(tmp_path / "one", tmp_path / "other", partitions=partitions)  # type: ignore[arg-type]


def test_edited_rows_and_no_others_differ(spark: SparkSession, tmp_path: Path) -> None:
    """Updates, deletes and inserts, one after the other; the next epoch goes on from what they left."""
    query = aggregated("count(*) AS n", "max(make_dt_interval(v))", "avg(v)")
    run, fork = Run(spark, tmp_path), tmp_path / "fork"
    run.start(query, epochs=range(3))
    before = tree(run.checkpoint)
    edits: list[str | Edit] = [
        "UPDATE op0 SET count = count + 1000 WHERE k = 'k1'; DELETE FROM op0 WHERE k IS NULL",
        "INSERT INTO op0 (k, count, max, sum, count_2) VALUES ('new', 7, 5000000, 2.5, 2)",
        Edit("op0", key={"k": "k2"}, set={"max": 1_500_000, "sum": 0}),
    ]
    made = ss.fork(run.checkpoint, fork, at=1, edit=edits, spark=spark)
    assert untouched(before, run.checkpoint)
    assert made.edited_rows == 4
    gone, come = changes(spark, run.checkpoint, fork, "op0", 1)
    assert {row[0] for row in gone} == {"k1", None, "k2"}
    was = {row[0]: row for row in gone}
    now = {row[0]: row for row in come}
    assert now["k1"] == ["k1", was["k1"][1] + 1000, *was["k1"][2:]]
    assert now["k2"] == ["k2", was["k2"][1], 1_500_000, 0.0, was["k2"][4]]
    assert now["new"] == ["new", 7, 5_000_000, 2.5, 2]
    assert {*now} == {"k1", "k2", "new"}
    step(run, fork, query, 2, {})
    gone, come = changes(spark, run.checkpoint, fork, "op0", 2)
    counted = {row[0]: row[1] for row in come}
    assert counted["k1"] - 1000 == {row[0]: row[1] for row in gone}["k1"]
    assert counted[None] == 1
    record = forked_from(fork)
    assert record is not None
    assert record.edits[-1] == "op0: set max = 1500000, sum = 0 where k = 'k2'"


def test_editing_and_spreading_at_once(spark: SparkSession, tmp_path: Path) -> None:
    """Added rows are where the query looks for them: the next epoch updates them, and capture reads all."""
    query = WINDOWS["tumbling window"]
    run, fork = Run(spark, tmp_path), tmp_path / "fork"
    run.start(query, FORMAT_1, epochs=range(3))
    window = {"start": START.replace(hour=2, minute=0, second=0, microsecond=0)}
    window["end"] = window["start"] + dt.timedelta(hours=1)
    new = [f"only{number}" for number in (2, *range(90, 99))]
    edits = [Edit("op0", key={"window": window, "k": name}, set={"sum": 10_000}) for name in new]
    made = ss.fork(run.checkpoint, fork, at=1, partitions=5, edit=edits, spark=spark)
    assert made.edited_rows == len(new)
    step(run, fork, query, 2, FORMAT_1)
    gone, come = changes(spark, run.checkpoint, fork, "op0", 2)
    (was,), now = [row for row in gone if row[1] == "only2"], [row for row in come if row[1] == "only2"]
    assert [row[2] for row in now] == [was[2] + 10_000]
    assert len(come) == len(new)
    ss.capture(fork, tmp_path / "store", "q", spark=spark)
    assert compare(spark, fork, ss.open_store(tmp_path / "store")["q"]) == 2


def test_variables_of_a_processor_can_be_edited(spark: SparkSession, tmp_path: Path) -> None:
    """Values and maps; what else the processor keeps stays as it is."""
    query = TRANSFORM["rows, event time and timers"]
    run, fork = Run(spark, tmp_path), tmp_path / "fork"
    run.start(query, epochs=range(2))
    edits = [
        "UPDATE op0_total SET n = 0, last = 'edited' WHERE k = 'k1'",
        "DELETE FROM op0_by_kind WHERE k = 'k1'",
        "INSERT INTO op0_by_kind (k, kind, even, n) VALUES ('k1', 'r9', true, 77)",
    ]
    ss.fork(run.checkpoint, fork, at=1, edit=edits, spark=spark)
    _, (total,) = changes(spark, run.checkpoint, fork, "op0_total", 1)
    assert total[:3] == ["k1", 0, "edited"]
    gone, come = changes(spark, run.checkpoint, fork, "op0_by_kind", 1)
    assert come == [["k1", "r9", True, 77]]
    assert {row[0] for row in gone} == {"k1"}
    for table in ("op0_seen", "op0_timers"):
        assert changes(spark, run.checkpoint, fork, table, 1) == ([], [])
    for table in ("op0_seen", "op0_timers"):
        with pytest.raises(UnsupportedStateError, match="Edits work on"):
            ss.fork(run.checkpoint, tmp_path / "other", at=1, edit=f"DELETE FROM {table}", spark=spark)


def test_rows_without_a_partition_of_their_own(spark: SparkSession, tmp_path: Path) -> None:
    """Deduplication has no values, a session a key that is hashed in part, a global aggregation no key."""
    queries = [
        (OTHERS["distinct"], "INSERT INTO op0 VALUES ('new'); DELETE FROM op0 WHERE k = 'k1'", 2),
        (WINDOWS["session window"], "UPDATE op0 SET sum = 5 WHERE k = 'k2'", 2),
        (OTHERS["global aggregation"], "UPDATE op0 SET count = 0", 1),
    ]
    for number, (query, edit, rows) in enumerate(queries):
        run = Run(spark, tmp_path / str(number))
        run.start(query, epochs=range(2))
        made = ss.fork(run.checkpoint, run.folder / "fork", at=0, edit=edit, spark=spark)
        assert made.edited_rows == rows
        step(run, run.folder / "fork", query, 1, {})


BAD_EDITS: dict[str, tuple[object, type[Exception], str]] = {
    "no such table": ("DELETE FROM op1", UnknownTableError, "op0"),
    "no such column": ("UPDATE op0 SET n = 1", UnknownColumnError, "count"),
    "no such column in a condition": ("DELETE FROM op0 WHERE nope = 1", UnknownColumnError, "nope"),
    "no such key column": (Edit("op0", key={"x": 1}, delete=True), UnknownColumnError, "k"),
    "a key column": ("UPDATE op0 SET k = 'a'", InvalidArgumentError, "cannot become another"),
    "no row is meant": ("DELETE FROM op0 WHERE k = 'K1'", InvalidArgumentError, "No row"),
    "text for a number": ("UPDATE op0 SET count = 'many'", InvalidArgumentError, "many"),
    "a fraction for a whole number": (Edit("op0", {"k": "k1"}, {"count": 1.5}), InvalidArgumentError, "does not fit"),
    "a moment for a number": ("UPDATE op0 SET count = DATE '2024-01-01'", InvalidArgumentError, "no value for"),
    "a row that is there": ("INSERT INTO op0 VALUES ('k1', 1, 1)", InvalidArgumentError, "already"),
    "a row twice": ("INSERT INTO op0 VALUES ('a', 1, 1), ('a', 1, 1)", InvalidArgumentError, "twice"),
    "too few columns": ("INSERT INTO op0 (k) VALUES ('a')", InvalidArgumentError, "lacks"),
    "too few values": ("INSERT INTO op0 VALUES ('a')", InvalidArgumentError, "3 values"),
    "text without quotes": ("INSERT INTO op0 VALUES (a, 1, 1)", InvalidArgumentError, "quotes"),
    "a question": ("SELECT * FROM op0", InvalidSQLError, "ask other tables"),
    "a question inside": ("UPDATE op0 SET count = (SELECT 1)", InvalidSQLError, "ask other tables"),
    "another statement": ("DROP TABLE op0", InvalidSQLError, "no edit"),
    "no SQL": ("UPDATE op0 SET WHERE (", InvalidSQLError, "does not parse"),
    "an update of nothing": ("UPDATE op0", InvalidSQLError, "no edit"),
    "nothing": ([], InvalidArgumentError, "no edit"),
    "something else": ([3], InvalidArgumentError, "no edit"),
}


@pytest.fixture(scope="module")
def counted_once(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A query of two epochs, with the columns ``k``, ``count`` and ``max``."""
    run = Run(spark, tmp_path_factory.mktemp("edits"))
    run.start(aggregated("count(*)", "max(v)"), epochs=range(2))
    return run


@pytest.mark.parametrize("name", BAD_EDITS)
def test_an_edit_that_cannot_be_meant(spark: SparkSession, counted_once: Run, name: str) -> None:
    """A clear error, the original as it was, and no fork."""
    edit, error, told = BAD_EDITS[name]
    before = tree(counted_once.checkpoint)
    with pytest.raises(error, match=told):
        ss.fork(counted_once.checkpoint, counted_once.folder / "fork", edit=edit, spark=spark)  # type: ignore[arg-type]
    assert not (counted_once.folder / "fork").exists()
    assert untouched(before, counted_once.checkpoint)


def test_an_edit_that_says_nothing() -> None:
    """It sets or deletes, and names a key."""
    with pytest.raises(InvalidArgumentError, match="either sets"):
        Edit("op0", key={"k": "a"})
    with pytest.raises(InvalidArgumentError, match="needs a key"):
        Edit("op0", delete=True)


def test_a_join_cannot_be_edited(spark: SparkSession, tmp_path: Path) -> None:
    """Its sides are counted elsewhere; the error names what works."""
    run = Run(spark, tmp_path)
    run.start(JOINS["inner"], epochs=range(2))
    with pytest.raises(UnsupportedStateError, match="counts and orders"):
        ss.fork(run.checkpoint, tmp_path / "fork", edit="DELETE FROM op0_left", spark=spark)
