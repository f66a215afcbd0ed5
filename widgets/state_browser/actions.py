"""The selection of a state browser, and its changes by actions: a slider move, a sort, a filter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from streamstate.widgets.address_fields import in_address
from streamstate.widgets.model import PAGE_ACTIONS, SIZES, applied


@dataclass(frozen=True)
class BrowserSelection:
    """The state of the controls.

    Attributes:
        table: the state table; None for the query's first.
        epoch: the epoch; None while the newest is followed.
        rows: whether all rows are shown, or those that changed.
        page, size: the page of rows.
        order_by, descending: the column to sort by.
        column, text: only rows whose ``column`` contains ``text`` are shown.
        where: an SQL condition for the rows.
        from_column: the number of the first value column shown, in a wide table.
        named: only value columns whose name contains this are shown, in a wide table.
        cell: the key columns and values of a row, and the column whose whole value is shown.
        key: the key columns and values of the row whose history is shown.
        playing: whether the epochs play.
        why: the epoch of a change of the key that is explained.
    """

    table: str | None = None
    epoch: int | None = None
    rows: Literal["all", "changed"] = in_address(str, "all", among=("all", "changed"))
    page: int = in_address(int, 0)
    size: int = in_address(int, SIZES[0], among=SIZES)
    order_by: str | None = in_address(str)
    descending: bool = in_address(bool, default=False)
    column: str | None = in_address(str)
    text: str = in_address(str, "")
    where: str = in_address(str, "")
    from_column: int = in_address(int, 0)
    named: str = in_address(str, "")
    cell: tuple[Mapping[str, Any], str] | None = None
    key: Mapping[str, Any] | None = None
    playing: bool = False
    why: int | None = in_address(int)

    @property
    def following(self) -> bool:
        """True if the view follows the newest epoch."""
        return self.epoch is None


def acted(now: BrowserSelection, action: str, value: Any) -> BrowserSelection:
    """Return the selection after an action of the page. An invalid action changes nothing."""
    return applied(_ACTIONS, now, action, value)


def _table(now: BrowserSelection, name: str) -> BrowserSelection:
    """Another table has other columns and keys, so that only the epoch and the page size stay."""
    return BrowserSelection(table=name, epoch=now.epoch, rows=now.rows, size=now.size, playing=now.playing)


def _sort(now: BrowserSelection, column: str) -> BrowserSelection:
    """Ascending, then descending, then unsorted."""
    if now.order_by != column:
        return replace(now, order_by=column, descending=False, page=0)
    if not now.descending:
        return replace(now, descending=True, page=0)
    return replace(now, order_by=None, descending=False, page=0)


def _filter(now: BrowserSelection, value: Mapping[str, str]) -> BrowserSelection:
    column, text = value.get("column", now.column), value.get("text", now.text)
    where = value.get("where", now.where)
    return replace(now, column=None if column is None else str(column), text=str(text), where=str(where), page=0)


def _columns(now: BrowserSelection, value: Mapping[str, Any]) -> BrowserSelection:
    """Other columns of a wide table; a search for a name starts at the first match."""
    named = str(value.get("named", now.named))
    return replace(now, named=named, from_column=max(0, int(value.get("from", 0))))


def _play(now: BrowserSelection, start: int | None) -> BrowserSelection:
    """Play from an epoch on, or pause."""
    return replace(now, playing=False) if start is None else replace(now, playing=True, epoch=int(start))


_ACTIONS: dict[str, Callable[[BrowserSelection, Any], BrowserSelection]] = PAGE_ACTIONS | {
    "table": lambda now, value: _table(now, str(value)),
    "epoch": lambda now, value: replace(now, epoch=int(value), playing=False),
    "follow": lambda now, _: replace(now, epoch=None, playing=False),
    "rows": lambda now, value: replace(now, rows="changed" if value == "changed" else "all", page=0),
    "sort": lambda now, value: _sort(now, str(value)),
    "filter": _filter,
    "key": lambda now, value: replace(now, key=value, why=now.why if value == now.key else None),
    "cell": lambda now, value: replace(now, cell=value),
    "columns": _columns,
    "play": _play,
}
