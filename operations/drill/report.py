"""Reports of drills."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from streamstate.operations.report_html import report
from streamstate.snapshots.calls.html import Html, head, paragraphs, table, tag, td
from streamstate.snapshots.spark.state_comparison import TableDifference

_KILLED = {"query": "the whole query (Java and Python)", "executor": "one executor", "standby": "the standby"}
_CUT = {"store": "Took the store away", "partition": "Cut the owner off from the store"}


@dataclass(frozen=True)
class DrillReport:
    """The recovery of a query from a kill, and the comparison of its state with that of an undisturbed run."""

    kill: str
    """What was killed: ``"query"`` or ``"executor"``."""
    after: int
    """The epoch after whose commit it was killed."""
    in_flight: bool
    """Whether the next epoch was in progress, begun but not committed, at the kill: the hard case."""
    half_written: int
    """How many state files the unfinished epoch left behind."""
    epochs_replayed: int
    """How many epochs had to be run again."""
    seconds_to_recover: float
    """Seconds from the kill to the commit of the next epoch."""
    phases: Mapping[str, float]
    """The parts of that time in seconds, in order; empty if Spark recovered by itself, which does not report them."""
    loading_seconds: float | None
    """How long all tasks of the first epoch together took to load state; None if Spark does not report it."""
    epochs: int
    """How many epochs the query that was killed committed in all."""
    compared_at: int
    """Its last epoch, whose state was compared."""
    aligned: bool
    """Whether both runs had the same epochs; if not, only their final states can be compared."""
    first_difference: int | None
    """The epoch in which the states diverge; None if they do not, or if the epochs are not the same."""
    differences: tuple[TableDifference, ...]
    """The state tables that differ from the undisturbed run, at that epoch or at the end: the rows that are missing
    (``of_one``), and those that are there instead (``of_other``)."""
    directory: Path | None = field(default=None, compare=False)
    """The folder with the checkpoints ``undisturbed`` and ``drilled``; None if they were not kept."""

    @property
    def ok(self) -> bool:
        """True if the state is the same as that of the undisturbed run."""
        return not self.differences

    @property
    def verdict(self) -> str:
        """The result of the comparison, in a sentence."""
        where = f"at epoch {self.compared_at}" if self.aligned else "at the end of the input"
        if self.ok:
            result = f"The state {where} is the same, key by key, as in an undisturbed run."
        elif self.first_difference is None:
            result = f"The state {where} differs from that of an undisturbed run."
        elif self.first_difference <= self.after:
            result = (
                f"The states of the two runs diverge in epoch {self.first_difference}, before anything was killed: "
                "the query itself is not deterministic."
            )
        else:
            result = f"The state differs from that of an undisturbed run from epoch {self.first_difference} on."
        return result if self.aligned else f"{result} The two runs divided their input into different epochs."

    @property
    def moment(self) -> str:
        """The killed process and the moment, in a sentence."""
        upcoming = self.after + 1
        if not self.in_flight:
            return f"Killed {_KILLED[self.kill]} after epoch {self.after}; epoch {upcoming} was not in progress."
        files = f", with {self.half_written:,} of its state files written" if self.half_written else ""
        return f"Killed {_KILLED[self.kill]} while epoch {upcoming} was in progress{files}."

    def __repr__(self) -> str:
        parts = [f"{seconds:6.2f} s  {name}" for name, seconds in self.phases.items()]
        if self.loading_seconds is not None:
            parts.append(f"{self.loading_seconds:6.2f} s  to load state, all tasks of the epoch together")
        recovered = f"The next epoch was committed {self.seconds_to_recover:,.2f} s later. {self._replayed}"
        lines = [self.moment, recovered, *(f"  {part}" for part in parts), self.verdict]
        return "\n".join([*lines, *map(str, self.differences)])

    def _repr_html_(self) -> str:
        seconds = self.loading_seconds
        loading = "" if seconds is None else f"Loading state took {seconds:,.2f} s, all tasks together."
        return report(
            tag("p", f"{self.moment} {self._replayed}"),
            self._phase_table("After the kill"),
            paragraphs([loading, tag("strong", f"{'✓' if self.ok else '✗'} {self.verdict}")]),
            *(tag("pre", str(difference)) for difference in self.differences),
        )

    def _phase_table(self, caption: str) -> Html:
        phases = [*self.phases.items(), ("until the next epoch was committed", self.seconds_to_recover)]
        rows = [[tag("th", name, scope="row"), td(f"{seconds:,.2f} s", "number")] for name, seconds in phases]
        return table(["phase", head("took", "number")], rows, caption=caption)

    @property
    def _replayed(self) -> str:
        if self.kill == "executor":
            return "Spark recovered by itself."
        if not self.epochs_replayed:
            return "No epoch had to be run again."
        return f"{self.epochs_replayed:,} epoch{'s' if self.epochs_replayed > 1 else ''} had to be run again."


@dataclass(frozen=True)
class Owner:
    """A process that owned the query for a time."""

    token: int
    """The number of its term of the lease; 0 without a lease."""
    process: str
    """``"primary"`` or ``"standby"``, with its process id."""
    committed: tuple[int, ...]
    """The epochs that it has committed, as it noted itself; one is missing if it was killed just after the commit."""
    wrote: tuple[int, ...]
    """The epochs whose results it has written, once for each time."""


@dataclass(frozen=True, kw_only=True)
class AvailabilityReport(DrillReport):
    """What a query with a standby did when something was killed, slow or cut off.

    ``kill`` has what was done: ``"query"``, ``"executor"``, ``"standby"``, ``"store"``, ``"slow source"``, ``"slow
    task"``, ``"slow sink"`` or ``"partition"``.
    """

    standby: str | None
    """The status of the standby at that moment; None without a standby."""
    means: str
    """How it was done, in words."""
    lasted: float
    """The seconds for which something was slow or away; 0 for a kill."""
    stopped_after: float | None
    """Seconds until the first owner had stopped by itself; None if it did not."""
    owners: tuple[Owner, ...]
    """Who owned the query, in turn."""
    lost: Mapping[str, tuple[int, ...]]
    """The epochs that are missing: of the ``commits``, the ``results``, or the captured ``history``."""
    doubled: tuple[int, ...]
    """The epochs whose results were written more than once; a sink gets them again, as after any restart."""
    different: tuple[int, ...]
    """The epochs whose results, in any writing, are not those of the undisturbed run; if ``aligned``."""
    noticed: str | None
    """What the owner's status said about it meanwhile; None if it said nothing."""

    @property
    def contested(self) -> tuple[int, ...]:
        """The epochs that two owners have committed."""
        every = sorted(epoch for owner in self.owners for epoch in owner.committed)
        return tuple(epoch for epoch, times in groupby(every) if len([*times]) > 1)

    @property
    def ok(self) -> bool:
        """True if nothing is lost, each epoch has one owner, and state and results are those of the undisturbed run."""
        return not (self.differences or self.different or self.contested or any(self.lost.values()))

    @property
    def moment(self) -> str:
        """What was done and when, in a sentence."""
        epoch = f"epoch {self.after + 1}"
        if self.kill.startswith("slow"):
            return f"Slowed the {self.kill.removeprefix('slow ')} in {epoch} for {self.lasted:.1f} s: {self.means}."
        if self.kill in _CUT:
            return f"{_CUT[self.kill]} in {epoch} for {self.lasted:.1f} s: {self.means}."
        return f"Killed {_KILLED[self.kill]} in {epoch}: {self.means}."

    @property
    def verdict(self) -> str:
        """The result of the comparison, in sentences."""
        found = [f"Lost: {_epochs(missing)} of the {where}." for where, missing in self.lost.items() if missing] or [
            "Nothing was lost."
        ]
        if self.doubled:
            same = "differently" if {*self.doubled} & {*self.different} else "each time the same"
            found.append(f"Results written more than once, {same}: {_epochs(self.doubled)}.")
        else:
            found.append("No results were written twice.")
        if self.contested:
            found.append(f"Two owners committed {_epochs(self.contested)}.")
        if self.different:
            found.append(f"The results of {_epochs(self.different)} are not those of the undisturbed run.")
        return " ".join([*found, super().verdict])

    @property
    def _went_on(self) -> list[str]:
        lines = [f"The next epoch was committed {self.seconds_to_recover:,.2f} s later."]
        if self.stopped_after is not None:
            lines.append(f"The first owner had stopped after {self.stopped_after:,.2f} s.")
        lines.append(f"Noticed: {self.noticed or 'nothing'}.")
        return lines if self.standby is None else [f"The {self.standby}.", *lines]

    @property
    def _owned(self) -> list[tuple[str, str, str, str]]:
        return [(str(one.token), one.process, _epochs(one.committed), _epochs(one.wrote)) for one in self.owners]

    def __repr__(self) -> str:
        parts = [f"  {seconds:6.2f} s  {name}" for name, seconds in self.phases.items()]
        owned = [
            f"  term {token}, {process}: committed {committed}; wrote results of {wrote}"
            for token, process, committed, wrote in self._owned
        ]
        lines = [self.moment, *self._went_on, *parts, *owned, self.verdict]
        return "\n".join([*lines, *map(str, self.differences)])

    def _repr_html_(self) -> Html:
        return report(
            paragraphs([self.moment, *self._went_on]),
            self._phase_table("Afterwards"),
            table(
                ["term", "owner", "committed", "wrote results of"],
                [[td(cell) for cell in row] for row in self._owned],
                caption="Owners",
            ),
            paragraphs([tag("strong", f"{'✓' if self.ok else '✗'} {self.verdict}")]),
            *(tag("pre", str(difference)) for difference in self.differences),
        )


def _epochs(epochs: tuple[int, ...]) -> str:
    """Return epochs as text, such as "epochs 0 to 3 and 5"."""
    if not epochs:
        return "no epoch"
    runs: list[str] = []
    for _, numbered in groupby(enumerate(sorted({*epochs})), lambda pair: pair[1] - pair[0]):
        run = [epoch for _, epoch in numbered]
        runs.append(str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}")
    words = " and ".join([*([", ".join(runs[:-1])] if runs[1:] else []), runs[-1]])
    return f"epoch{'s' if len({*epochs}) > 1 else ''} {words}"
