"""Several steps, one after the other, until something stops them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from streamstate.debugger.breakpoints import Breakpoint
from streamstate.debugger.changes import Changes
from streamstate.debugger.report import EpochRun, StepReport, Stopped
from streamstate.debugger.stepper import End, Stepped, Stepper
from streamstate.snapshots.errors import QueryError

__all__ = ["Progress", "Steps"]

Progress: TypeAlias = "Callable[[str, float | None], object]"
"""Is told in words what is being done, and which share of the epochs is done (None: not known)."""


@dataclass
class Steps:
    """Runs the epochs of one call.

    Args:
        stepper: runs one.
        changes: what they changed.
        point: where to stop; None: nowhere.
        report_errors: whether an error of the query is reported, not raised.
        capture: whether each epoch is captured at once.
        progress: is told how far it is.
    """

    stepper: Stepper
    changes: Changes
    point: Breakpoint | None = None
    report_errors: bool = False
    capture: bool = False
    progress: Progress | None = None
    _runs: list[EpochRun] = field(default_factory=list)
    _execution: Any = None

    def run(self, epochs: int) -> StepReport:
        """Run so many epochs at most."""
        with self.stepper.alone():
            if self.capture or (self.point is not None and self.point.reads_state):
                self._look_at_start()
            report = self._until_something(epochs)
        if self.capture:
            self.changes.tidy()
        return report

    def _look_at_start(self) -> None:
        """Capture where the fork stands, and find mistakes in the breakpoint before anything runs."""
        if self.stepper.epoch < 0:
            return
        self.changes.capture()
        if self.point is not None and self.point.reads_state:
            self.point.check(self.changes.history)

    def _until_something(self, epochs: int) -> StepReport:
        for done in range(epochs):
            self._tell(f"Epoch {self.stepper.epoch + 1}", done / epochs)
            try:
                stepped = self.stepper.next()
            except QueryError as error:
                if not self.report_errors:
                    raise
                return self._report("error", str(error), error)
            if isinstance(stepped, End):
                return self._report("end", stepped.reason)
            self._add(stepped)
            if (why := self._hit()) is not None:
                return self._report("breakpoint", why)
        return self._report("done", f"Ran {epochs:,} {'epoch' if epochs == 1 else 'epochs'}.")

    def _add(self, stepped: Stepped) -> None:
        number = stepped.next.number
        progress = stepped.ran.progress if stepped.ran else None
        self._execution = stepped.ran.execution if stepped.ran else None
        self.changes.ran(number, progress)
        if self.capture:
            self.changes.capture()
        planned = self.stepper.fork.planned(number)
        self._runs.append(
            EpochRun(
                number,
                stepped.seconds,
                progress.input_rows if progress else None,
                planned.watermark if planned else None,
                stepped.next.input,
                self.changes,
            )
        )

    def _hit(self) -> str | None:
        return None if self.point is None else self.point.hit(self._report("done", "So far."))

    def _report(self, stopped: Stopped, reason: str, error: BaseException | None = None) -> StepReport:
        runs = tuple(self._runs)
        return StepReport(
            self.stepper.path, runs, self.stepper.epoch, stopped, reason, error, self._execution, self.changes
        )

    def _tell(self, line: str, share: float) -> None:
        if self.progress is not None:
            self.progress(line, share)
