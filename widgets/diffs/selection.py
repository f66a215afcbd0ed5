"""What a person asked a diff view to show, apart from how it is drawn."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from streamstate.state_inspect.moments import relative_epoch

__all__ = ["KINDS", "LIVE", "SIZES", "Selection", "changed", "previous", "resolved"]

LIVE = "live"
SIZES = (10, 25, 50, 100)
"""Rows a page can have."""
KINDS = ("added", "changed", "removed")


@dataclass(frozen=True)
class Selection:
    """One state of the controls.

    ``a`` and ``b`` are epochs as :meth:`History.diff` takes them: numbers, or ``"live - 10"``. ``order_by`` is a key
    or value column; with ``by_size`` the rows are sorted by how far it moved. ``mover`` is the column whose largest
    movers are drawn; ``key`` the key that was chosen.
    """

    a: int | str
    b: int | str = LIVE
    table: str | None = None
    change: str | None = None
    text: str = ""
    order_by: str | None = None
    by_size: bool = False
    descending: bool = False
    page: int = 0
    size: int = SIZES[0]
    mover: str | None = None
    key: Mapping[str, Any] | None = None

    @property
    def following(self) -> bool:
        """Whether the later epoch is the newest, whichever that is."""
        return isinstance(self.b, str)


def resolved(epoch: int | str, captured: Sequence[int]) -> tuple[int, int]:
    """The epoch that was asked for, and the one that is shown: the nearest captured at or before it.

    Raises:
        InvalidArgumentError: where a text names no epoch.

    Example:
        >>> resolved("live - 3", [0, 1, 2, 4, 6])
        (3, 2)
    """
    wanted = relative_epoch(epoch, captured[-1]) if isinstance(epoch, str) else epoch
    return wanted, captured[max(0, bisect_right(captured, wanted) - 1)]


def previous(epoch: int, captured: Sequence[int]) -> int:
    """The epoch captured before one; the first has none before it."""
    return captured[max(0, captured.index(epoch) - 1)]


Captured = Sequence[int]


def _moved(now: Selection, **epochs: int | str) -> Selection:
    """Other epochs have other pages."""
    return replace(now, page=0, **epochs)  # type: ignore[arg-type]


def _follow(now: Selection, captured: Captured) -> Selection:
    if now.following:
        return _moved(now, b=resolved(now.b, captured)[1])
    return _moved(now, b=LIVE)


def _swapped(now: Selection, captured: Captured) -> Selection:
    return _moved(now, a=resolved(now.b, captured)[1], b=resolved(now.a, captured)[1])


def _step(now: Selection, captured: Captured) -> Selection:
    """Compare with the epoch before, whichever that is."""
    return _moved(now, a=previous(resolved(now.b, captured)[1], captured))


def _sort(now: Selection, value: Mapping[str, Any]) -> Selection:
    column, by_size = value["column"], bool(value.get("size"))
    return replace(
        now,
        order_by=None if column is None else str(column),
        by_size=by_size,
        descending=bool(value.get("descending")),
        page=0,
    )


_ACTIONS: dict[str, Callable[[Selection, Any, Captured], Selection]] = {
    "a": lambda now, value, _: _moved(now, a=int(value)),
    "b": lambda now, value, _: _moved(now, b=int(value)),
    "follow": lambda now, _, captured: _follow(now, captured),
    "swap": lambda now, _, captured: _swapped(now, captured),
    "previous": lambda now, _, captured: _step(now, captured),
    "table": lambda now, value, _: Selection(now.a, now.b, str(value), size=now.size),
    "change": lambda now, value, _: replace(now, change=value if value in KINDS else None, page=0),
    "text": lambda now, value, _: replace(now, text=str(value), page=0),
    "sort": lambda now, value, _: _sort(now, value),
    "page": lambda now, value, _: replace(now, page=max(0, int(value))),
    "size": lambda now, value, _: replace(now, size=int(value) if int(value) in SIZES else now.size, page=0),
    "column": lambda now, value, _: replace(now, mover=str(value)),
}


def changed(now: Selection, action: str, value: Any, captured: Captured) -> Selection:
    """The selection after one action of the page; what a page cannot mean changes nothing.

    Args:
        now: the selection before.
        action: what was done.
        value: what the page sent with it.
        captured: the epochs there are.
    """
    act = _ACTIONS.get(action)
    if act is None or not captured:
        return now
    try:
        return act(now, value, captured)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
        return now  # a page can send anything
