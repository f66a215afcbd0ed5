"""Rescaling a query that this process runs: its input waits in the source while its state is repartitioned."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from streamstate.errors import QueryError, SparkConnectError
from streamstate.operations.rescaling.rescale import RescaleReport
from streamstate.operations.rescaling.rescale import rescale as rescale_stopped
from streamstate.operations.supervision.restart_policy import failure_of, waits
from streamstate.replay.repartition import check_repartitionable
from streamstate.snapshots.calls.checks import whole_number
from streamstate.snapshots.calls.progress_callback import ProgressCallback, long_call, silent
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.spark.state_comparison import StateAt, compare_states
from streamstate.snapshots.spark.state_rewriting import require_state_writing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from streamstate.launch.launch import Launch
    from streamstate.operations.supervision.supervise import Supervised
    from streamstate.snapshots.capture.follow import Capture

_POLL_SECONDS = 0.005
# How long to wait for the end of an epoch, rather than to interrupt it, which costs a start more.
_PATIENCE = 30.0
# How long the capture leaves the processors to the first epoch.
_CAPTURE_WAITS = 10.0


@long_call("The query runs with its old number of partitions, unless it was started with the new one already.")
def rescale(
    launch: Launch,
    query: StreamingQuery,
    path: str,
    capture: Capture,
    partitions: int,
    *,
    supervised: Supervised | None,
    started: Callable[[StreamingQuery, Launch], object],
    progress: ProgressCallback | None = None,
) -> RescaleReport:
    """Give a running query another number of partitions, as :meth:`streamstate.Running.rescale`.

    Args:
        launch: how it was started.
        query: Spark's handle.
        path: its checkpoint.
        capture: its capture, which pauses.
        partitions: the new number.
        supervised: its supervision, which pauses.
        started: called with the query as it was started again.
        progress: called with a message and the completed share of the work.
    """
    whole_number(partitions, "partitions")
    spark = launch.classic_session
    if spark is None:
        raise SparkConnectError(
            f"{launch.name} runs in a Spark Connect server, in which state cannot be rewritten.\n"
            "Stop it, and call Checkpoint.rescale where the checkpoint's files are."
        )
    if launch.sink.needs_every_epoch:
        raise QueryError(
            f"{launch.name} writes files with Spark's {launch.sink.format} sink, which fails after a rescale: its log "
            "lacks the epoch that the rescale adds.\n"
            "Use a function as sink, which writes the rows of each epoch to a folder of its own."
        )
    require_state_writing(spark, "Repartitioning state")
    files = CheckpointFiles(path, spark)
    committed = files.committed()
    launch.check_resumes(committed)
    if not committed:
        raise QueryError(f"{launch.name} has committed no epoch yet.\nWait for its first: running.wait(epoch=0).")
    check_repartitionable(files, spark, committed[-1], partitions)
    launch.check_sources()
    _rehearse(spark, files, committed[-1], progress or silent)
    return _StandStill(launch, query, files, capture, supervised, started, partitions, progress or silent).run()


def _rehearse(spark: SparkSession, files: CheckpointFiles, epoch: int, progress: ProgressCallback) -> None:
    """Compare the state with itself while the query still runs: Spark compiles now what the comparison needs then."""
    progress("preparing the comparison", None)
    with suppress(Exception):  # the query may purge the epoch meanwhile; the comparison itself fails if it has to
        compare_states(spark, StateAt(files.path, epoch), StateAt(files.path, epoch))


def wait_between_epochs(query: StreamingQuery, checkpoint: CheckpointFiles) -> bool:
    """Wait until no epoch is in progress, if that can be seen in time; False if one is, or the query has ended."""
    deadline = time.monotonic() + (0 if checkpoint.remote else _PATIENCE)
    while not (between := checkpoint.begun()[-1:] == checkpoint.committed()[-1:]) and query.isActive:
        if time.monotonic() > deadline:
            break
        time.sleep(_POLL_SECONDS)
    return between


def finish_epoch(launch: Launch, checkpoint: CheckpointFiles, say: Callable[[str], object]) -> StreamingQuery | None:
    """Commit the epoch that the stop interrupted: its results may have reached the sink already.

    Returns:
        The query that did it; None if no epoch was interrupted.
    """
    if checkpoint.begun()[-1:] == checkpoint.committed()[-1:]:
        return None
    say(f"{launch.name}: finishing the interrupted epoch")
    query = replace(launch, trigger="once").start()
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return query


@dataclass
class _StandStill:
    """One rescale, after all checks that need no stop."""

    launch: Launch
    query: StreamingQuery
    files: CheckpointFiles
    capture: Capture
    supervised: Supervised | None
    started: Callable[[StreamingQuery, Launch], object]
    partitions: int
    progress: ProgressCallback
    phases: dict[str, float] = field(default_factory=dict)
    began: float = 0.0
    finished: StreamingQuery | None = None

    def run(self) -> RescaleReport:
        """Stop the query, rescale it, and start it again; as it was, if anything fails."""
        with nullcontext() if self.supervised is None else self.supervised.paused(), self._held():
            try:
                with self._phase("stopping"):
                    self._stop()
                spark, then = self.launch.classic_session, replace(self.launch, partitions=self.partitions)
                report = rescale_stopped(
                    self.files.path,
                    self.partitions,
                    spark=spark,
                    progress=self.progress,
                    then=lambda: self._start(then),
                )
                self.phases |= {**report.phases, "starting": self.phases.pop("starting")}
            except BaseException:
                if self.began and not self.query.isActive:
                    self.progress("starting the query as it was", None)
                    self._start(self.launch)
                raise
            with self._phase("first epoch"):
                self._wait_for_epoch(report.epoch)
        return replace(report, seconds_standing=time.monotonic() - self.began, phases=self.phases)

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Keep the capture going without a query, and then with the new one."""
        self.capture.pause()
        try:
            yield
        finally:
            self._resume_capture()

    def _resume_capture(self) -> None:
        # A supervised query is followed by its checkpoint.
        self.capture.resume(self.query if self.supervised is None else None, after=self.finished)

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        self.phases[name] = time.monotonic() - started

    def _stop(self) -> None:
        """Stop the query between two epochs if possible; the stand-still begins with its last commit."""
        self.progress("waiting for the end of an epoch", 0.0)
        between = wait_between_epochs(self.query, self.files)
        if (failure := None if self.query.isActive else failure_of(self.query)) is not None:
            raise QueryError(f"{self.launch.name} failed before it could be rescaled: {failure}")
        self.began = time.monotonic()
        if not between and (last := self.files.committed_at(self.files.committed()[-1])) is not None:
            self.began -= max((datetime.now(UTC) - last).total_seconds(), 0.0)
        self.query.stop()
        self.finished = finish_epoch(self.launch, self.files, lambda line: self.progress(line, 0.0))

    def _start(self, launch: Launch) -> None:
        with self._phase("starting"):
            try:
                self.query = launch.start()
            except BaseException:
                self._stop_again()  # an interrupt may come after Spark has started it
                raise
        self.started(self.query, launch)

    def _stop_again(self) -> None:
        for active in self.launch.frame.sparkSession.streams.active:
            if active.id == self.query.id:
                active.stop()

    def _wait_for_epoch(self, epoch: int) -> None:
        """Wait for the first epoch after one, or until the query has none to run."""
        self.progress("waiting for the first epoch", 1.0)
        held_until = time.monotonic() + _CAPTURE_WAITS
        while self.files.committed()[-1] <= epoch:
            if not self.query.isActive:
                if (failure := failure_of(self.query)) is None:
                    return  # it was stopped, or has read all there is
                raise QueryError(
                    f"{self.launch.name} has {self.partitions} partitions, verified, but failed in its first epoch:"
                    f" {failure}\nFix the cause and restart it; it continues after its last committed epoch."
                )
            if waits(self.query):
                return
            if time.monotonic() > held_until:
                self._resume_capture()
                held_until = float("inf")
            time.sleep(_POLL_SECONDS)
