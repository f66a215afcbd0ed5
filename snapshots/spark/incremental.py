"""Planning an epoch of a streaming query as Spark does. Nothing is run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.spark.catalyst import scala_object

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RUNTIME = "org.apache.spark.sql.execution.streaming.runtime."
METADATA = "org.apache.spark.sql.execution.streaming.checkpointing.OffsetSeqMetadata"


@dataclass(frozen=True)
class EpochClock:
    """The facts of an epoch that Spark plans with, apart from its offsets."""

    watermark: int = 0
    """In milliseconds since 1970; 0 if there is none."""
    began_at: int = 0
    """The epoch's processing time, in milliseconds since 1970."""
    conf: Mapping[str, str] = field(default_factory=dict)


_NO_TIME = EpochClock()


def incremental(
    spark: SparkSession,
    analyzed: Any,
    mode: str,
    *,
    epoch: int = 0,
    before: EpochClock | None = None,
    now: EpochClock = _NO_TIME,
    state: str = "none",
    restart_from: Any = None,
) -> Any:
    """Spark's execution of an epoch.

    Args:
        spark: the session.
        analyzed: the query's analysed plan.
        mode: the output mode.
        epoch: its number.
        before: the times of the epoch before; None if there is none.
        now: the times of the epoch.
        state: the folder with the state of all operators.
        restart_from: a mutable Scala map with the unique ids of the state's files of the epoch before, by operator
            (empty in checkpoint format 1), to plan the first epoch after a restart, which writes into the folder; None
            to plan one that is not the first: that reads and writes nothing.
    """
    jvm: Any = spark._jvm
    java: Any = spark._jsparkSession
    package = jvm.org.apache.spark.sql.execution.streaming.runtime
    defaults = scala_object(jvm, _RUNTIME + "IncrementalExecution")
    uuid = jvm.java.util.UUID.randomUUID
    propagator = scala_object(jvm, _RUNTIME + "WatermarkPropagator").apply(java.sessionState().conf())
    rest = [getattr(defaults, f"$lessinit$greater$default${at}")() for at in range(12, 17)]
    if restart_from is not None:
        rest[0] = restart_from
    output_mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, mode.capitalize())()
    first_batch = restart_from is not None
    previous = jvm.scala.Option.empty() if before is None else jvm.scala.Option.apply(_metadata(spark, before))
    return package.IncrementalExecution(
        java, analyzed, output_mode, state, uuid(), uuid(), epoch, previous, _metadata(spark, now), propagator,
        first_batch, *rest,
    )  # fmt: skip


def pinned_settings(spark: SparkSession) -> dict[str, str]:
    """Return the settings, as a session has them, to which the first epoch of a query pins it."""
    return dict(_described(spark, _NO_TIME)["conf"])


def _metadata(spark: SparkSession, clock: EpochClock) -> Any:
    said = _described(spark, clock)
    said["conf"] |= {name: value for name, value in clock.conf.items() if name in said["conf"]}
    return scala_object(spark._jvm, METADATA).apply(json.dumps(said))


def _described(spark: SparkSession, clock: EpochClock) -> dict[str, Any]:
    java: Any = spark._jsparkSession
    made = scala_object(spark._jvm, METADATA)
    said: dict[str, Any] = json.loads(made.apply(clock.watermark, clock.began_at, java.conf()).json())
    # Settings that nobody set come out as null, and planning fails on them.
    said["conf"] = {name: spark.conf.get(name) if value is None else value for name, value in said["conf"].items()}
    return said
