"""Planning an epoch of a streaming query as Spark does, with its time and its settings. Nothing is run.

The first epoch after a restart also needs the settings that the query is pinned to, and the state's unique ids.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.spark.catalyst import kind_of
from streamstate.snapshots.spark.plan_building import java_output_mode
from streamstate.snapshots.spark.private_classes import new, scala_object

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EXECUTION = "org.apache.spark.sql.execution."
_RUNTIME = "org.apache.spark.sql.execution.streaming.runtime."
_STATEFUL = "org.apache.spark.sql.execution.streaming.operators.stateful."
METADATA = "org.apache.spark.sql.execution.streaming.checkpointing.OffsetSeqMetadata"
FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"


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
    uuid = jvm.java.util.UUID.randomUUID
    propagator = scala_object(jvm, f"{_RUNTIME}WatermarkPropagator").apply(java.sessionState().conf())
    previous = jvm.scala.Option.empty() if before is None else jvm.scala.Option.apply(_metadata(spark, before))
    of_query = java_output_mode(jvm, mode), state, uuid(), uuid()
    of_epoch = epoch, previous, _metadata(spark, now), propagator
    first_batch = (False,) if restart_from is None else (True, restart_from)
    return new(jvm, f"{_RUNTIME}IncrementalExecution", java, analyzed, *of_query, *of_epoch, *first_batch)


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


def has_current_time(jvm: Any, node: Any) -> bool:
    """Return whether a plan or an expression has ``current_timestamp()`` or the like."""
    return bool(node.containsPattern(jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()))


class _PartialFunction:
    """A ``scala.PartialFunction`` that asks Python."""

    def __init__(self, change: Callable[[Any], Any | None]) -> None:
        self._change = change

    def apply(self, value: Any) -> Any:
        return self._change(value)

    def isDefinedAt(self, value: Any) -> bool:  # noqa: N802 (Scala calls it by this name)
        return self._change(value) is not None

    def applyOrElse(self, value: Any, default: Any) -> Any:  # noqa: N802
        made = self._change(value)
        return default.apply(value) if made is None else made

    class Java:
        implements = ("scala.PartialFunction",)


def at_time(jvm: Any, plan: Any, clock: EpochClock) -> Any:
    """Return the plan with the epoch's time for ``current_timestamp()`` and the like, as Spark puts it there."""
    if not has_current_time(jvm, plan):
        return plan
    from pyspark import SparkContext
    from pyspark.java_gateway import ensure_callback_server_started

    # Python is asked about each expression, so only where that is needed.
    gateway: Any = SparkContext._gateway  # noqa: SLF001 (PySpark's own way)
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    batch_time = jvm.org.apache.spark.sql.catalyst.expressions.CurrentBatchTimestamp

    def replaced(expression: Any) -> Any | None:
        kind = kind_of(expression)
        if kind == "CurrentTimestamp":
            zone = jvm.scala.Option.apply("Dummy TimeZoneId")
            return batch_time(clock.began_at, expression.dataType(), zone).toLiteral()
        if kind in ("LocalTimestamp", "CurrentDate"):
            return batch_time(clock.began_at, expression.dataType(), expression.timeZoneId()).toLiteral()
        return None

    return plan.transformAllExpressions(_PartialFunction(replaced))


def pinned_session(
    spark: SparkSession, checkpoint: CheckpointFiles, epoch: int, conf: Mapping[str, str]
) -> SparkSession:
    """Return a separate session with the settings that a query is pinned to.

    Args:
        spark: the session to copy.
        checkpoint: the query's.
        epoch: the epoch whose state is the last.
        conf: the pinned settings.
    """
    from pyspark.sql import SparkSession as Session

    java: Any = spark._jsparkSession
    session = Session(spark.sparkContext, java.cloneSession())
    # Spark also knows which values the settings had that an older version did not pin yet.
    metadata = scala_object(spark._jvm, METADATA)
    pinned = metadata.apply(json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": dict(conf)}))
    made: Any = session._jsparkSession
    takes_runtime_conf = spark.version.startswith("3.")
    metadata.setSessionConf(pinned, made.conf() if takes_runtime_conf else made.sessionState().conf())
    # As Spark sets it for streams.
    settings = {**conf, FORMAT: checkpoint.format_version(epoch), "spark.sql.adaptive.enabled": "false"}
    for name, value in settings.items():
        if session.conf.isModifiable(name):
            session.conf.set(name, value)
    return session


def state_ids(jvm: Any, ids: Mapping[str, Sequence[Sequence[str]]]) -> Any:
    """Return unique ids of an epoch's state files, as the commit log has them, in a mutable map of Scala."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway  # noqa: SLF001 (PySpark's own way)
    found = jvm.scala.collection.mutable.HashMap()
    for operator, partitions in ids.items():
        stores = gateway.new_array(jvm.String, len(partitions), max(map(len, partitions), default=0))
        for at, names in enumerate(partitions):
            for number, name in enumerate(names):
                stores[at][number] = name
        found.put(int(operator), stores)
    return found


def prepared_plan(jvm: Any, session: Any, plan: Any) -> Any:
    """Return a physical plan, ready to run; ``session`` is Spark's own."""
    return scala_object(jvm, f"{_EXECUTION}QueryExecution").prepareExecutedPlan(session, plan)


def physical_plan(jvm: Any, session: Any, plan: Any) -> Any:
    """Return the physical plan of an analysed one; ``session`` is Spark's own."""
    mode = scala_object(jvm, f"{_EXECUTION}CommandExecutionMode").ALL()
    return session.sessionState().executePlan(plan, mode).sparkPlan()


def event_time_bound(jvm: Any, output: Any, watermark: Any) -> Any:
    """Return the condition that an event time among some attributes is before a watermark, as an option of Scala."""
    support = scala_object(jvm, f"{_STATEFUL}WatermarkSupport")
    several = False  # event-time columns on one side are an error
    return support.watermarkExpression(support.findEventTimeColumn(output, several), watermark)
