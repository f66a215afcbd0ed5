"""What a person asked a browser to show, apart from how it is drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

__all__ = ["SIZES", "Selection", "changed"]

SIZES = (10, 25, 50, 100)
"""Rows a page can have."""


@dataclass(frozen=True)
class Selection:
    """One state of the controls.

    ``epoch`` is ``None`` while the newest epoch is followed. ``key`` holds the key columns and
    values of the row whose history is shown, ``cell`` those of a row and the column whose whole value is shown.
    ``column`` and ``text`` are what rows are to contain, ``where`` is an SQL condition; of many columns those
    are shown that are ``named`` so, from ``from_column`` on.
    """

    table: str | None = None
    epoch: int | None = None
    rows: Literal["all", "changed"] = "all"
    page: int = 0
    size: int = SIZES[0]
    order_by: str | None = None
    descending: bool = False
    column: str | None = None
    text: str = ""
    where: str = ""
    from_column: int = 0
    named: str = ""
    cell: tuple[Mapping[str, Any], str] | None = None
    key: Mapping[str, Any] | None = None
    playing: bool = False

    @property
    def following(self) -> bool:
        """Whether the newest epoch is shown, whichever that is."""
        return self.epoch is None


def _table(now: Selection, name: str) -> Selection:
    """Another table has other columns and keys: only the epoch stays."""
    return Selection(table=name, epoch=now.epoch, rows=now.rows, size=now.size, playing=now.playing)


def _sort(now: Selection, column: str) -> Selection:
    """Up, then down, then as the table is."""
    if now.order_by != column:
        return replace(now, order_by=column, descending=False, page=0)
    if not now.descending:
        return replace(now, descending=True, page=0)
    return replace(now, order_by=None, descending=False, page=0)


def _filter(now: Selection, value: Mapping[str, str]) -> Selection:
    column, text = value.get("column", now.column), value.get("text", now.text)
    where = value.get("where", now.where)
    return replace(now, column=None if column is None else str(column), text=str(text), where=str(where), page=0)


def _columns(now: Selection, value: Mapping[str, Any]) -> Selection:
    """Other columns of many; looking for a name begins at the first that has it."""
    named = str(value.get("named", now.named))
    return replace(now, named=named, from_column=max(0, int(value.get("from", 0))))


def _rows(now: Selection, value: str) -> Selection:
    return replace(now, rows="changed" if value == "changed" else "all", page=0)


def _play(now: Selection, start: int | None) -> Selection:
    """Play from an epoch on, or pause."""
    return replace(now, playing=False) if start is None else replace(now, playing=True, epoch=int(start))


_ACTIONS: dict[str, Callable[[Selection, Any], Selection]] = {
    "table": lambda now, value: _table(now, str(value)),
    "epoch": lambda now, value: replace(now, epoch=int(value), playing=False),
    "follow": lambda now, _: replace(now, epoch=None, playing=False),
    "rows": _rows,
    "page": lambda now, value: replace(now, page=max(0, int(value))),
    "size": lambda now, value: replace(now, size=int(value) if int(value) in SIZES else now.size, page=0),
    "sort": lambda now, value: _sort(now, str(value)),
    "filter": _filter,
    "key": lambda now, value: replace(now, key=value),
    "cell": lambda now, value: replace(now, cell=value),
    "columns": _columns,
    "play": _play,
}


def changed(now: Selection, action: str, value: Any) -> Selection:
    """The selection after one action of the page; what a page cannot mean changes nothing."""
    act = _ACTIONS.get(action)
    return act(now, value) if act else now
