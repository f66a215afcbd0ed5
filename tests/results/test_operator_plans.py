"""Operators in the recorded plan, and the times at which the watermark removes rows of their state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from operators.processors import PANDAS_STATE, TRANSFORM
from operators.queries import JOINS, OTHERS, WINDOWS, aggregated, watermarked
from operators.running import Inputs, with_settings
from pyspark.sql import functions as F

from streamstate.snapshots.store.query_plans.query_plan import EventTime, QueryPlan
from streamstate.snapshots.store.query_plans.spark_plan import plan_of_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOUR = 3_600_000


@pytest.fixture(scope="module")
def stream(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """A stream that no query reads."""
    return Inputs(tmp_path_factory.mktemp("plans") / "input").stream(with_settings(spark))


def plan(stream: DataFrame, build: Callable[[DataFrame], DataFrame], mode: str) -> QueryPlan:
    """The plan of a query, after a way through the store."""
    return QueryPlan.from_json(plan_of_frame(build(stream), mode).plan.to_json())


def times(plan: QueryPlan) -> dict[str, Any]:
    """By table the column with the time after which a row is removed, and by how much the watermark has to be past."""
    return {
        name: None if table.time is None else (column(table.time), table.behind) for name, table in plan.tables.items()
    }


def column(tree: Any) -> str:
    """A column of the state, such as ``key[0].1`` for the second field of the first key column."""
    if tree["is"] == "GetStructField":
        return f"{column(tree['of'][0])}.{tree['at']}"
    return f"{tree['part']}[{tree['at']}]"


def one_sided(stream: DataFrame) -> DataFrame:
    """A join whose condition says nothing on how late a partner of the left side may come."""
    right = stream.selectExpr("k AS k2", "t AS t2").withWatermark("t2", "1 hour")
    return watermarked(stream).join(right, F.expr("k = k2 AND t2 >= t"))


def at_the_same_time(stream: DataFrame) -> DataFrame:
    """A join on event time, of which one side has a watermark."""
    return watermarked(stream).join(stream.selectExpr("k AS k2", "t AS t2"), F.expr("k = k2 AND t = t2"))


REMOVED = {
    "aggregation": (aggregated("sum(v)").build, "update", {"op0": None}),
    "aggregation by a key without event time": (
        lambda s: watermarked(s).groupBy("k").count(), "update", {"op0": None},
    ),
    "window": (WINDOWS["tumbling window"].build, "append", {"op0": ("key[0].1", 0)}),
    "window, update": (WINDOWS["tumbling window"].build, "update", {"op0": ("key[0].1", 0)}),
    "window, complete": (WINDOWS["tumbling window"].build, "complete", {"op0": None}),
    "window without a watermark": (lambda s: s.groupBy(F.window("t", "1 hour")).count(), "update", {"op0": None}),
    "session": (WINDOWS["session window"].build, "append", {"op0": ("value[0].1", 0)}),
    "event time as key": (lambda s: watermarked(s).groupBy("k", "t").count(), "update", {"op0": ("key[1]", 0)}),
    "deduplication": (OTHERS["dropDuplicates"].build, "append", {"op0": None}),
    "deduplication with event time": (
        OTHERS["dropDuplicates with a watermark"].build, "append", {"op0": ("key[1]", 0)},
    ),
    "deduplication by a key without event time": (
        lambda s: watermarked(s).dropDuplicates(["k"]), "append", {"op0": None},
    ),
    "deduplication within watermark": (
        OTHERS["dropDuplicatesWithinWatermark"].build, "append", {"op0": ("value[0]", 0)},
    ),
    # t <= t2 + 1 hour, t2 <= t + 30 minutes; Spark adds a millisecond.
    "join": (
        JOINS["left_outer"].build,
        "append",
        {"op0_left": ("value[2]", 1_800_001_000), "op0_right": ("value[2]", 3_600_001_000)},
    ),
    "join without a watermark": (JOINS["self"].build, "append", {"op0_left": None, "op0_right": None}),
    "join, one side bounded": (one_sided, "append", {"op0_left": None, "op0_right": ("value[1]", 1_000)}),
    "join by event time": (at_the_same_time, "append", {"op0_left": ("key[1]", 0), "op0_right": ("key[1]", 0)}),
}  # fmt: skip


@pytest.mark.parametrize("name", REMOVED)
def test_when_the_watermark_removes_rows(stream: DataFrame, name: str) -> None:
    """As Spark plans it; None if it removes none."""
    build, mode, expected = REMOVED[name]
    assert times(plan(stream, build, mode)) == expected


def test_operators_are_named_as_in_the_checkpoint(stream: DataFrame) -> None:
    """With the types of their keys, the columns with a watermark, and what the user chose of them."""
    found = {
        name: plan(stream, build, mode).operators
        for name, build, mode in (
            ("chain", OTHERS["join, deduplication and aggregation"].build, "append"),
            ("pandas", PANDAS_STATE["event-time timeout"].build, "update"),
            ("rows", TRANSFORM["rows, processing time, TTL and timers"].build, "update"),
            ("limit", OTHERS["limit"].build, "append"),
            ("sorted", lambda s: s.groupBy("k").count().orderBy("count").limit(3), "complete"),
        )
    }
    window, dedupe, join = found["chain"] or ()
    assert (window.name, dedupe.name, join.name) == ("stateStoreSave", "dedupe", "symmetricHashJoin")
    assert (dedupe.keys, dedupe.event_times) == (("string", "timestamp"), (("t",),))
    assert (join.kind, join.keys, join.event_times) == ("INNER", ("string",), (("t",), ("t2",)))
    kinds = {name: [(one.name, one.kind, one.keys) for one in operators or ()] for name, operators in found.items()}
    assert kinds["pandas"] == [("applyInPandasWithState", "EventTimeTimeout", ("string",))]
    assert kinds["rows"] == [("transformWithStateInPySparkExec", "ProcessingTime", ("string",))]
    assert kinds["limit"] == [("globalLimit", "", ())]
    # Each epoch returns the whole result, so that Spark keeps no state for its limit.
    assert kinds["sorted"] == [("stateStoreSave", "", ("string",))]


def test_watermarks_have_their_sources(spark: SparkSession, stream: DataFrame, tmp_path: Path) -> None:
    """By their places in the query. A stream that is read twice is one source."""
    other = Inputs(tmp_path / "other").stream(stream.sparkSession).withWatermark("t", "2 hours")
    joined = plan(stream, JOINS["inner"].build, "append")
    assert joined.event_times == (EventTime("t", HOUR, ("0",)), EventTime("t2", HOUR, ("0",)))
    union = plan(stream, lambda s: s.join(other.selectExpr("k", "t AS u"), "k"), "append")
    assert union.event_times == (EventTime("t", 2 * HOUR, ("1",)),)
