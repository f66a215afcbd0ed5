"""``differing``: whether two states are the same, key by key, by Spark's own state reader."""

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

from streamstate.snapshots.checkpoint import Checkpoint
from streamstate.snapshots.errors import NotACheckpointError, UnknownEpochError
from streamstate.snapshots.row_text import row_text
from streamstate.snapshots.same_state import StateAt, differing

# What groups by zone, by interval and by void has tests of its own in operators/.
HOSTILE_KEYS = ("several of all sorts", "a struct with one name twice", "a map", "a float", "nested voids", "a binary")
# Rescaling and forking compare the states of all operators by it.
_KINDS = {
    **{name: WINDOWS[name] for name in ("session window", "tumbling window, append")},
    **{name: OTHERS[name] for name in ("global aggregation", "two aggregations")},
    **{name: TRANSFORM[name] for name in ("rows, processing time, TTL and timers",)},
    **dict(list(PANDAS_STATE.items())[:1]),
}
QUERIES: dict[str, tuple[Query, Mapping[str, str]]] = {
    **{name: (query, {}) for name, query in _KINDS.items()},
    **{f"join, format {version}": (JOINS["full_outer"], in_format(version)) for version in (2, 4)},
    "values of every type": (aggregated(*(one for values in VALUES.values() for one in values)), {}),
    "keys of every type": (grouped(*(one for name in HOSTILE_KEYS for one in KEYS[name])), {}),
    "HDFS": (WINDOWS["sliding window"], HDFS),
}


@pytest.mark.slow  # every operator
@pytest.mark.parametrize("name", sampled(QUERIES, 2))
def test_every_operator(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """A checkpoint is the same as a copy of it; two epochs differ by the rows that Spark's reader tells apart."""
    query, settings = QUERIES[name]
    run = Run(spark, tmp_path)
    run.start(query, settings, epochs=range(3))
    epochs = Checkpoint(run.checkpoint).committed()
    first, last = epochs[0], epochs[-1]
    shutil.copytree(run.checkpoint, tmp_path / "copy")
    here, there = StateAt(str(run.checkpoint), last), StateAt(str(tmp_path / "copy"), last)
    assert differing(spark, here, there) == []
    assert differing(spark, here, there, exact=True) == []
    found = {one.table: one for one in differing(spark, StateAt(str(run.checkpoint), first), here, limit=1000)}
    for table in query.tables:
        before, after = (spark_rows(spark, run.checkpoint, table, epoch) for epoch in (first, last))
        gone, come = sum((before - after).values()), sum((after - before).values())
        assert (table in found) == bool(gone or come), table
        if table in found:
            one = found[table]
            assert (one.rows, one.other_rows) == (sum(before.values()), sum(after.values()))
            assert (one.only_one, one.only_other) == (gone, come)
            assert (len(one.of_one), len(one.of_other)) == (len(set(one.of_one)), len(set(one.of_other)))


def test_providers_may_differ(spark: SparkSession, tmp_path: Path) -> None:
    """Each side is read with the settings of its own query: two providers and formats hold the same state."""
    runs = [Run(spark, tmp_path / name) for name in ("rocksdb", "hdfs")]
    for run, settings in zip(runs, ({}, HDFS), strict=True):
        run.start(WINDOWS["sliding window"], settings, epochs=range(3))
    one, other = (StateAt(str(run.checkpoint), 2) for run in runs)
    assert differing(spark, one, other) == differing(spark, one, other, exact=True) == []


def test_one_value_of_one_key(spark: SparkSession, tmp_path: Path) -> None:
    """One changed value is found, and both its rows are named; a longer list of rows is cut."""
    runs = [Run(spark, tmp_path / name) for name in ("one", "other")]
    for run, wrong in zip(runs, (0, 1), strict=True):
        query = f"sum(if(k = 'k3', v + {wrong}, v))"
        run.start(aggregated(query), epochs=range(3))
    one, other = (StateAt(str(run.checkpoint), 2) for run in runs)
    (found,) = differing(spark, one, other)
    assert (found.table, found.only_one, found.only_other, found.rows, found.other_rows) == ("op0", 1, 1, 9, 9)
    assert '"k3"' in found.of_one[0]
    assert '"k3"' in found.of_other[0]
    assert "1 rows are only in the one" in str(found)
    many = differing(spark, StateAt(one.checkpoint, 0), one, limit=2)
    assert len(many[0].of_other) == 2 < many[0].only_other


def test_the_order_of_a_list_counts(spark: SparkSession, tmp_path: Path) -> None:
    """Two lists of the same elements in another order are not the same state."""
    runs = [Run(spark, tmp_path / name) for name in ("one", "other")]
    forth = rows(0)
    for run, table in zip(runs, (forth, forth.take(list(reversed(range(len(forth)))))), strict=True):
        run.start_with(TRANSFORM["rows, no time"], [table])
    found = {one.table: one for one in differing(spark, *(StateAt(str(run.checkpoint), 0) for run in runs), limit=99)}
    seen = found["op0_seen"]
    assert seen.rows == seen.other_rows
    here, there = (sorted(re.sub(r',"_position":\d+', "", row) for row in of) for of in (seen.of_one, seen.of_other))
    assert here == there != []


def test_a_table_that_one_side_lacks(spark: SparkSession, tmp_path: Path) -> None:
    """It is a difference, and so are other columns; neither is compared further."""
    runs = [Run(spark, tmp_path / name) for name in ("count", "join", "other")]
    for run, query in zip(runs, (aggregated("count(v)"), JOINS["inner"], aggregated("max(v)")), strict=True):
        run.start(query, epochs=range(1))
    count, join, other = (StateAt(str(run.checkpoint), 0) for run in runs)
    found = {one.table: one for one in differing(spark, count, join)}
    assert {"op0", "op0_left", "op0_right"} <= set(found)
    assert found["op0"].other_rows is None
    assert found["op0_left"].rows is None
    assert "no such state table" in found["op0"].why
    (columns,) = differing(spark, count, other)
    assert "count bigint" in columns.why
    assert "max bigint" in columns.why


def test_what_is_not_there(spark: SparkSession, tmp_path: Path, counted: tuple[Path, Path]) -> None:
    """An epoch that the checkpoint does not hold, and a folder that is no checkpoint, are said."""
    there = StateAt(str(counted[0]), 4)
    with pytest.raises(UnknownEpochError, match=r"does not hold epoch 9\.\nIt holds epochs 0 to 4\."):
        differing(spark, there, StateAt(str(counted[0]), 9))
    with pytest.raises(NotACheckpointError):
        differing(spark, StateAt(str(tmp_path), 0), there)


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
def test_values_that_differ_have_other_texts(spark: SparkSession, name: str) -> None:
    """Whatever JSON alone would print the same is told apart."""
    left, right = PAIRS[name]
    assert len(set(texts(spark, left, right))) == 2


def test_values_that_are_equal_have_one_text(spark: SparkSession) -> None:
    """NaN is NaN, and a map is the same in any order."""
    assert len(set(texts(spark, "double('NaN')", "double('NaN')"))) == 1
    assert len(set(texts(spark, "map('a', 1, 'b', 2)", "map('b', 2, 'a', 1)"))) == 1


def texts(spark: SparkSession, *expressions: str) -> list[str]:
    """The text of each of some values of one type."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    found = []
    for expression in expressions:
        frame = session.range(1).select(F.expr(expression).alias("value"))
        found.append(str(frame.select(row_text(frame.schema).alias("text")).collect()[0]["text"]))
    return found


def test_names_are_quoted(spark: SparkSession) -> None:
    """A column may be called whatever SQL can quote."""
    frame = spark.createDataFrame([(1, 2)], T.StructType([T.StructField(n, T.LongType()) for n in ("a.b", "c`d")]))
    assert frame.select(row_text(frame.schema).alias("text")).collect()[0]["text"] == '{"a.b":1,"c`d":2}'
