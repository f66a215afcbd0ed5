"""A part of a query that may be nondeterministic."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class SuspectKind(Enum):
    """Reasons for which a part of a query is nondeterministic."""

    RANDOM = "random"
    """It returns another value in every run."""
    CLOCK = "clock"
    """It depends on the time at which it runs."""
    OUTSIDE = "outside"
    """Python code that reads something besides its input: files, the environment, the network, or its own memory."""
    ORDER = "order"
    """It depends on the order in which rows arrive."""
    PARTITION = "partition"
    """It depends on how rows are partitioned."""


@dataclass(frozen=True)
class Suspect:
    """A part of a query that may be nondeterministic; it matters only if a replay diverged.

    Attributes:
        what: what it is, such as ``rand()`` or ``time.time()``.
        where: the operator, column, or function and line.
        why: why it may be nondeterministic.
        instead: what to write instead.
        kind: what makes it nondeterministic.
        columns: the columns of the state that depend on it, without numeric suffixes; empty: not known.
    """

    what: str
    where: str
    why: str
    instead: str
    kind: SuspectKind
    columns: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.what} in {self.where}: {self.why}. Instead: {self.instead}."
