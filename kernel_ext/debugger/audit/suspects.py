"""What in a query may come out otherwise when it runs again, and which of it a divergence speaks for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

__all__ = ["Evidence", "Kind", "Suspect", "ranked"]


class Kind(Enum):
    """In which way something comes out otherwise."""

    RANDOM = "random"
    """Another value in every run."""
    CLOCK = "clock"
    """The time at which it runs."""
    OUTSIDE = "outside"
    """What Python code reads outside its input: files, the environment, the network, or what it remembers itself."""
    ORDER = "order"
    """The order in which rows come."""
    PARTITION = "partition"
    """How rows lie in partitions."""


@dataclass(frozen=True)
class Suspect:
    """Something in a query that may come out otherwise; it is to blame only where something did.

    Attributes:
        what: what it is, such as ``rand()`` or ``time.time()``.
        where: the operator, column, or function and line.
        why: why it may come out otherwise.
        instead: what to write instead.
        kind: in which way.
        columns: the columns of the state, without numbers at their ends, into which it flows; none: not known.
    """

    what: str
    where: str
    why: str
    instead: str
    kind: Kind
    columns: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.what} in {self.where}: {self.why}. Instead: {self.instead}."


@dataclass(frozen=True)
class Evidence:
    """What the replays together say.

    Attributes:
        column: the first column that differs; None: a row that only one has.
        same_partitions: whether a replay with the recorded number of partitions differs.
        agree: whether the replays that differ, with that number, differ in the same way.
        by_position: whether the table is a list's.
    """

    column: str | None
    same_partitions: bool
    agree: bool
    by_position: bool = False

    def weight(self, suspect: Suspect) -> int:
        """How much speaks for a suspect; 0: it cannot have done it."""
        if not self.same_partitions:
            fits = {Kind.PARTITION: 3, Kind.ORDER: 3, Kind.OUTSIDE: 1, Kind.RANDOM: 1, Kind.CLOCK: 1}
        elif self.agree:
            fits = {Kind.OUTSIDE: 3, Kind.ORDER: 2, Kind.CLOCK: 1, Kind.RANDOM: 1, Kind.PARTITION: 0}
        else:
            fits = {Kind.RANDOM: 3, Kind.CLOCK: 3, Kind.OUTSIDE: 2, Kind.ORDER: 1, Kind.PARTITION: 0}
        weight = 2 * fits[suspect.kind]
        if weight and self.column is not None and suspect.columns:
            weight = weight + 10 if base(self.column) in suspect.columns else max(weight - 5, 0)
        return weight + 3 if weight and self.by_position and suspect.kind is Kind.ORDER else weight


def base(column: str) -> str:
    """A state column's name as its function calls it: ``sum_2`` is the second ``sum``."""
    stem, _, number = column.rpartition("_")
    return stem if stem and number.isdigit() else column


def ranked(suspects: Iterable[Suspect], evidence: Evidence) -> list[Suspect]:
    """The suspects that what was found speaks for, the likeliest first."""
    weighed: Sequence[tuple[int, Suspect]] = [(evidence.weight(one), one) for one in dict.fromkeys(suspects)]
    return [one for weight, one in sorted(weighed, key=lambda pair: -pair[0]) if weight]
