"""Another number of partitions for the state of a stopped query: spread anew, verified key by key, or taken back.

Partitioned operator state is one of the primitives of SEEP ("Integrating Scale Out and Fault Tolerance in Stream
Processing using Operator State Management", SIGMOD 2013): state that can be split by key can be scaled out and in.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamstate.recovery.checks import Before, check_partitions, check_stopped, checked
from streamstate.recovery.report import RescaleReport
from streamstate.recovery.unfinished import Unfinished, recover
from streamstate.snapshots.checkpoint import Checkpoint
from streamstate.snapshots.errors import RescaleError
from streamstate.snapshots.same_state import Comparison, StateAt, compared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Progress", "rescale"]

Progress = Callable[[str, float], None]
"""Is told what is being done, in a few words, and how much of the whole is done, from 0 to 1."""

_POLL_SECONDS = 0.2


def rescale(
    checkpoint: str | Path,
    partitions: int,
    *,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
) -> RescaleReport:
    """Give the state of a stopped query another number of partitions, more or fewer.

    Spark writes the state anew as one more epoch, which reads no input. Then every state table is compared, key by
    key, with what it was before. Where anything goes wrong, or somebody interrupts, the checkpoint is made what it
    was, to the byte; where the process is killed, the next rescale (or start in a notebook) does so. The query then
    goes on from its checkpoint as ever, with the new number of tasks.

    Args:
        checkpoint: the query's ``checkpointLocation``.
        partitions: how many partitions its state is to have, from 1 on.
        spark: the session to work with; by default the running one, or an embedded one.
        progress: is told what is being done and how much of it is done.

    Returns:
        What was done, with the epoch, the rows of each table, their spread before and after, the seconds it took.

    Raises:
        NotACheckpointError: where ``checkpoint`` is none.
        QueryError: where the query is running.
        CheckpointError: where its last epoch was not committed.
        NoStateError: where it keeps no state.
        UnsupportedStateError: where Spark cannot spread its kind of state.
        InvalidArgumentError: where the number cannot be meant, or is what it has.
        RescaleError: where Spark failed, or the new state was not the same; the checkpoint is as it was.

    Example:
        >>> ss.rescale("checkpoints/delays", 8).partitions  # doctest: +SKIP
        (2, 8)
    """
    from streamstate.spark_session import session

    began = time.monotonic()
    check_partitions(partitions)
    spark = spark or session()
    files = Checkpoint(checkpoint, spark)
    check_stopped(files, spark)
    recover(files, spark)
    before = checked(files, spark, partitions)
    return _Rescaling(files, spark, before, partitions, progress or _quiet, began).run()


def _quiet(_line: str, _share: float) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True)
class _Rescaling:
    """One rescale of a query that was found to be right for it."""

    checkpoint: Checkpoint
    spark: SparkSession
    before: Before
    partitions: int
    progress: Progress
    began: float

    def run(self) -> RescaleReport:
        """Spread, verify, report; or leave everything as it was."""
        self.progress("noting what is there", 0.0)
        try:
            noted = Unfinished.begin(
                self.checkpoint, self.spark, self.before.epoch, self.before.partitions, self.partitions
            )
            report = self._changed()
            self.progress("done", 1.0)
            noted.done(self.checkpoint, self.spark)
        except BaseException as error:
            self.progress("taking everything back", 0.0)
            recover(self.checkpoint, self.spark)
            if isinstance(error, Exception) and not isinstance(error, RescaleError):
                raise RescaleError.taken_back(self.checkpoint.path, self.before.partitions, error) from error
            raise
        return report

    def _changed(self) -> RescaleReport:
        self.progress(f"spreading the state over {self.partitions} partitions", 0.05)
        at = time.monotonic()
        epoch = repartition(self.spark, self.checkpoint, self.before, self.partitions)
        spread = time.monotonic()
        self.progress("comparing it with what it was, key by key", 0.5)
        comparison = verify(self.spark, self.checkpoint.path, self.before.epoch, epoch)
        if comparison.differences:
            raise RescaleError.not_the_same(self.checkpoint.path, self.before.partitions, comparison.differences)
        verified = time.monotonic()
        return RescaleReport(
            checkpoint=self.checkpoint.path,
            partitions=(self.before.partitions, self.partitions),
            epoch=epoch,
            rows={name: sum(rows) for name, rows in comparison.other_spread.items()},
            spread_before=comparison.spread,
            spread_after=comparison.other_spread,
            seconds_spreading=spread - at,
            seconds_verifying=verified - spread,
            seconds=verified - self.began,
        )


def verify(spark: SparkSession, checkpoint: str, before: int, after: int) -> Comparison:
    """The state before beside the state after."""
    return compared(spark, StateAt(checkpoint, before), StateAt(checkpoint, after))


def repartition(spark: SparkSession, checkpoint: Checkpoint, before: Before, partitions: int) -> int:
    """Have Spark write the state anew as one more epoch; the only place that knows how.

    Spark's interface for it is private and may change with any version of Spark.

    Returns:
        The epoch.
    """
    session = spark.newSession()
    for key, value in before.conf.items():
        if session.conf.isModifiable(key):
            session.conf.set(key, value)
    session.conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", checkpoint.format_version(before.epoch))
    # Exactly once: never past an epoch that was begun and not committed, whose results a sink may have.
    manager: Any = session._streamingCheckpointManager  # noqa: SLF001 (there is no public way)
    _interruptibly(spark, lambda: manager.repartition(checkpoint.path, partitions, enforce_exactly_once_sink=True))
    after = checkpoint.committed()[-1]
    if after != before.epoch + 1 or checkpoint.partitions(after) != partitions:
        raise RescaleError(
            f"After Spark spread the state of {checkpoint.path} anew, its newest epoch is {after} with"
            f" {checkpoint.partitions(after)} partitions, not {before.epoch + 1} with {partitions}."
        )
    return after


def _interruptibly(spark: SparkSession, work: Callable[[], Any]) -> None:
    """Do something in the JVM so that an interrupt ends it there too, before it is told here.

    A call that is interrupted while it waits for the JVM would leave the JVM writing.
    """
    tag = f"streamstate-rescale-{id(work)}"
    failed: list[BaseException] = []

    def run() -> None:
        try:
            spark.addTag(tag)
            work()
        except BaseException as error:  # noqa: BLE001 (raised again where it was asked for)
            failed.append(error)

    worker = threading.Thread(target=run, name="streamstate-rescale", daemon=True)
    worker.start()
    try:
        while worker.is_alive():
            worker.join(_POLL_SECONDS)
    except BaseException:
        while worker.is_alive():
            spark.interruptTag(tag)
            worker.join(_POLL_SECONDS)
        raise
    if failed:
        raise failed[0]
