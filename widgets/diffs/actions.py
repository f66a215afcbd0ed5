"""The selection of a diff view, and its changes by actions: a slider move, a sort, a search."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from streamstate.state_inspect.epoch_names import relative_epoch
from streamstate.widgets.address_fields import in_address
from streamstate.widgets.model import PAGE_ACTIONS, SIZES, applied
from streamstate.widgets.still import MARKS

LIVE = "live"


@dataclass(frozen=True)
class DiffSelection:
    """The state of the controls.

    Attributes:
        a, b: the two epochs, as :meth:`History.diff` takes them: numbers, or ``"live - 10"``.
        table: the state table; None for the query's first.
        change: only ``"added"``, ``"changed"`` or ``"removed"`` keys are shown.
        text: only keys that contain this are shown.
        opening: whether the order is the one that a diff opens with: the largest relative changes.
        order_by, descending: the key or value column to sort by.
        by_size: whether rows are sorted by how far that column moved.
        relative: whether that is measured by its earlier value.
        page, size: the page of rows.
        mover: the column whose largest movers are drawn.
        key: the chosen key.
        why: the epoch of a change of the key that is explained.
    """

    a: int | str
    b: int | str = LIVE
    table: str | None = None
    change: str | None = in_address(str, among=tuple(MARKS))
    text: str = in_address(str, "")
    opening: bool = in_address(bool, default=True)
    order_by: str | None = in_address(str)
    by_size: bool = in_address(bool, default=False)
    relative: bool = in_address(bool, default=False)
    descending: bool = in_address(bool, default=False)
    page: int = in_address(int, 0)
    size: int = in_address(int, SIZES[0], among=SIZES)
    mover: str | None = in_address(str)
    key: Mapping[str, Any] | None = None
    why: int | None = in_address(int)

    @property
    def following(self) -> bool:
        """True if the later epoch follows the newest one."""
        return isinstance(self.b, str)


def acted(now: DiffSelection, action: str, value: Any, captured: Sequence[int]) -> DiffSelection:
    """Return the selection after an action of the page. An invalid action changes nothing."""
    if not captured:
        return now
    if action in _EPOCH_ACTIONS:
        return _EPOCH_ACTIONS[action](now, captured)
    return applied(_ACTIONS, now, action, value)


def resolved(epoch: int | str, captured: Sequence[int]) -> tuple[int, int]:
    """Return the requested epoch, and the epoch that is shown: the nearest captured one at or before it.

    Example:
        >>> resolved("live - 3", [0, 1, 2, 4, 6])
        (3, 2)
    """
    requested = relative_epoch(epoch, captured[-1]) if isinstance(epoch, str) else epoch
    return requested, captured[max(0, bisect_right(captured, requested) - 1)]


def previous(epoch: int, captured: Sequence[int]) -> int:
    """Return the epoch captured before ``epoch``; the first one itself."""
    return captured[max(0, bisect_left(captured, epoch) - 1)]


def _sort(now: DiffSelection, value: Mapping[str, Any]) -> DiffSelection:
    column = value["column"]
    return replace(
        now,
        opening=False,
        order_by=None if column is None else str(column),
        by_size=bool(value.get("size")),
        relative=bool(value.get("relative")),
        descending=bool(value.get("descending")),
        page=0,
    )


_EPOCH_ACTIONS: dict[str, Callable[[DiffSelection, Sequence[int]], DiffSelection]] = {
    "follow": lambda now, captured: replace(now, page=0, b=resolved(now.b, captured)[1] if now.following else LIVE),
    "swap": lambda now, captured: replace(now, page=0, a=resolved(now.b, captured)[1], b=resolved(now.a, captured)[1]),
    "previous": lambda now, captured: replace(now, page=0, a=previous(resolved(now.b, captured)[1], captured)),
}
_ACTIONS: dict[str, Callable[[DiffSelection, Any], DiffSelection]] = PAGE_ACTIONS | {
    "a": lambda now, value: replace(now, page=0, a=int(value)),
    "b": lambda now, value: replace(now, page=0, b=int(value)),
    "table": lambda now, value: DiffSelection(now.a, now.b, str(value), size=now.size),
    "change": lambda now, value: replace(now, change=value if value in tuple(MARKS) else None, page=0),
    "text": lambda now, value: replace(now, text=str(value), page=0),
    "sort": _sort,
    "column": lambda now, value: replace(now, mover=str(value)),
}
