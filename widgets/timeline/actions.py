"""The selection of a timeline, and its changes by actions: an epoch, an interval, a window."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from streamstate.widgets.address_fields import in_address

WINDOWS = (100, 500)
"""How many of the newest epochs can be shown; the other choice is all."""
ROWS = 20
"""Epochs per page of the table."""


@dataclass(frozen=True)
class TimelineSelection:
    """The state of the controls."""

    window: int | None = in_address(int, WINDOWS[-1], among=(*WINDOWS, None))
    """How many of the newest epochs are shown; None for all."""
    epoch: int | None = None
    """The chosen epoch; for an interval, its later end."""
    start: int | None = None
    """The earlier end of the chosen interval."""
    as_table: bool = in_address(bool, default=False)
    """Whether the numbers are shown as a table."""
    page: int = in_address(int, 0)
    """The page of the table; 0 has the newest epochs."""
    count: bool = False
    """Whether the state is read to count the rows that capture has not counted."""

    @property
    def between(self) -> tuple[int, int] | None:
        """The chosen interval."""
        return None if self.start is None or self.epoch is None else (self.start, self.epoch)


def acted(now: TimelineSelection, action: str, value: Any, captured: Sequence[int]) -> TimelineSelection:
    """Return the selection after an action of the page. An invalid action changes nothing."""
    moved = now
    match action, value:
        case "epoch", int():
            moved = _nearest(now, value, captured)
        case "between", [int() as start, int() as end]:
            moved = _interval(now, min(start, end), max(start, end), captured)
        case "clear", _:
            moved = replace(now, epoch=None, start=None)
        case "window", int() | None if value in {*WINDOWS, None}:
            moved = replace(now, window=value)
        case "table", bool():
            moved = replace(now, as_table=value, page=0)
        case "page", int():
            moved = replace(now, page=max(0, value))
        case "count", bool():
            moved = replace(now, count=value)
    return moved


def _nearest(now: TimelineSelection, epoch: int, captured: Sequence[int]) -> TimelineSelection:
    """Return the captured epoch nearest to ``epoch``."""
    if not captured:
        return now
    at = bisect_left(captured, epoch)
    return replace(now, epoch=min(captured[max(0, at - 1) : at + 1], key=lambda known: abs(known - epoch)), start=None)


def _interval(now: TimelineSelection, start: int, end: int, captured: Sequence[int]) -> TimelineSelection:
    """From the first to the last captured epoch of an interval; a single epoch if they are the same."""
    within = captured[bisect_left(captured, start) : bisect_right(captured, end)]
    if not within:
        return _nearest(now, end, captured)
    return replace(now, epoch=within[-1], start=within[0] if within[0] != within[-1] else None)
