"""Running a query for exactly one epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamstate.debugger.failures import plain
from streamstate.interrupted_calls import spare_other_calls
from streamstate.snapshots.plan_graph import last_execution
from streamstate.snapshots.progress import BatchProgress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from streamstate.debugger.sinks import Sink

__all__ = ["Ran", "active_queries", "run_once", "with_settings"]

# How often Python looks up from its waiting, so that an interrupt is noticed.
_LOOK_UP = 1


@dataclass(frozen=True)
class Ran:
    """What Spark told of a run."""

    progress: BatchProgress | None
    """None where Spark did not say."""
    execution: Any
    """Spark's own object of the batch; see :mod:`streamstate.snapshots.plan_graph`."""


def run_once(frame: DataFrame, checkpoint: str, epoch: int, *, mode: str, sink: Sink, conf: Mapping[str, str]) -> Ran:
    """Run the one epoch that waits in a checkpoint; an interrupt stops the query before it is told here.

    A query with this trigger runs one batch, and Spark plans another, even one without data, only in the next.

    Args:
        frame: the query.
        checkpoint: its checkpoint.
        epoch: the epoch that is to be run, for messages.
        mode: the output mode.
        sink: where results go.
        conf: settings for this run alone.

    Raises:
        QueryError: the query cannot be started, or failed.
    """
    from pyspark.errors import PySparkException

    try:
        writer = sink.to(frame.writeStream).outputMode(mode).option("checkpointLocation", checkpoint)
        writer = writer.trigger(once=True)
        with with_settings(frame.sparkSession, conf):
            query = writer.start()
        _wait(query)
    except PySparkException as error:
        raise plain(error, checkpoint, epoch) from error
    return Ran(_progress(query, epoch), last_execution(query))


def _wait(query: StreamingQuery) -> None:
    spare_other_calls()
    try:
        while not query.awaitTermination(_LOOK_UP):
            pass
    except BaseException:
        query.stop()
        raise


def _progress(query: StreamingQuery, epoch: int) -> BatchProgress | None:
    event: Any = query._jsq.lastProgress()
    if event is None or int(event.batchId()) != epoch or not event.durationMs().containsKey("addBatch"):
        return None
    return BatchProgress(str(event.runId()), int(event.numInputRows()))


@contextmanager
def with_settings(spark: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    """Settings that a query takes over when it is built and started, as they were again afterwards."""
    before = {key: spark.conf.get(key, None) for key in conf}
    changed = {key: value for key, value in conf.items() if before[key] != value}
    try:
        for key, value in changed.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key in changed:
            _restore(spark, key, before[key])


def _restore(spark: SparkSession, key: str, value: str | None) -> None:
    if value is None:
        spark.conf.unset(key)
    else:
        spark.conf.set(key, value)


def active_queries(spark: SparkSession) -> set[str]:
    """The ids of the queries that run in this Spark application, in whichever session."""
    session: Any = spark._jsparkSession
    return {str(one) for one in session.sharedState().activeStreamingQueries().keySet().toArray()}
