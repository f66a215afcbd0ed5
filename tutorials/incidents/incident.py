"""An incident: when it is, what is right and what is typically said about it, and how a fix is proved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Any

from streamstate.tutorials.incidents.proof import Files, Proof, gives_batch
from streamstate.tutorials.incidents.queries import board

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FILES = 10
"""How many files arrive; each makes an epoch."""
CAUSES = {
    "repeated file": "a file of the input arrived twice",
    "stuck watermark": "the watermark does not follow the stream",
    "hot key": "one key gets a large part of all rows",
    "leak": "state is never removed",
    "nondeterminism": "the same input gives another state",
    "bad deploy": "new code has a wrong rule",
}
TABLES = {
    "board": {"op0": "departures by day, carrier and origin"},
    "aircraft": {"op0_aircraft": "each aircraft's latest day", "op0_timers": "when each is to leave"},
}
"""The state tables of each query; the first is the one in which it shows."""
_NOTICED_AFTER = 3
Build = Callable[["DataFrame"], "DataFrame"]
"""Makes a query over the stream of departures."""


@dataclass(frozen=True, kw_only=True)
class Incident:
    """Something that is wrong with a query.

    Args:
        cause: one of :data:`CAUSES`.
        at: the file with which it begins, from 0.
        restart: the file before which the query is restarted.
        first_day: the day of the first file.
        query: "board" or "aircraft".
        keys: the keys at which it begins; one of them has to be named.
        arriving: makes the files that arrive from those of the days.
        right: makes the files that should have arrived, for a batch.
        code: the query before and after the restart.
        said: for each part of an answer, what is typically said instead, and the message. An epoch is given by its
            file, a key by a column, or by one with its value: ``carrier=UA``.
        hints: hints to what happened, from gentle to plain.
        proofs: say what is wrong with the replay of a fix.
        solution: a query that is right.
        wrong_fixes: queries as they are often written, each with a part of the message that it gets.
        fix_hints: hints to a fix.
    """

    cause: str
    at: int
    restart: int
    first_day: date
    query: str = "board"
    keys: Sequence[Mapping[str, str]] = field(repr=False)
    arriving: Callable[[Files], Files] = field(repr=False, default=lambda days: days)
    right: Callable[[Files], Files] = field(repr=False, default=lambda days: days)
    code: tuple[Build, Build] = field(repr=False, default=(board, board))
    said: Mapping[str, Mapping[Any, str]] = field(repr=False)
    hints: Sequence[str] = field(repr=False)
    proofs: Sequence[Proof] = field(repr=False, default=(gives_batch,))
    solution: Build = field(repr=False)
    wrong_fixes: Sequence[tuple[Build, str]] = field(repr=False)
    fix_hints: Sequence[str] = field(repr=False)

    @property
    def noticed(self) -> int:
        """The file after which somebody notices."""
        return self.at + _NOTICED_AFTER
