"""The report of a step: the epochs that were run, why it stopped, and what they changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias

from streamstate.errors import InvalidArgumentError, StreamStateError
from streamstate.replay.stepping.fork_capture import ForkCapture
from streamstate.snapshots.calls.html import joined, listed, paragraphs, tag
from streamstate.snapshots.spark.plan_graph import PlanGraph, graph_of
from streamstate.state_inspect import Diff, History

Stopped: TypeAlias = Literal["done", "breakpoint", "end", "error"]
"""Why a step ended: it ran all requested epochs; a breakpoint; the original has no further epoch; an error in the
query's own code, with ``until="error"``."""

InputOrigin: TypeAlias = Literal["original", "planned", "new", "none"]
"""Which input an epoch read: that of the original's epoch of the same number; the same, but the original planned the
epoch and never committed it; what the sources have now; none, because the state was only repartitioned."""

_INPUT_NOTES = {
    "original": "",
    "planned": " (never committed by the original)",
    "new": " (new input)",
    "none": " (only repartitioned)",
}
_SHOWN = 10


@dataclass(frozen=True)
class EpochRun:
    """One epoch that was run.

    Attributes:
        epoch: its number.
        seconds: how long it took, including its preparation.
        input_rows: the number of rows it read; None if Spark did not report it.
        watermark: the watermark in force during the epoch; None if there was none.
        input: which input it read: ``"original"``, ``"planned"``, ``"new"`` or ``"none"``.
        doubt: why it may have read fewer records than the original; None if it read the same.
    """

    epoch: int
    seconds: float
    input_rows: int | None
    watermark: datetime | None = None
    input: InputOrigin = "original"
    doubt: str | None = None
    _capture: ForkCapture | None = field(default=None, repr=False, compare=False)

    @property
    def changed(self) -> Mapping[str, int]:
        """The number of rows of each state table that the epoch changed; read on first use."""
        return {} if self._capture is None else self._capture.changed_rows(self.epoch)


@dataclass(frozen=True)
class StepReport:
    """The epochs that :meth:`streamstate.Checkpoint.step` ran.

    Attributes:
        checkpoint: the fork.
        epochs: the epochs that were run, ascending.
        epoch: the fork's epoch now.
        stopped: why it stopped: ``"done"``, ``"breakpoint"``, ``"end"`` or ``"error"``.
        reason: the same in a sentence.
        error: with ``until="error"``, what the query's own code raised in the epoch after :attr:`epoch`; else None.
    """

    checkpoint: str
    epochs: tuple[EpochRun, ...]
    epoch: int
    stopped: Stopped
    reason: str
    error: BaseException | None = None
    _execution: Any = field(default=None, repr=False, compare=False)
    _capture: ForkCapture | None = field(default=None, repr=False, compare=False)

    @property
    def last(self) -> EpochRun | None:
        """The last epoch that was run; None if none was."""
        return self.epochs[-1] if self.epochs else None

    @property
    def plan(self) -> PlanGraph | None:
        """The operators of the last epoch that was run, with their metrics, while Spark runs; None if none was run."""
        return None if self._execution is None else graph_of(self._execution)

    @property
    def history(self) -> History:
        """The fork's captured epochs: in the given store, or in a temporary one that lives as long as the report.

        Raises:
            InvalidArgumentError: no epoch was run.
        """
        return self._captured().history

    def diff(self, table: str | None = None) -> Diff:
        """Return the changes of the last epoch in a state table, with the cause if it is known (column ``_cause``).

        Args:
            table: the state table; may be left out if there is only one.

        Raises:
            InvalidArgumentError: no epoch was run.
            UnknownTableError: there is no such table.

        Example:
            >>> fork.step(build_query).diff().summary()
            0 added, 0 removed, 5 changed
            ...
        """
        last = self.epochs[-1].epoch if self.epochs else self.epoch
        return self._captured().history.diff(last - 1, last, table)

    def _captured(self) -> ForkCapture:
        if self._capture is None or not self.epochs:
            raise InvalidArgumentError(
                f"No epoch was run, so nothing changed: {self.reason}\nStep again, or look at the fork with"
                f" Checkpoint.capture."
            )
        return self._capture

    def __repr__(self) -> str:
        lines = [f"{self._title()}: {self.reason}"]
        lines += [f"  {_line(run)}" for run in self.epochs[-_SHOWN:]]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        headline = (tag("b", self._title()), f": {self.reason}")
        more = len(self.epochs) > _SHOWN
        note = f"The last {_SHOWN} of {len(self.epochs):,} epochs." if more else ""
        return joined(listed(headline, map(_line, self.epochs[-_SHOWN:])), paragraphs([note]))

    def _title(self) -> str:
        return f"{len(self.epochs):,} {'epoch' if len(self.epochs) == 1 else 'epochs'}, now at {self.epoch}"


def _line(run: EpochRun) -> str:
    try:
        changed = ", ".join(f"{table} {count:,}" for table, count in run.changed.items())
    except StreamStateError as error:  # the fork may have been deleted, and the report is still printed
        changed = f"unknown ({str(error).splitlines()[0]})"
    rows = "" if run.input_rows is None else f"{run.input_rows:,} rows in, "
    watermark = f"; watermark {run.watermark.isoformat(timespec='milliseconds')}" if run.watermark else ""
    note = _INPUT_NOTES[run.input] + ("" if run.doubt is None else f"; {run.doubt}")
    return f"epoch {run.epoch}: {rows}changed: {changed or 'nothing'}{watermark}; {run.seconds:.2f} s{note}"
