"""Rows, key histories and whole values as a state browser shows them."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamstate.errors import InvalidSQLError, TimeLimitError, UnknownColumnError
from streamstate.snapshots.store.duckdb_sql import quoted
from streamstate.state_inspect.cell_text import canonical, cell, key_text, plain, timestamp
from streamstate.state_inspect.expiry_times import expiry_columns, rows_with_times
from streamstate.state_inspect.keys.key_text import arguments, in_magic, in_sql, magic_word
from streamstate.state_inspect.keys.table_key import TableKey
from streamstate.state_inspect.python_rows import records
from streamstate.state_inspect.results.results import state_of
from streamstate.state_inspect.temporal_index.query_interrupts import time_limit
from streamstate.widgets.key_history.story import KEYFRAME, OWN, change_of
from streamstate.widgets.model import chosen_row, first_row
from streamstate.widgets.state_browser.actions import BrowserSelection
from streamstate.widgets.state_browser.drawing import (
    BrowserColumn,
    BrowserPage,
    BrowserRow,
    ColumnWindow,
    KeyPanel,
    KeyPanelRow,
    WholeValue,
)
from streamstate.widgets.still import MARKS

if TYPE_CHECKING:
    from streamstate.state_inspect import History, StateTable

SHOWN = 30
"""Value columns that are shown at once."""
LISTED = 50
"""Changes that a key's history lists; a key that changes in every epoch has thousands."""
LIMIT = 1_000_000
"""The most characters of a whole value that are sent to a page."""
_CONDITION = 5.0
"""Seconds that a search for the rows of a condition may take."""
_CACHED = 4_000
"""The most counts that are cached; each is a few numbers."""

StateRecord = Mapping[str, Any]
LONGEST = 1_000
"""Characters of a key's text; rows with a longer key have none."""
WAYS = ("magic", "SQL", "Python")


def shown_columns(
    keys: Sequence[str], values: Sequence[str], selection: BrowserSelection, expiring: Collection[str] = ()
) -> tuple[list[BrowserColumn], ColumnWindow | None]:
    """The columns to show: always the key, and of the values of a wide table a window that can be moved and searched.

    The window is None if all columns are shown. Those that are ``expiring`` say when a row expires.
    """

    def columns(names: Sequence[str], *, key: bool) -> list[BrowserColumn]:
        return [BrowserColumn(name, key=key, expires=name in expiring) for name in names]

    if len(values) <= SHOWN:
        return columns(keys, key=True) + columns(values, key=False), None
    search = selection.named.casefold()
    found = [name for name in values if search in name.casefold()]
    last = max(0, (len(found) - 1) // SHOWN * SHOWN)
    first = min(selection.from_column, last)
    shown = found[first : first + SHOWN]
    window = ColumnWindow(first, len(shown), len(found), len(values), selection.named)
    return columns(keys, key=True) + columns(shown, key=False), window


class RowReader:
    """Reads pages of a state table's rows, and of those that changed. Not thread-safe."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._matching: dict[Any, int | str] = {}

    def forget(self) -> None:
        """Drop the cache."""
        self._matching.clear()

    def state_page(
        self,
        table: StateTable,
        before: int | None,
        columns: Sequence[BrowserColumn],
        selection: BrowserSelection,
        total: int,
    ) -> tuple[BrowserPage, str]:
        """Return a page of the state, marked since the epoch ``before``, and the problem of the filters."""
        found, start, matching, problem = self._found(table, table, selection, None, total)
        held_now = records(found)
        keys = [{name: record[name] for name in table.key_columns} for record in held_now]
        was = None if before is None else table_at(self._history, table.name, before)
        if was is None or not held_now:
            rows = [_row(record, columns, "" if before is None else MARKS["added"]) for record in held_now]
        else:
            held = {_key(record, was.key_columns): record for record in records(was.lookup_many_arrow(keys))}
            rows = [_marked(record, held.get(_key(record, was.key_columns)), columns) for record in held_now]
        page = BrowserPage(columns, rows, start, matching, keys, chosen_row(keys, selection.key))
        return _copied(page, table), problem

    def changed_page(
        self,
        table: StateTable,
        before: int,
        columns: Sequence[BrowserColumn],
        selection: BrowserSelection,
        total: int,
    ) -> tuple[BrowserPage, str]:
        """Return a page of the rows added, changed or removed since ``before``, and the problem of the filters."""
        from streamstate.state_inspect.differences.changed_rows import ChangedRows  # loads pandas, which is slow

        among = ChangedRows(self._history, table.name, before, table.epoch)
        found, start, matching, problem = self._found(among, table, selection, before, total)
        keys = records(found.rows.select(table.key_columns))
        both = zip(found.changes, records(found.rows), records(found.before), strict=True)
        rows = [
            _marked(now, was, columns) if change == "changed" else _row(now, columns, MARKS[change])
            for change, now, was in both
        ]
        page = BrowserPage(columns, rows, start, matching, keys, chosen_row(keys, selection.key))
        return _copied(page, table), problem

    def _found(
        self, among: Any, table: StateTable, selection: BrowserSelection, before: int | None, total: int
    ) -> tuple[Any, int, int, str]:
        """Return a page, its first row, the number of matching rows, and the problem of the filters.

        ``among`` counts rows and reads pages of them, ``before`` is the previous epoch if only changes are shown, and
        ``total`` the number of rows without a filter. Filters that fail or take too long are left out, and are not
        tried again at this epoch.
        """
        known = {*table.key_columns, *table.value_columns}
        contains = {selection.column: selection.text} if selection.text and selection.column in known else None
        where = selection.where.strip() or None
        filters = {"where": where, "contains": contains} if where or contains else {}
        at = (table.name, table.epoch, before, str(contains), where)
        if not filters:
            return *_page(among, table, selection, total, {}), total, ""
        if not isinstance(self._matching.get(at), str):
            try:
                with time_limit(_CONDITION, "The condition" if where else "The filter"):
                    if at not in self._matching:
                        remember(self._matching, at, among.count(**filters))
                    matching = int(self._matching[at])
                    return *_page(among, table, selection, matching, filters), matching, ""
            except (InvalidSQLError, UnknownColumnError, TimeLimitError) as error:
                remember(self._matching, at, str(error))
        problem = str(self._matching[at])
        without = replace(selection, where="") if where else replace(selection, text="")
        found, start, matching, also = self._found(among, table, without, before, total)
        return found, start, matching, also or problem


def _copied(page: BrowserPage, table: StateTable) -> BrowserPage:
    """Return a page with the texts that read each row again."""
    rows = [replace(row, copies=endings(table, key)) for row, key in zip(page.rows, page.keys, strict=True)]
    return replace(page, rows=rows)


def _page(
    among: Any, table: StateTable, selection: BrowserSelection, matching: int, filters: Mapping[str, Any]
) -> tuple[Any, int]:
    """Return a page and its first row, sorted if the table has the column at this epoch."""
    known = {*table.key_columns, *table.value_columns}
    order_by = selection.order_by if selection.order_by in known else None
    start = first_row(selection.page, selection.size, matching)
    page = among.page_arrow(start, selection.size, order_by=order_by, descending=selection.descending, **filters)
    return page, start


def remember(cache: dict[Any, Any], at: object, value: object) -> None:
    """Add to a cache, which is emptied when it is full."""
    if len(cache) >= _CACHED:
        cache.clear()
    cache[at] = value


def table_at(history: History, name: str, epoch: int) -> StateTable | None:
    """Return a state table at an epoch; None if it did not exist yet."""
    snapshot = history.at(epoch)
    if state_of(name)[1]:
        return snapshot.table(name) if snapshot.has_result(state_of(name)[0]) else None
    return snapshot.table(name) if name in snapshot.tables() else None


def _key(record: StateRecord, keys: Sequence[str]) -> Any:
    return canonical([record[name] for name in keys])


def _row(record: StateRecord, columns: Sequence[BrowserColumn], mark: str = "") -> BrowserRow:
    return BrowserRow([column.cell(record[column.name]) for column in columns], mark)


def _marked(now: StateRecord, was: StateRecord | None, columns: Sequence[BrowserColumn]) -> BrowserRow:
    """Return a row with the old value of each cell that differs; a column that was added since was null.

    Columns that are not shown count for the mark, too.
    """
    if was is None:
        return _row(now, columns, MARKS["added"])
    differ = {name for name, value in now.items() if canonical(value) != canonical(was.get(name))}
    old = {at: column.cell(was.get(column.name)) for at, column in enumerate(columns) if column.name in differ}
    return BrowserRow([column.cell(now[column.name]) for column in columns], MARKS["changed"] if differ else "", old)


def key_panel(history: History, table: str, key: Mapping[str, Any], among: Collection[str] | None = None) -> KeyPanel:
    """The newest changes of a key, newest first; ``among`` are the value columns that are shown, None for all."""
    key = TableKey.of(history.recorded, table).given({"key": key})
    expiring = expiry_columns(history.recorded, table)
    found = history.key_history_arrow(table, key=key)
    columns = found.column_names[OWN:-1]
    shown = [at for at, name in enumerate(columns) if among is None or name in among]
    rows = rows_with_times(found.slice(max(0, found.num_rows - LISTED - 1)), expiring)
    changes = [_panel_row(row, before, shown) for before, row in zip([None, *rows], rows, strict=False)]
    listed = changes[-LISTED:][::-1]
    named = [(name, BrowserColumn(name, key=True, expires=name in expiring).cell(value)) for name, value in key.items()]
    return KeyPanel(named, [columns[at] for at in shown], listed, found.num_rows - len(listed))


def _panel_row(row: tuple[Any, ...], before: tuple[Any, ...] | None, shown: Sequence[int]) -> KeyPanelRow:
    """Return a change of a key; columns that are not shown count for the mark, too."""
    change = change_of(row, before)
    cells = [] if change.gone else [cell(change.values[at]) for at in shown]
    changed = [place for place, at in enumerate(shown) if at in change.differ]
    return KeyPanelRow(change.epoch, change.mark, change.committed, cells, changed, row[1] == KEYFRAME)


def whole_value(column: str, key: Mapping[str, Any], value: Any) -> WholeValue:
    """Format a value without shortening it: text as it is, bytes in hexadecimal, nested values as JSON.

    Example:
        >>> whole_value("legs", {"flight": 1}, {"legs": ["EWR"]}).text
        '{"legs": ["EWR"]}'
    """
    text = _text(plain(value))
    return WholeValue(column, key_text(key), text[:LIMIT], len(text))


def _text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(value, ensure_ascii=False, default=_json)
    return str(_json(value)) if not isinstance(value, bool) else str(value).lower()


def _json(value: Any) -> Any:
    """Convert types that JSON lacks."""
    value = plain(value)
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if hasattr(value, "isoformat"):
        return timestamp(value) if hasattr(value, "tzinfo") and hasattr(value, "hour") else value.isoformat()
    return value if isinstance(value, str | int | float | list | Mapping) or value is None else str(value)


def beginnings(table: StateTable, store: str) -> dict[str, str]:
    """Return the beginning of each text, before the key: the query, the table and the epoch."""
    query, epoch = table.history.name, table.epoch
    relation = ".".join(map(quoted, [query, *table.name.split(".")]))
    return {
        "magic": f"%state {query}.{table.name} key --store {magic_word(store)} --at {epoch} ",
        "SQL": f"SELECT * FROM {relation} VERSION AS OF {epoch} WHERE ",
        "Python": "import streamstate as ss\n\n"
        f"ss.open_store({store!r})[{query!r}].at({epoch}).table({table.name!r}).lookup(",
    }


def endings(table: StateTable, key: Mapping[str, Any]) -> list[str]:
    """Return a key, in the order of :data:`WAYS`; nothing for a key that is too long to be copied."""
    kinds = {name: table.intervals.kind(name) for name in key}
    texts = [in_magic(key), in_sql(key, table.intervals.schema, kinds), f"{arguments(key)})"]
    return [] if sum(map(len, texts)) > LONGEST * len(WAYS) else texts
