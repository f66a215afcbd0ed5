"""What a person asked a key history view to show, apart from how it is drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["PLOTS", "SIZES", "Selection", "changed"]

SIZES = (10, 25, 50, 100)
"""Rows a page can have."""
PLOTS = 6
"""Columns that are drawn at once."""


@dataclass(frozen=True)
class Selection:
    """One state of the controls.

    ``marked`` are epochs that linked views look at; ``column`` is the first column that is drawn; ``typed`` is what a
    person wrote into the fields for the key, until it is understood.
    """

    table: str | None = None
    key: Mapping[str, Any] | None = None
    marked: tuple[int, ...] = ()
    page: int = 0
    size: int = SIZES[0]
    column: int = 0
    typed: tuple[str, ...] | None = None


def _typed(now: Selection, texts: Any) -> Selection:
    return Selection(now.table, None, now.marked, size=now.size, typed=tuple(str(text) for text in list(texts)))


_ACTIONS: dict[str, Callable[[Selection, Any], Selection]] = {
    "table": lambda now, value: Selection(str(value), marked=now.marked, size=now.size),
    "typed": _typed,
    "page": lambda now, value: replace(now, page=max(0, int(value))),
    "size": lambda now, value: replace(now, size=int(value) if int(value) in SIZES else now.size, page=0),
    "column": lambda now, value: replace(now, column=max(0, int(value))),
}


def changed(now: Selection, action: str, value: Any) -> Selection:
    """The selection after one action of the page; what a page cannot mean changes nothing."""
    act = _ACTIONS.get(action)
    try:
        return act(now, value) if act else now
    except (TypeError, ValueError, OverflowError):
        return now  # a page can send anything
