"""What differs from the previous epoch: marks for the rows of a page, and a page of only what changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from streamstate.widgets.browser.drawing import Column, Row
from streamstate.widgets.values import canonical, cell, records

if TYPE_CHECKING:
    from streamstate.state_inspect import StateTable
    from streamstate.state_inspect.differences.changed_rows import ChangedPage

__all__ = ["ADDED", "CHANGED", "REMOVED", "changed_page", "marked"]

ADDED, CHANGED, REMOVED = "+", "~", "−"
_SIGNS = {"added": ADDED, "changed": CHANGED, "removed": REMOVED}

Record = Mapping[str, Any]


def marked(
    page: Sequence[Record],
    keys: Sequence[Record],
    columns: Sequence[Column],
    before: StateTable | None,
    since: int | None,
) -> list[Row]:
    """Rows of the state, each with its mark and, where it changed, what its cells were.

    Args:
        page: the rows, with all columns.
        keys: the key of each row.
        columns: the columns that are shown.
        before: the table at the previous epoch; None where it was not there yet.
        since: the previous epoch; without one nothing is marked.
    """
    if before is None or not page:
        return [_row(record, columns, "" if since is None else ADDED) for record in page]
    held = {_key(record, before.key_columns): record for record in records(before.lookup_many(keys))}
    rows = []
    for record in page:
        was = held.get(_key(record, before.key_columns))
        rows.append(_row(record, columns, ADDED) if was is None else _compared(record, was, columns))
    return rows


def changed_page(page: ChangedPage, columns: Sequence[Column]) -> list[Row]:
    """Rows that were added, changed or removed."""
    from streamstate.state_inspect.frames import to_pandas

    rows = []
    both = zip(page.changes, records(to_pandas(page.rows)), records(to_pandas(page.before)), strict=True)
    for change, now, was in both:
        sign = _SIGNS[change]
        rows.append(_compared(now, was, columns) if sign == CHANGED else _row(now, columns, sign))
    return rows


def _key(record: Record, keys: Sequence[str]) -> Any:
    return canonical([record[name] for name in keys])


def _row(record: Record, columns: Sequence[Column], mark: str = "") -> Row:
    return Row([cell(record[column.name]) for column in columns], mark)


def _compared(now: Record, was: Record, columns: Sequence[Column]) -> Row:
    """A row and, for each cell that differs, what it was; a column that came since was empty.

    All columns count for the mark, those that are out of sight too.
    """
    differ = {name for name, value in now.items() if canonical(value) != canonical(was.get(name))}
    old = {at: cell(was.get(each.name)) for at, each in enumerate(columns) if each.name in differ}
    return Row([cell(now[each.name]) for each in columns], CHANGED if differ else "", old)
