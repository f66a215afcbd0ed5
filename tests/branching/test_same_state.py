"""``state_differences`` compares two states row by row, with Spark's own state reader."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from operators.processors import PANDAS_STATE, TRANSFORM
from operators.queries import JOINS, KEYS, OTHERS, VALUES, WINDOWS, aggregated, grouped, in_format
from operators.running import HDFS, Query, Run, rows
from oracle import spark_rows
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from sampling import sampled

from streamstate.errors import NotACheckpointError, UnknownEpochError
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.spark.state_comparison import StateAt, state_differences
from streamstate.snapshots.store.canonical_rows import canonical_text, row_hashes

# Keys with time zones, intervals and voids are tested in operators/.
HOSTILE_KEYS = ("several of all sorts", "a struct with one name twice", "a map", "a float", "nested voids", "a binary")
# The tests of rescaling and forking compare the states of all operators.
_KINDS = {
    **{name: WINDOWS[name] for name in ("session window", "tumbling window, append")},
    **{name: OTHERS[name] for name in ("global aggregation", "two aggregations")},
    **{name: TRANSFORM[name] for name in ("rows, processing time, TTL and timers",)},
    **dict(list(PANDAS_STATE.items())[:1]),
}
QUERIES: dict[str, tuple[Query, Mapping[str, str]]] = {
    **{name: (query, {}) for name, query in _KINDS.items()},
    **{f"join, format {version}": (JOINS["full_outer"], in_format(version)) for version in (2, 4)},
    "values of every type": (aggregated(*(expression for values in VALUES.values() for expression in values)), {}),
    "keys of every type": (grouped(*(expression for name in HOSTILE_KEYS for expression in KEYS[name])), {}),
    "HDFS": (WINDOWS["sliding window"], HDFS),
}


@pytest.mark.slow  # every operator
@pytest.mark.parametrize("name", sampled(QUERIES, 1))
def test_differences_of_every_operator(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """A checkpoint equals its copy; the differences of two epochs are those found by Spark's state reader."""
    query, settings = QUERIES[name]
    run = Run(spark, tmp_path)
    run.start(query, settings, epochs=range(3))
    epochs = CheckpointFiles(run.checkpoint).committed()
    first, last = epochs[0], epochs[-1]
    shutil.copytree(run.checkpoint, tmp_path / "copy")
    here, there = StateAt(str(run.checkpoint), last), StateAt(str(tmp_path / "copy"), last)
    assert state_differences(spark, here, there) == []
    assert state_differences(spark, here, there, exact=True) == []
    differences = state_differences(spark, StateAt(str(run.checkpoint), first), here, limit=1000)
    by_table = {difference.table: difference for difference in differences}
    for table in query.tables:
        before, after = (spark_rows(spark, run.checkpoint, table, epoch) for epoch in (first, last))
        removed, added = sum((before - after).values()), sum((after - before).values())
        assert (table in by_table) == bool(removed or added), table
        if table in by_table:
            found = by_table[table]
            assert (found.rows, found.other_rows) == (sum(before.values()), sum(after.values()))
            assert (found.only_one, found.only_other) == (removed, added)
            assert (len(found.of_one), len(found.of_other)) == (len(set(found.of_one)), len(set(found.of_other)))


@pytest.mark.exhaustive
def test_providers_may_differ(spark: SparkSession, tmp_path: Path) -> None:
    """Each state is read with the settings of its query. States in RocksDB and HDFS stores can be equal."""
    runs = [Run(spark, tmp_path / name) for name in ("rocksdb", "hdfs")]
    for run, settings in zip(runs, ({}, HDFS), strict=True):
        run.start(WINDOWS["sliding window"], settings, epochs=range(3))
    rocksdb, hdfs = (StateAt(str(run.checkpoint), 2) for run in runs)
    assert state_differences(spark, rocksdb, hdfs) == state_differences(spark, rocksdb, hdfs, exact=True) == []


@pytest.mark.slow
def test_a_single_changed_value_is_found(spark: SparkSession, tmp_path: Path) -> None:
    """The difference has both rows of the key. ``limit`` is the maximum number of listed rows."""
    runs = [Run(spark, tmp_path / name) for name in ("left", "right")]
    for run, error in zip(runs, (0, 1), strict=True):
        expression = f"sum(if(k = 'k3', v + {error}, v))"
        run.start(aggregated(expression), epochs=range(3))
    left, right = (StateAt(str(run.checkpoint), 2) for run in runs)
    (found,) = state_differences(spark, left, right)
    assert (found.table, found.only_one, found.only_other, found.rows, found.other_rows) == ("op0", 1, 1, 9, 9)
    assert '"k3"' in found.of_one[0]
    assert '"k3"' in found.of_other[0]
    assert "rows that differ: 1 of the first state" in str(found)
    many = state_differences(spark, StateAt(left.checkpoint, 0), left, limit=2)
    assert len(many[0].of_other) == 2 < many[0].only_other


@pytest.mark.exhaustive
def test_the_order_of_a_list_matters(spark: SparkSession, tmp_path: Path) -> None:
    """List variables with the same elements in another order are different."""
    runs = [Run(spark, tmp_path / name) for name in ("forward", "backward")]
    forward = rows(0)
    for run, table in zip(runs, (forward, forward.take(list(reversed(range(len(forward)))))), strict=True):
        run.start_with(TRANSFORM["rows, no time"], [table])
    differences = state_differences(spark, *(StateAt(str(run.checkpoint), 0) for run in runs), limit=99)
    seen = {difference.table: difference for difference in differences}["op0_seen"]
    assert seen.rows == seen.other_rows
    here, there = (sorted(re.sub(r',"_position":\d+', "", row) for row in of) for of in (seen.of_one, seen.of_other))
    assert here == there != []


@pytest.mark.slow
def test_missing_tables_and_different_columns_are_differences(spark: SparkSession, tmp_path: Path) -> None:
    """The difference explains which table is missing, or lists the columns of both sides."""
    runs = [Run(spark, tmp_path / name) for name in ("count", "join", "other")]
    for run, query in zip(runs, (aggregated("count(v)"), JOINS["inner"], aggregated("max(v)")), strict=True):
        run.start(query, epochs=range(1))
    count, join, other = (StateAt(str(run.checkpoint), 0) for run in runs)
    found = {difference.table: difference for difference in state_differences(spark, count, join)}
    assert {"op0", "op0_left", "op0_right"} <= set(found)
    assert found["op0"].other_rows is None
    assert found["op0_left"].rows is None
    assert "no such state table" in found["op0"].why
    (columns,) = state_differences(spark, count, other)
    assert "count bigint" in columns.why
    assert "max bigint" in columns.why


def test_unknown_epochs_and_checkpoints_are_rejected(
    spark: SparkSession, tmp_path: Path, counted: tuple[Path, Path]
) -> None:
    """The error for an unknown epoch lists the epochs of the checkpoint."""
    existing = StateAt(str(counted[0]), 4)
    with pytest.raises(UnknownEpochError, match=r"does not hold epoch 9\.\nIt holds epochs 0 to 4\."):
        state_differences(spark, existing, StateAt(str(counted[0]), 9))
    with pytest.raises(NotACheckpointError):
        state_differences(spark, StateAt(str(tmp_path), 0), existing)


PAIRS = {
    "microseconds": ("timestamp'2024-01-01 00:00:00.000001'", "timestamp'2024-01-01 00:00:00.000002'"),
    "microseconds without a zone": ("timestamp_ntz'2024-01-01 00:00:00.000001'", "timestamp_ntz'2024-01-01 00:00:00'"),
    "zeros": ("double('0.0')", "double('-0.0')"),
    "bytes that are no UTF-8": ("cast(X'61FF' AS string)", "cast(X'61FE' AS string)"),
    "null in a struct and no value": ("named_struct('a', cast(null AS int))", "cast(null AS struct<a: int>)"),
    "keys of a map that print the same": (
        "map(named_struct('a', 'null'), 1)",
        "map(named_struct('a', cast(null AS string)), 1)",
    ),
    "an empty array and none": ("cast(array() AS array<int>)", "cast(null AS array<int>)"),
    "the order of an array": ("array(1, 2)", "array(2, 1)"),
    "bytes": ("X'00'", "X'0000'"),
}


@pytest.mark.parametrize("name", PAIRS)
def test_different_values_have_different_texts(spark: SparkSession, name: str) -> None:
    """The canonical text and the hashes distinguish values that may look the same in JSON."""
    left, right = PAIRS[name]
    found = texts(spark, left, right)
    assert all(len(set(values)) == 2 for values in zip(*found, strict=True))


def test_equal_values_have_the_same_text(spark: SparkSession) -> None:
    """NaN equals NaN, and the order of a map's entries does not matter."""
    assert len(set(texts(spark, "double('NaN')", "double('NaN')"))) == 1
    assert len(set(texts(spark, "map('a', 1, 'b', 2)", "map('b', 2, 'a', 1)"))) == 1


def test_nulls_have_their_place_in_hashes(spark: SparkSession) -> None:
    """Spark's own hash passes over nulls; ours tells which column is null."""
    rows = spark.createDataFrame([(None, 1), (1, None)], "a int, b int")
    hashes = rows.select(*row_hashes(rows.schema, rows.columns)).collect()
    assert all(first != second for first, second in zip(*hashes, strict=True))


def texts(spark: SparkSession, *expressions: str) -> list[tuple[object, ...]]:
    """The canonical text of each expression, and its hashes."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    result: list[tuple[object, ...]] = []
    for expression in expressions:
        frame = session.range(1).select(F.expr(expression).alias("value"))
        text, hashes = canonical_text(frame.schema), row_hashes(frame.schema, frame.columns)
        result.append(tuple(frame.select(text.alias("text"), *hashes).collect()[0]))
    return result


def test_column_names_are_quoted(spark: SparkSession) -> None:
    """Names may contain dots and backticks."""
    frame = spark.createDataFrame([(1, 2)], T.StructType([T.StructField(n, T.LongType()) for n in ("a.b", "c`d")]))
    assert frame.select(canonical_text(frame.schema).alias("text")).collect()[0]["text"] == '{"a.b":1,"c`d":2}'
