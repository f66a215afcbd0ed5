"""What a drill found."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamstate.snapshots.same_state import TableDifference

__all__ = ["DrillReport"]

_KILLED = {"query": "the whole query (Java and Python)", "executor": "one executor"}


@dataclass(frozen=True)
class DrillReport:
    """How a query recovered from being killed, and whether its state is what it would have been anyway."""

    kill: str
    """What was killed: ``"query"`` or ``"executor"``."""
    after: int
    """The epoch after whose commit it was killed."""
    in_flight: bool
    """Whether the next epoch had been begun and was not committed when it was killed, which is the hard case."""
    half_written: int
    """How many files of state that unfinished epoch had left behind."""
    epochs_replayed: int
    """How many epochs had to be run again."""
    seconds_to_recover: float
    """From the kill to the commit of the first epoch after it."""
    phases: Mapping[str, float]
    """The same in parts, in seconds and in their order; empty where Spark went on by itself, which tells none."""
    loading_seconds: float | None
    """How long the first epoch's tasks took to load state, all tasks together; None where Spark does not say."""
    epochs: int
    """How many epochs the query that was killed committed in all."""
    compared_at: int
    """Its last epoch, whose state was compared."""
    aligned: bool
    """Whether both runs had the same epochs; otherwise only their ends can be compared."""
    first_difference: int | None
    """The epoch at which the states part; None where they do not, or where the epochs are not the same."""
    differences: tuple[TableDifference, ...]
    """The state tables that differ from the run that never failed, at that epoch or at the end: its rows that are
    missing (``of_one``), and those that are there instead (``of_other``)."""
    directory: Path | None = field(default=None, compare=False)
    """Where the checkpoints ``undisturbed`` and ``drilled`` are; None where they were not kept."""

    @property
    def ok(self) -> bool:
        """Whether the state is the same as that of the run that never failed."""
        return not self.differences

    @property
    def verdict(self) -> str:
        """What came of the comparison, in a sentence."""
        where = f"at epoch {self.compared_at}" if self.aligned else "at the end of the input"
        if self.ok:
            said = f"The state {where} is the same, key by key, as that of a run that never failed."
        elif self.first_difference is None:
            said = f"The state {where} differs from that of a run that never failed."
        elif self.first_difference <= self.after:
            said = (
                f"The states of two runs part at epoch {self.first_difference}, before anything was killed: "
                "the query itself does not give the same twice."
            )
        else:
            said = f"The state differs from that of a run that never failed, from epoch {self.first_difference} on."
        return said if self.aligned else f"{said} The two runs cut their input into different epochs."

    @property
    def moment(self) -> str:
        """What was killed and when, in a sentence."""
        next_one = self.after + 1
        if not self.in_flight:
            return (
                f"Killed {_KILLED[self.kill]} after epoch {self.after}; epoch {next_one} was not under way just then."
            )
        files = f", with {self.half_written:,} of its files of state written" if self.half_written else ""
        return f"Killed {_KILLED[self.kill]} while epoch {next_one} was under way{files}."

    def __repr__(self) -> str:
        lines = [self.moment, f"{self._recovered()}.", *(f"  {part}" for part in self._parts()), self.verdict]
        return "\n".join([*lines, *map(str, self.differences)])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th scope='row' style='text-align: left'>{html.escape(name)}</th>"
            f"<td style='text-align: right'>{seconds:,.2f} s</td></tr>"
            for name, seconds in [
                *self.phases.items(),
                ("until the first epoch was committed", self.seconds_to_recover),
            ]
        )
        loading = self.loading_seconds
        said = "" if loading is None else f"<p>Loading state took {loading:,.2f} s, all tasks together.</p>"
        mark = "✓" if self.ok else "✗"
        differing = "".join(f"<pre>{html.escape(str(one))}</pre>" for one in self.differences)
        caption = "<caption style='text-align: left'>After the kill</caption>"
        return (
            f"<p>{html.escape(self.moment)} {self._replayed()}</p><table>{caption}<tbody>{rows}</tbody></table>{said}"
            f"<p><strong>{mark} {html.escape(self.verdict)}</strong></p>{differing}"
        )

    def _recovered(self) -> str:
        return f"The first epoch after it was committed {self.seconds_to_recover:,.2f} s later. {self._replayed()}"[:-1]

    def _replayed(self) -> str:
        if self.kill == "executor":
            return "Spark went on by itself."
        if not self.epochs_replayed:
            return "No epoch had to be run again."
        return f"{self.epochs_replayed:,} epoch{'s' if self.epochs_replayed > 1 else ''} had to be run again."

    def _parts(self) -> list[str]:
        parts = [f"{seconds:6.2f} s  {name}" for name, seconds in self.phases.items()]
        if self.loading_seconds is not None:
            parts.append(f"{self.loading_seconds:6.2f} s  to load state, all tasks of the epoch together")
        return parts
