"""Running the next epochs of a fork until something stops them: :func:`step`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from streamstate.errors import QueryError
from streamstate.replay.stepping.breakpoints import ERROR, Breakpoint, Until, breakpoint_at
from streamstate.replay.stepping.fork_capture import ForkCapture
from streamstate.replay.stepping.fork_runner import (
    CompletedEpoch,
    ForkRunner,
    NoNextEpoch,
    Watermark,
    original_of,
)
from streamstate.replay.stepping.run_batch import ForkSink
from streamstate.replay.stepping.step_report import EpochRun, StepReport, Stopped
from streamstate.snapshots.calls.checks import BuildQuery, whole_number
from streamstate.snapshots.calls.progress_callback import ProgressCallback, long_call
from streamstate.snapshots.checkpoint.filesystem import location
from streamstate.snapshots.spark.session import given_session
from streamstate.snapshots.store.layout import Layout


@long_call("The fork is at its last complete epoch.")
def step(
    build_query: BuildQuery,
    checkpoint: str | os.PathLike[str],
    *,
    original: str | os.PathLike[str] | None = None,
    epochs: int = 1,
    until: Until = None,
    mode: str = "update",
    store: str | os.PathLike[str] | None = None,
    name: str | None = None,
    new_input: bool = False,
    spark: SparkSession | None = None,
    progress: ProgressCallback | None = None,
    sink: str = "noop",
    watermark: Watermark | None = None,
    shared: Mapping[str, Any] | None = None,
) -> StepReport:
    """Run exactly the next epoch of a fork, or the next few, one at a time, with the original's input.

    :meth:`streamstate.Checkpoint.step` describes the arguments and errors.
    """
    limit = whole_number(epochs, "epochs")
    point = breakpoint_at(until)
    target = ForkSink.parse(sink)
    path = location(os.fspath(checkpoint))
    spark = given_session(spark)
    runner = ForkRunner(
        build_query,
        path,
        original_of(path, original, spark),
        spark,
        mode=mode,
        sink=target,
        new_input=new_input,
        watermark=watermark,
        shared=dict(shared or {}),
        store=None if store is None else Layout.at(os.fspath(store)),
    )
    capture = ForkCapture(path, None if store is None else os.fspath(store), name, spark)
    return EpochLoop(runner, capture, point, until == ERROR, store is not None, progress).run(limit)


@dataclass
class EpochLoop:
    """Runs the epochs of one call, until a breakpoint, an error, or the end of the original.

    Args:
        report_errors: whether an error of the query is reported instead of raised.
        capture_each: whether each epoch is captured right after it ran.
    """

    runner: ForkRunner
    capture: ForkCapture
    point: Breakpoint | None = None
    report_errors: bool = False
    capture_each: bool = False
    progress: ProgressCallback | None = None
    _runs: list[EpochRun] = field(default_factory=list)
    _execution: Any = None

    def run(self, epochs: int) -> StepReport:
        """Run at most this many epochs."""
        with self.runner.exclusively():
            start = max(self.runner.epoch, 0)  # an edit of the fork's state is part of this epoch
            if self.capture_each or (self.point is not None and self.point.reads_state):
                self._prepare()
            report = self._run_epochs(epochs)
        if self.capture_each:
            self.capture.describe(self.runner.build_query, self.runner.mode, start)
            self.capture.tidy()
        return report

    def _prepare(self) -> None:
        """Capture the fork as it is, and find mistakes in the breakpoint before anything runs."""
        if self.runner.epoch < 0:
            return
        self.capture.catch_up()
        if self.point is not None and self.point.reads_state:
            self.point.check(self.capture.history)

    def _run_epochs(self, epochs: int) -> StepReport:
        for done in range(epochs):
            if self.progress is not None:
                self.progress(f"Epoch {self.runner.epoch + 1}", done / epochs)
            try:
                completed = self.runner.run_next()
            except QueryError as error:
                if not self.report_errors:
                    raise
                return self._report("error", str(error), error)
            if isinstance(completed, NoNextEpoch):
                return self._report("end", completed.reason)
            self._add(completed)
            if self.point is not None and (why := self.point.hit(self._report("done", "So far."))) is not None:
                return self._report("breakpoint", why)
        return self._report("done", f"Ran {epochs:,} {'epoch' if epochs == 1 else 'epochs'}.")

    def _add(self, completed: CompletedEpoch) -> None:
        number, progress = completed.epoch.number, completed.progress
        self._execution = completed.execution
        self.capture.note_epoch(number, progress)
        if self.capture_each:
            self.capture.catch_up()
        planned = self.runner.fork.planned(number)
        self._runs.append(
            EpochRun(
                number,
                completed.seconds,
                progress.input_rows if progress else None,
                planned.watermark if planned else None,
                completed.epoch.input,
                completed.doubt,
                self.capture,
            )
        )

    def _report(self, stopped: Stopped, reason: str, error: BaseException | None = None) -> StepReport:
        runs = tuple(self._runs)
        return StepReport(
            self.runner.path, runs, self.runner.epoch, stopped, reason, error, self._execution, self.capture
        )
