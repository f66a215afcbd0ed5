"""What steps did: the epochs that were run, why they stopped, and what they changed."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from streamstate.snapshots.errors import InvalidArgumentError, StreamStateError
from streamstate.snapshots.plan_graph import graph_of

if TYPE_CHECKING:
    from streamstate.debugger.changes import Changes
    from streamstate.snapshots.plan_graph import PlanGraph
    from streamstate.state_inspect import Diff, History

__all__ = ["EpochRun", "Input", "StepReport", "Stopped"]

Stopped: TypeAlias = Literal["done", "breakpoint", "end", "error"]
"""Why steps ended: all that were asked for were done; a breakpoint; the original has no further epoch; an error in the
query's own code, where that was waited for."""

Input: TypeAlias = Literal["original", "planned", "new", "none"]
"""Whose input an epoch read: that of the original's epoch of the same number; the same where the original had planned
the epoch and never committed it; what the sources had now; none, where the state was only spread anew."""


@dataclass(frozen=True)
class EpochRun:
    """One epoch that was run.

    Attributes:
        epoch: its number.
        seconds: how long it took, its preparation included.
        input_rows: rows that it read; None where Spark did not say.
        watermark: the watermark in force during the epoch; None where there was none.
        input: whose input it read.
    """

    epoch: int
    seconds: float
    input_rows: int | None
    watermark: datetime | None = None
    input: Input = "original"
    _changes: Changes | None = field(default=None, repr=False, compare=False)

    @property
    def changed(self) -> Mapping[str, int]:
        """How many rows of each state table the epoch changed; read when first asked for."""
        return {} if self._changes is None else self._changes.changed(self.epoch)


@dataclass(frozen=True)
class StepReport:
    """What :func:`streamstate.step` did.

    Attributes:
        checkpoint: the fork.
        epochs: the epochs that were run, ascending.
        epoch: the epoch at which the fork stands now.
        stopped: why it stopped: ``"done"``, ``"breakpoint"``, ``"end"`` or ``"error"``.
        reason: the same in a sentence.
        error: what the query's own code raised in the epoch after :attr:`epoch`, with ``until="error"``; else None.
    """

    checkpoint: str
    epochs: tuple[EpochRun, ...]
    epoch: int
    stopped: Stopped
    reason: str
    error: BaseException | None = None
    _execution: Any = field(default=None, repr=False, compare=False)
    _changes: Changes | None = field(default=None, repr=False, compare=False)

    @property
    def last(self) -> EpochRun | None:
        """The last epoch that was run; None where none was."""
        return self.epochs[-1] if self.epochs else None

    @property
    def plan(self) -> PlanGraph | None:
        """The operators of the last epoch that was run, with their figures, while Spark runs; None where none was."""
        return None if self._execution is None else graph_of(self._execution)

    @property
    def history(self) -> History:
        """The fork's captured epochs: in the store that was given, or in one that goes with the report.

        Raises:
            InvalidArgumentError: where no epoch was run.
        """
        return self._captured().history

    def diff(self, table: str | None = None) -> Diff:
        """What the last epoch changed in a state table, and why where that can be known (column ``_cause``).

        Args:
            table: may be left out where there is one table.

        Raises:
            InvalidArgumentError: where no epoch was run.
            UnknownTableError: where there is no such table.

        Example:
            >>> ss.step(build, "checkpoints/what_if").diff().movers("max_delay")  # doctest: +SKIP
        """
        last = self.epochs[-1].epoch if self.epochs else self.epoch
        return self._captured().history.diff(last - 1, last, table)

    def _captured(self) -> Changes:
        if self._changes is None or not self.epochs:
            raise InvalidArgumentError(
                f"No epoch was run, so nothing changed: {self.reason}\nStep again, or look at the fork with ss.capture."
            )
        return self._changes

    def __repr__(self) -> str:
        lines = [f"{self._title()}: {self.reason}"]
        lines += [f"  {line}" for line in map(_line, self.epochs[-_SHOWN:])]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = "".join(f"<li>{html.escape(_line(one))}</li>" for one in self.epochs[-_SHOWN:])
        more = len(self.epochs) - _SHOWN
        cut = f"<p>The last {_SHOWN} of {len(self.epochs):,} epochs.</p>" if more > 0 else ""
        return f"<p><b>{html.escape(self._title())}</b>: {html.escape(self.reason)}</p><ul>{rows}</ul>{cut}"

    def _title(self) -> str:
        return f"{len(self.epochs):,} {'epoch' if len(self.epochs) == 1 else 'epochs'}, now at {self.epoch}"


_SHOWN = 10


def _line(run: EpochRun) -> str:
    try:
        changed = ", ".join(f"{table} {count:,}" for table, count in run.changed.items())
    except StreamStateError as error:  # the fork may be gone, and a report can be printed all the same
        changed = f"not known ({str(error).splitlines()[0]})"
    read = "" if run.input_rows is None else f"{run.input_rows:,} rows in, "
    told = {"original": "", "planned": " (the original never committed it)", "new": " (new input)"}
    told["none"] = " (the state spread anew)"
    watermark = f"; watermark {run.watermark.isoformat(timespec='milliseconds')}" if run.watermark else ""
    return f"epoch {run.epoch}: {read}changed: {changed or 'nothing'}{watermark}; {run.seconds:.2f} s{told[run.input]}"
