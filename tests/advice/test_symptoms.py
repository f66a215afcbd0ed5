"""The symptoms that people report, as real queries: what they are advised, and relatives of them that are fine."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from operators.processors import PANDAS_STATE
from operators.running import INPUT, Inputs, with_settings
from pyspark.sql import functions as F

import streamstate as ss
from streamstate.operations.checkup import examine
from streamstate.reports import History

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TEN = dt.datetime(2026, 1, 1, 10, tzinfo=dt.UTC)
EPOCHS = 14
MAX = {"spark.sql.streaming.multipleWatermarkPolicy": "max"}
RANGE = "k = k2 AND t2 BETWEEN t AND t + INTERVAL 20 MINUTES"
Build = Callable[["DataFrame", "DataFrame"], "DataFrame"]


def new_keys(epoch: int) -> pa.Table:
    """Ten minutes of event time, with keys that no other epoch has."""
    return rows(epoch, [f"k{epoch}.{at}" for at in range(5)])


def same_keys(epoch: int) -> pa.Table:
    """Ten minutes of event time, with the keys of all other epochs."""
    return rows(epoch, [f"k{at}" for at in range(5)])


def rows(epoch: int, keys: list[str]) -> pa.Table:
    """A row for each key, two minutes apart."""
    times = [TEN + dt.timedelta(minutes=10 * epoch + 2 * at) for at in range(len(keys))]
    return pa.table([keys, [*range(len(keys))], times], schema=INPUT)


def timed(stream: DataFrame) -> DataFrame:
    """The stream with a watermark of ten minutes."""
    return stream.withWatermark("t", "10 minutes")


def windows(stream: DataFrame) -> DataFrame:
    """Counts of ten minutes."""
    return stream.groupBy(F.window("t", "10 minutes")).count()


def joined(condition: str, how: str = "inner", *, left: bool = True, right: bool = True) -> Build:
    """A join; whether each side has a watermark."""

    def build(a: DataFrame, b: DataFrame) -> DataFrame:
        other = b.selectExpr("k AS k2", "t AS t2")
        other = other.withWatermark("t2", "10 minutes") if right else other
        return (timed(a) if left else a).join(other, F.expr(condition), how)

    return build


def both(a: DataFrame, b: DataFrame) -> DataFrame:
    """Windows over two streams, each with a watermark."""
    return windows(timed(a).union(timed(b)))


@dataclass(frozen=True)
class Symptom:
    """A query over one or two streams, and parts of what it is advised; nothing if it is fine."""

    build: Build
    mode: str = "append"
    advised: Sequence[str] = ()
    left: Callable[[int], pa.Table] = new_keys
    right: Callable[[int], pa.Table] = new_keys
    of_right: int = 0
    """The epochs in which the second stream delivers."""
    conf: dict[str, str] = field(default_factory=dict)
    returns: bool = True
    """False if the query returns nothing."""
    described: bool = True


REMEMBERS = "op0 can never shrink, because dropDuplicates remembers every key (k), and"
KEEPS = "op0 can never shrink, because it keeps every key"
SIDES = "op0_left and op0_right can never shrink, because"
IDLE = "because source 1 has delivered nothing since epoch 3: of several watermarks Spark takes the smallest."
STANDS = f"The watermark has not moved since epoch 3, although 10 epochs have read rows, {IDLE}"

SYMPTOMS = {
    "dropDuplicates state grows forever": Symptom(
        lambda a, _: a.dropDuplicates(["k"]), advised=[f"{REMEMBERS} the query has no watermark."]
    ),
    "dropDuplicates with a watermark still grows": Symptom(
        lambda a, _: timed(a).dropDuplicates(["k"]), advised=[f"{REMEMBERS} the key lacks the event time t."]
    ),
    "dropDuplicates with event time": Symptom(lambda a, _: timed(a).dropDuplicates(["k", "t"])),
    "dropDuplicatesWithinWatermark": Symptom(lambda a, _: timed(a).dropDuplicatesWithinWatermark(["k"])),
    "dropDuplicates of a few keys": Symptom(lambda a, _: a.dropDuplicates(["k"]), left=same_keys),
    "groupBy without a watermark": Symptom(
        lambda a, _: a.groupBy("k").count(), "update", [f"{KEEPS} (k), and the query has no watermark."]
    ),
    "groupBy of a few keys": Symptom(lambda a, _: a.groupBy("k").count(), "update", left=same_keys),
    "windows without a watermark": Symptom(
        lambda a, _: windows(a), "update", [f"{KEEPS} (window), and the query has no watermark."]
    ),
    "windows in update mode": Symptom(lambda a, _: windows(timed(a)), "update"),
    "windows in complete mode": Symptom(
        lambda a, _: windows(timed(a)), "complete", ["because in complete mode the query returns all groups"]
    ),
    "sessions without a watermark": Symptom(
        lambda a, _: a.groupBy(F.session_window("t", "1 minute"), "k").count(), "complete", ["in complete mode"]
    ),
    "append mode shows nothing": Symptom(
        lambda a, _: windows(a.withWatermark("t", "1 day")),
        advised=[
            "14 windows of op0 are not returned yet, because append mode waits for the end of each window, for the"
        ],
        returns=False,
    ),
    "append mode shows nothing, event time is null": Symptom(
        lambda a, _: windows(timed(a.withColumn("t", F.lit(None).cast("timestamp")))),
        advised=["There is no watermark yet, although 14 epochs have read rows: t is null in all of them"],
        returns=False,
    ),
    "windows in append mode": Symptom(lambda a, _: windows(timed(a))),
    "join state grows, no watermark": Symptom(
        joined("k = k2", left=False, right=False),
        advised=[f"{SIDES} neither side of the join has a watermark."],
        of_right=EPOCHS,
    ),
    "join state grows, one watermark": Symptom(
        joined(RANGE, right=False), advised=[f"{SIDES} the right side of the join has no watermark."], of_right=EPOCHS
    ),
    "join state grows, no bound on time": Symptom(
        joined("k = k2 AND t2 >= t"),
        advised=["op0_left can never shrink, because the join condition does not say how much later than t a row of"],
        of_right=EPOCHS,
    ),
    "join with a bound on time": Symptom(joined(RANGE), of_right=EPOCHS),
    "left outer join never emits, no watermark": Symptom(
        joined(RANGE, "left_outer", left=False),
        advised=["the left side of the join has no watermark; its rows without a match are therefore never returned."],
        right=same_keys,
        of_right=EPOCHS,
        returns=False,
    ),
    "left outer join never emits, one side is idle": Symptom(
        joined(RANGE, "left_outer"),
        advised=[STANDS, "rows without a match of op0_left are not returned yet, because an outer join waits until no"],
        of_right=4,
    ),
    "left outer join": Symptom(joined(RANGE, "left_outer"), right=same_keys, of_right=EPOCHS),
    "watermark stuck because one topic is idle": Symptom(
        both, advised=[STANDS, "windows of op0 are not returned yet"], of_right=4
    ),
    "one topic is idle, with the policy max": Symptom(both, of_right=4, conf=MAX),
    "one topic is idle, of a query that nobody described": Symptom(
        both, advised=["source 1 has delivered nothing since epoch 3, which holds"], of_right=4, described=False
    ),
    "watermark stuck because events repeat": Symptom(
        lambda a, _: windows(timed(a)),
        advised=["none of them is later than 2026-01-01 10:38:00 +00:00 by t.", "are not returned yet"],
        left=lambda epoch: new_keys(min(epoch, 3)),
    ),
    "applyInPandasWithState without a timeout": Symptom(
        lambda a, _: PANDAS_STATE["no timeout"].build(a), "update", ["op0 has not shrunk so far, because it has no"]
    ),
}


def run(spark: SparkSession, folder: Path, symptom: Symptom) -> tuple[History, int]:
    """A captured query, and how many rows it returned."""
    inputs = Inputs(folder / "left"), Inputs(folder / "right")
    session = with_settings(spark, symptom.conf)
    for epoch in range(EPOCHS):
        inputs[0].add(symptom.left(epoch))
        if epoch < symptom.of_right:
            inputs[1].add(symptom.right(epoch))
    returned: list[int] = []

    def build() -> DataFrame:
        return symptom.build(*(given.stream(session) for given in inputs))

    writer = build().writeStream.foreachBatch(lambda batch, _: returned.append(batch.count())).outputMode(symptom.mode)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    writer.start().awaitTermination()
    ss.Checkpoint(folder / "checkpoint").capture(folder / "store", "q", spark=spark)
    if symptom.described:
        ss.open_store(folder / "store")["q"].describe(build, mode=symptom.mode)
    return ss.open_store(folder / "store")["q"], sum(returned)


SIMILAR = {
    "dropDuplicates state grows forever",
    "dropDuplicates with event time",
    "dropDuplicatesWithinWatermark",
    "dropDuplicates of a few keys",
    "groupBy of a few keys",
    "windows without a watermark",
    "windows in update mode",
    "windows in complete mode",
    "append mode shows nothing, event time is null",
    "join state grows, no watermark",
    "join state grows, one watermark",
    "join state grows, no bound on time",
    "left outer join never emits, no watermark",
    "left outer join",
    "watermark stuck because one topic is idle",
    "one topic is idle, with the policy max",
}
"""Symptoms that resemble another."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.exhaustive if name in SIMILAR else ()) for name in SYMPTOMS]
)
def test_a_symptom_is_explained_and_what_is_fine_is_not(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Each expected sentence is among the advice, and nothing is advised where nothing is expected."""
    symptom = SYMPTOMS[name]
    history, returned = run(spark, tmp_path, symptom)
    advised = [advice.text for advice in history.advise()]
    assert bool(advised) == bool(symptom.advised), advised
    for expected in symptom.advised:
        assert any(expected in text for text in advised), advised
    assert bool(returned) == symptom.returns
    found = examine(tmp_path / "checkpoint", tmp_path / "store").findings
    assert [text for text in advised if any(finding.text.startswith(text) for finding in found)] == advised
