"""What a person chose in a timeline."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["ROWS", "WINDOWS", "Selection", "acted"]

WINDOWS = (100, 500)
"""How many of the newest epochs can be shown; or all."""
ROWS = 20
"""Epochs a page of the table has."""


@dataclass(frozen=True)
class Selection:
    """One state of the controls.

    Attributes:
        window: how many of the newest epochs are shown; None for all.
        epoch: the epoch that was chosen; of an interval its later end.
        start: where an interval was chosen, its earlier end.
        table: whether the numbers are shown as a table.
        page: its page; 0 has the newest epochs.
    """

    window: int | None = WINDOWS[-1]
    epoch: int | None = None
    start: int | None = None
    table: bool = False
    page: int = 0

    @property
    def between(self) -> tuple[int, int] | None:
        """The interval that was chosen."""
        return None if self.start is None or self.epoch is None else (self.start, self.epoch)


def acted(now: Selection, action: str, value: Any, captured: Sequence[int]) -> Selection:
    """The selection after one action of a page; what a page cannot mean changes nothing.

    Args:
        now: the selection before.
        action: ``epoch``, ``between``, ``clear``, ``window``, ``table`` or ``page``.
        value: what the page sent.
        captured: the captured epochs, ascending.
    """
    moved = now
    match action, value:
        case "epoch", int():
            moved = _one(now, value, captured)
        case "between", [int() as start, int() as end]:
            moved = _interval(now, min(start, end), max(start, end), captured)
        case "clear", _:
            moved = replace(now, epoch=None, start=None)
        case "window", int() | None if value in {*WINDOWS, None}:
            moved = replace(now, window=value)
        case "table", bool():
            moved = replace(now, table=value, page=0)
        case "page", int():
            moved = replace(now, page=max(0, value))
    return moved


def _one(now: Selection, epoch: int, captured: Sequence[int]) -> Selection:
    """The captured epoch that is nearest to one."""
    if not captured:
        return now
    return replace(now, epoch=min(captured, key=lambda known: abs(known - epoch)), start=None)


def _interval(now: Selection, start: int, end: int, captured: Sequence[int]) -> Selection:
    """From the first to the last captured epoch of an interval; where that is one, it alone."""
    within = captured[bisect_left(captured, start) : bisect_right(captured, end)]
    if not within:
        return _one(now, end, captured)
    return replace(now, epoch=within[-1], start=within[0] if within[0] != within[-1] else None)
