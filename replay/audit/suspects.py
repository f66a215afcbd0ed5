"""The weight of suspects, parts of a query that may be nondeterministic, as causes of a divergence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from streamstate.state_inspect.suspects.suspect import Suspect, SuspectKind


@dataclass(frozen=True)
class Evidence:
    """The evidence of all replays.

    Attributes:
        column: the first column that differs; None: only one side has the row.
        same_partitions: whether a replay with the recorded number of partitions diverged.
        agree: whether all of these diverged in the same way.
        by_position: whether the table is that of a list variable.
    """

    column: str | None
    same_partitions: bool
    agree: bool
    by_position: bool = False

    def weight(self, suspect: Suspect) -> int:
        """Return a number that says how well a suspect explains the divergence; 0: not at all."""
        kind = SuspectKind
        if not self.same_partitions:
            fits = {kind.PARTITION: 3, kind.ORDER: 3, kind.OUTSIDE: 1, kind.RANDOM: 1, kind.CLOCK: 1}
        elif self.agree:
            fits = {kind.OUTSIDE: 3, kind.ORDER: 2, kind.CLOCK: 1, kind.RANDOM: 1, kind.PARTITION: 0}
        else:
            fits = {kind.RANDOM: 3, kind.CLOCK: 3, kind.OUTSIDE: 2, kind.ORDER: 1, kind.PARTITION: 0}
        weight = 2 * fits[suspect.kind]
        if weight and self.column is not None and suspect.columns:
            weight = weight + 10 if without_number(self.column) in suspect.columns else max(weight - 5, 0)
        return weight + 3 if weight and self.by_position and suspect.kind is kind.ORDER else weight


def without_number(column: str) -> str:
    """Return a state column's name without its numeric suffix: ``sum_2`` is the second ``sum``."""
    stem, _, number = column.rpartition("_")
    return stem if stem and number.isdigit() else column


def ranked(suspects: Iterable[Suspect], evidence: Evidence) -> list[Suspect]:
    """Return the suspects that could explain what was found, the most likely first."""
    return sorted(filter(evidence.weight, dict.fromkeys(suspects)), key=evidence.weight, reverse=True)
