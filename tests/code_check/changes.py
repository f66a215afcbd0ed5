"""Stateful queries, and many kinds of change of their code, each with the finding that it should lead to."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

SCHEMA = "k string, c string, v long, w long, t timestamp"
HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
STORE = "spark.sql.streaming.stateStore"


@dataclass(frozen=True)
class Inputs:
    """The folder with the input folders ``one`` and ``two``, which have the same columns."""

    spark: SparkSession
    folder: Path

    @property
    def one(self) -> DataFrame:
        """The usual stream."""
        return self.stream("one")

    @property
    def late(self) -> DataFrame:
        """The usual stream with a watermark."""
        return self.one.withWatermark("t", "10 minutes")

    @property
    def very_late(self) -> DataFrame:
        """With a watermark that removes nothing."""
        return self.one.withWatermark("t", "1 day")

    def stream(self, name: str, schema: str = SCHEMA) -> DataFrame:
        """One of the streams."""
        reader = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.folder / name))

    def sides(self, within: str = "1 hour") -> tuple[DataFrame, DataFrame, Any]:
        """Two streams to join, and the condition."""
        right = self.stream("two").select(F.col("k").alias("k2"), F.col("v").alias("v2"), F.col("t").alias("t2"))
        condition = F.expr(f"k = k2 AND t2 BETWEEN t - INTERVAL {within} AND t + INTERVAL {within}")
        return self.late.select("k", "v", "t"), right.withWatermark("t2", "10 minutes"), condition


Build = Callable[[Inputs], DataFrame]


class Total(StatefulProcessor):
    """Sums each key's values in a value, and keeps them in a list."""

    def __init__(self, *, total: str = "n long", kind: str = "value", kept: bool = True, times: int = 1) -> None:
        self._total, self._kind, self._kept, self._times = total, kind, kept, times

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the variables."""
        made = handle.getValueState if self._kind == "value" else handle.getListState
        self.total: Any = made("total", self._total)
        if self._kept:
            self.kept = handle.getListState("kept", "v long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        """Add an epoch's values."""
        import pandas as pd

        added = sum(int(frame["v"].sum()) for frame in rows) * self._times
        before = self.total.get() if self.total.exists() else None
        if self._kind == "value":
            added += before[0] if before else 0
            self.total.update((added,))
        if self._kept:
            self.kept.appendValue((added,))
        yield pd.DataFrame({"k": [key[0]], "n": [added]})

    def close(self) -> None:
        """Nothing is open."""


def total(mode: str = "none", key: str = "k", **processor: Any) -> Build:
    """A query with the processor."""

    def build(inputs: Inputs) -> DataFrame:
        grouped = inputs.one.groupBy(key)
        return grouped.transformWithStateInPandas(Total(**processor), "k string, n long", "Update", mode)

    return build


def groups(inputs: Inputs, state: str = "n long") -> DataFrame:
    """A query with ``applyInPandasWithState``."""

    def count(key: Any, frames: Any, kept: Any) -> Any:
        import pandas as pd

        number = (kept.get[0] if kept.exists else 0) + sum(len(frame) for frame in frames)
        kept.update((number,) * (1 + state.count(",")))
        yield pd.DataFrame({"k": [key[0]], "n": [number]})

    return inputs.one.groupBy("k").applyInPandasWithState(count, "k string, n long", state, "update", "NoTimeout")


def aggregated(*functions: str, keys: tuple[str, ...] = ("k", "c")) -> Build:
    """An aggregate."""
    return lambda inputs: inputs.one.groupBy(*keys).agg(*map(F.expr, functions))


def over(change: Callable[[DataFrame], DataFrame]) -> Build:
    """The base aggregate over a changed stream."""
    return lambda inputs: counted(change(inputs.one))


def counted(frame: DataFrame) -> DataFrame:
    """The base aggregate of a frame."""
    return frame.groupBy("k", "c").agg(F.expr(MOST), F.expr(COUNT))


def windows(width: str = "1 hour", slide: str | None = None, value: str = "sum(v)", delay: str = "10 minutes") -> Build:
    """A windowed sum."""
    return lambda inputs: (
        inputs.one.withWatermark("t", delay).groupBy(F.window("t", width, slide), "k").agg(F.expr(value).alias("total"))
    )


def joined(
    how: str = "inner", within: str = "1 hour", also: Callable[[DataFrame], DataFrame] = lambda left: left
) -> Build:
    """A join of both streams."""

    def build(inputs: Inputs) -> DataFrame:
        left, right, condition = inputs.sides(within)
        return also(left).join(right, condition, how)

    return build


MOST, COUNT = "max(v) AS most", "count(*) AS n"


@dataclass(frozen=True)
class Base:
    """A query before the change."""

    build: Build
    mode: str = "update"
    conf: Mapping[str, str] = field(default_factory=dict)


BASES: Mapping[str, Base] = {
    "aggregate": Base(counted_base := aggregated(MOST, COUNT)),
    "window": Base(windows(), "append"),
    "dedup": Base(lambda inputs: inputs.late.dropDuplicates(["k", "t"]), "append"),
    "dedup within": Base(lambda inputs: inputs.late.dropDuplicatesWithinWatermark(["k", "c"]), "append"),
    "join": Base(joined(), "append"),
    "session": Base(
        lambda inputs: inputs.late.groupBy("k", F.session_window("t", "5 minutes")).agg(F.count("*")), "append"
    ),
    "two sources": Base(lambda inputs: counted(inputs.one.union(inputs.stream("two")))),
    "dates": Base(lambda inputs: inputs.one.groupBy(F.to_date("t").alias("day")).count()),
    "two operators": Base(
        lambda inputs: inputs.very_late.dropDuplicates(["k", "t"]).groupBy(F.window("t", "1 hour")).count(), "append"
    ),
    "limit": Base(lambda inputs: inputs.one.limit(20), "append"),
    "HDFS": Base(counted_base, conf={f"{STORE}.providerClass": HDFS, f"{STORE}.checkpointFormatVersion": "1"}),
    "processor": Base(total()),
    "groups": Base(groups),
}


@dataclass(frozen=True)
class Change:
    """A change of a query's code, mode or session."""

    base: str
    kinds: tuple[str, ...] = ()
    """The findings of the levels ``refused`` and ``changed`` that it should lead to."""
    build: Build | None = None
    """None: the code stays."""
    mode: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """Notes that it should lead to, among others."""
    no_store: tuple[str, ...] | None = None
    """The findings without a recorded plan, where they are others."""


def _dropped(inputs: Inputs) -> DataFrame:
    return inputs.late.dropDuplicates(["k"])


CHANGES: Mapping[str, Change] = {
    # An aggregate
    "nothing": Change("aggregate"),
    "column that nobody uses": Change("aggregate", build=over(lambda one: one.withColumn("unused", F.lit(1)))),
    "aggregate added": Change("aggregate", ("value_schema",), aggregated(MOST, COUNT, "sum(v)")),
    "aggregate removed": Change("aggregate", ("value_schema",), aggregated(MOST)),
    "aggregates reordered": Change(
        "aggregate", ("value_expression", "result"), aggregated(COUNT, MOST), no_store=("value_names",)
    ),
    "max to min": Change(
        "aggregate", ("value_expression",), aggregated("min(v) AS most", COUNT), no_store=("value_names",)
    ),
    "max(v) to max(2 * v)": Change(
        "aggregate", ("value_expression",), aggregated("max(v * 2) AS most", COUNT), no_store=()
    ),
    "another column of the same type": Change(
        "aggregate", ("value_expression",), aggregated("max(w) AS most", COUNT), no_store=()
    ),
    "value widened": Change("aggregate", ("value_schema",), aggregated("max(double(v)) AS most", COUNT)),
    "keys swapped": Change(
        "aggregate", ("key_expression", "result"), aggregated(MOST, COUNT, keys=("c", "k")), no_store=("key_names",)
    ),
    "key added": Change("aggregate", ("key_schema",), aggregated(MOST, COUNT, keys=("k", "c", "w"))),
    "key removed": Change("aggregate", ("key_schema",), aggregated(MOST, COUNT, keys=("k",))),
    "key of another type": Change("aggregate", ("key_schema",), aggregated(MOST, COUNT, keys=("k", "w"))),
    "key in upper case": Change(
        "aggregate", ("key_expression",), over(lambda one: one.withColumn("k", F.upper("k"))), no_store=()
    ),
    "key renamed": Change(
        "aggregate",
        ("result",),
        lambda inputs: inputs.one.withColumnRenamed("k", "kk").groupBy("kk", "c").agg(F.expr(MOST), F.expr(COUNT)),
        notes=("names_only",),
        no_store=("key_names",),
    ),
    "result renamed": Change("aggregate", ("result",), aggregated("max(v) AS maximum", COUNT), no_store=()),
    "result computed otherwise": Change("aggregate", ("result",), aggregated("max(v) + 1 AS most", COUNT), no_store=()),
    "filter added": Change("aggregate", ("condition",), over(lambda one: one.where("v > 10")), no_store=()),
    "filter of the result added": Change(
        "aggregate", ("result",), lambda inputs: counted(inputs.one).where("n > 100"), no_store=()
    ),
    "rows multiplied": Change(
        "aggregate",
        ("condition",),
        over(lambda one: one.withColumn("x", F.explode(F.array(F.lit(1), F.lit(2))))),
        no_store=(),
    ),
    "aggregation removed": Change("aggregate", ("operators",), lambda inputs: inputs.one, "append"),
    "deduplication instead": Change("aggregate", ("operators",), lambda inputs: inputs.one.dropDuplicates(["k", "c"])),
    "deduplication before it": Change(
        "window",
        ("operators",),
        lambda inputs: (
            inputs.late.dropDuplicates(["k", "t"]).groupBy(F.window("t", "1 hour"), "k").agg(F.expr("sum(v)"))
        ),
    ),
    "source added": Change("aggregate", ("sources",), lambda inputs: counted(inputs.one.union(inputs.stream("two")))),
    "source moved": Change("aggregate", ("source_moved",), lambda inputs: counted(inputs.stream("two"))),
    "source of another kind": Change(
        "aggregate",
        ("sources",),
        lambda inputs: counted(
            inputs.spark.readStream.format("rate")
            .load()
            .selectExpr("string(value) AS k", "string(value) AS c", "value AS v")
        ),
    ),
    "mode complete": Change("aggregate", ("mode",), mode="complete", no_store=()),
    "mode append": Change("aggregate", ("mode_unsupported",), mode="append"),
    "more shuffle partitions": Change(
        "aggregate", conf={"spark.sql.shuffle.partitions": "5"}, notes=("partitions_pinned",)
    ),
    "another provider": Change("aggregate", conf={f"{STORE}.providerClass": HDFS}, notes=("provider_pinned",)),
    "another checkpoint format": Change("aggregate", conf={f"{STORE}.checkpointFormatVersion": "1"}),
    "another time zone without dates": Change(
        "aggregate", conf={"spark.sql.session.timeZone": "Asia/Tokyo"}, notes=("time_zone_unused",)
    ),
    "a recorded setting": Change("aggregate", ("setting",), conf={"spark.sql.ansi.enabled": "false"}, no_store=()),
    "provider of the session, state in HDFS": Change("HDFS", notes=("provider_pinned",)),
    # Windows and sessions
    "window resized": Change("window", ("key_expression",), windows("30 minutes"), no_store=()),
    "window slides": Change("window", ("key_expression", "condition"), windows("1 hour", "30 minutes"), no_store=()),
    "watermark delay": Change("window", ("watermark",), windows(delay="90 minutes"), no_store=()),
    "another windowed value": Change("window", ("value_expression",), windows(value="sum(w)"), no_store=()),
    "append to update": Change("window", ("mode",), mode="update", no_store=()),
    "watermark removed": Change(
        "window",
        ("mode_unsupported",),
        lambda inputs: inputs.one.groupBy(F.window("t", "1 hour"), "k").agg(F.sum("v").alias("total")),
    ),
    "session gap": Change(
        "session",
        ("key_expression",),
        lambda inputs: inputs.late.groupBy("k", F.session_window("t", "50 minutes")).agg(F.count("*")),
    ),
    "session aggregate added": Change(
        "session",
        ("value_schema",),
        lambda inputs: inputs.late.groupBy("k", F.session_window("t", "5 minutes")).agg(F.count("*"), F.max("v")),
    ),
    # Deduplication, joins, limits
    "dedup key added": Change("dedup", ("key_schema",), lambda inputs: inputs.late.dropDuplicates(["k", "t", "c"])),
    "dedup within the watermark": Change(
        "dedup", ("operators",), lambda inputs: inputs.late.dropDuplicatesWithinWatermark(["k", "t"])
    ),
    "dedup over another column": Change(
        "dedup within",
        ("key_expression",),
        lambda inputs: inputs.late.withColumn("c", F.lower(F.concat("c", "k"))).dropDuplicatesWithinWatermark(
            ["k", "c"]
        ),
        no_store=(),
    ),
    "join: column added": Change(
        "join", ("value_schema",), joined(also=lambda left: left.withColumn("more", F.col("v") + 1))
    ),
    "join: another interval": Change("join", ("value_expression",), joined(within="2 hours"), no_store=()),
    "join: inner to left outer": Change("join", ("value_expression", "condition"), joined("left_outer"), no_store=()),
    "join: filter": Change("join", ("condition",), joined(also=lambda left: left.where("v % 2 = 0")), no_store=()),
    "limit raised": Change("limit", ("value_expression",), lambda inputs: inputs.one.limit(25), "append", no_store=()),
    "sources swapped": Change(
        "two sources", ("source_moved", "source_moved"), lambda inputs: counted(inputs.stream("two").union(inputs.one))
    ),
    "source removed": Change("two sources", ("sources",), lambda inputs: counted(inputs.one)),
    "another time zone": Change(
        "dates", ("time_zone",), conf={"spark.sql.session.timeZone": "Asia/Tokyo"}, no_store=()
    ),
    "upper operator removed": Change(
        "two operators", ("operators",), lambda inputs: inputs.very_late.dropDuplicates(["k", "t"])
    ),
    "upper operator changed": Change(
        "two operators",
        ("key_expression",),
        lambda inputs: inputs.very_late.dropDuplicates(["k", "t"]).groupBy(F.window("t", "2 hours")).count(),
        no_store=(),
    ),
    "lower operator changed": Change(
        "two operators",
        ("key_expression",),
        lambda inputs: (
            inputs.very_late.withColumn("k", F.upper("k"))
            .dropDuplicates(["k", "t"])
            .groupBy(F.window("t", "1 hour"))
            .count()
        ),
        no_store=(),
    ),
    # Python
    "processor: value to list": Change("processor", ("variable_kind",), total(kind="list")),
    "processor: wider value": Change("processor", ("value_schema",), total(total="n double")),
    "processor: variable removed": Change("processor", build=total(kept=False), notes=("variable_removed",)),
    "processor: time mode": Change("processor", ("processor_setting",), total("ProcessingTime")),
    "processor: key": Change("processor", ("key_expression",), total(key="c"), no_store=("key_names",)),
    "processor: only Python code": Change("processor", build=total(times=2), notes=("python_code",)),
    "groups: state column added": Change("groups", ("value_schema",), lambda inputs: groups(inputs, "n long, m long")),
}
