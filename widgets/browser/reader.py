"""Reads what a state browser shows out of a history, keeping what is asked for again and again."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.errors import InvalidSQLError, UnknownColumnError, UnknownEpochError, UnknownTableError
from streamstate.widgets.browser.changes import changed_page, marked
from streamstate.widgets.browser.columns import shown_columns
from streamstate.widgets.browser.drawing import Column, Counts, Rows, View, WholeValue
from streamstate.widgets.browser.key_history import key_history
from streamstate.widgets.browser.marks import Marks, marks
from streamstate.widgets.browser.selection import Selection
from streamstate.widgets.browser.whole_value import whole_value
from streamstate.widgets.values import canonical, records, timestamp

if TYPE_CHECKING:
    from streamstate.snapshots.manifest import Entry
    from streamstate.state_inspect import History, Snapshot, StateTable
    from streamstate.state_inspect.forks import Forked

__all__ = ["Reader"]

_QUICK = 0.03
"""Seconds that counting may take to be done before the rows are shown, not after."""
_FORKS = 5.0
"""Seconds after which the store is asked again for forks: they are rare, and epochs may come five a second."""
_KEPT = 4_000
"""Counts that are kept: a few numbers each."""

_Count = Callable[..., int]


class Reader:
    """Builds the views of one history; one thread at a time.

    Args:
        history: the query.
    """

    def __init__(self, history: History) -> None:
        self.history = history
        self._counts: dict[tuple[str, int, int], Counts] = {}
        self._matching: dict[object, int] = {}
        self._took = 0.0
        self._marked: tuple[object, Marks] = (None, Marks())
        self._forks: tuple[float, list[Forked]] = (0.0, [])

    def view(self, selection: Selection, *, whole: bool = True) -> View:
        """What a selection shows now.

        Args:
            selection: what is chosen.
            whole: whether the counts of changes are wanted although they take long.

        Raises:
            UnknownTableError: the history has no such table.
            UnknownEpochError: the epoch was never captured.
        """
        entries = self.history.entries()
        captured = [entry.epoch for entry in entries if entry.captured]
        if not captured:
            return View(self.history.name, selection=selection)
        epoch = chosen_epoch(selection, captured)
        snapshot = self.history.at(epoch)
        name = self.table_name(selection.table)
        before = captured[captured.index(epoch) - 1] if epoch != captured[0] else None
        counts = self._counted(name, before, epoch, whole=whole or selection.rows == "changed")
        table = snapshot.table(name)
        shown, window = shown_columns(table.key_columns, table.value_columns, selection)
        if selection.rows == "all":
            page, problem = self._state_page(table, snapshot, before, shown, selection)
        elif before is None or counts is None:
            page, problem = Rows(shown), ""
        else:
            page, problem = self._changed_page(table, before, shown, selection, counts.total)
        told = self._marks(entries)
        names = None if window is None else {column.name for column in shown}
        return View(
            name=self.history.name,
            tables=self.history.tables(),
            table=name,
            columns=[*table.key_columns, *table.value_columns],
            captured=captured,
            epoch=epoch,
            facts=_facts(snapshot),
            marks=told,
            total=snapshot.rows()[name],
            counts=counts,
            counting=counts is None and before is not None,
            page=replace(page, window=window),
            history=key_history(self.history, name, selection.key, names) if selection.key else None,
            value=self._value(table, before, selection),
            problem=problem,
            selection=selection,
        )

    def table_name(self, name: str | None) -> str:
        """The table that is meant; the first where none is named."""
        tables = self.history.tables()
        if name is not None and name not in tables:
            raise UnknownTableError.among("table", name, tables, where=f"in {self.history.name!r}")
        return name or tables[0]

    def forget(self) -> None:
        """Let go of what is kept."""
        self._counts.clear()
        self._matching.clear()
        self._marked = (None, Marks())
        self._forks = (0.0, [])

    def _counted(self, table: str, before: int | None, epoch: int, *, whole: bool) -> Counts | None:
        """How many keys differ from the previous epoch; None before the first, and where that is left for later."""
        if before is None:
            return None
        known = self._counts.get((table, before, epoch))
        if known is None and (whole or self._took < _QUICK):
            began = time.monotonic()
            found = self.history.diff(before, epoch, table=table).counts
            self._took = time.monotonic() - began
            known = Counts(before, found["added"], found["changed"], found["removed"])
            _keep(self._counts, (table, before, epoch), known)
        return known

    def _state_page(
        self, table: StateTable, snapshot: Snapshot, before: int | None, columns: Sequence[Column], selection: Selection
    ) -> tuple[Rows, str]:
        """One page of the state, and what is wrong with the condition."""
        everything = snapshot.rows()[table.name]
        filters, matching, problem = self._filtered(table.count, table, selection, None, everything)
        start, arguments = _place(selection, table, matching)
        page = records(table.page(start, selection.size, **arguments, **filters))
        keys = [{name: record[name] for name in table.key_columns} for record in page]
        rows = marked(page, keys, columns, self._table_before(table, before), since=before)
        return Rows(columns, rows, start, matching, keys, _chosen(keys, selection.key)), problem

    def _changed_page(
        self, table: StateTable, before: int, columns: Sequence[Column], selection: Selection, everything: int
    ) -> tuple[Rows, str]:
        """One page of what changed, and what is wrong with the condition."""
        from streamstate.state_inspect.differences.changed_rows import ChangedRows  # with pandas, which takes its time

        among = ChangedRows(self.history, table.name, before, table.epoch)
        filters, matching, problem = self._filtered(among.count, table, selection, before, everything)
        start, arguments = _place(selection, table, matching)
        found = among.page(start, selection.size, **arguments, **filters)
        keys = found.rows.select(table.key_columns).to_pylist()
        return Rows(columns, changed_page(found, columns), start, matching, keys, _chosen(keys, selection.key)), problem

    def _table_before(self, table: StateTable, before: int | None) -> StateTable | None:
        if before is None:
            return None
        snapshot = self.history.at(before)
        return snapshot.table(table.name) if table.name in snapshot.tables() else None

    def _filtered(
        self, count: _Count, table: StateTable, selection: Selection, before: int | None, everything: int
    ) -> tuple[dict[str, Any], int, str]:
        """What rows have to satisfy, how many do, and what is wrong with the condition, which then does not count.

        Args:
            count: counts the rows that satisfy a condition.
            table: the state table.
            selection: what is chosen.
            before: the previous epoch where only what changed is looked at.
            everything: how many rows there are without a condition.
        """
        known = {*table.key_columns, *table.value_columns}
        contains = {selection.column: selection.text} if selection.text and selection.column in known else None
        where = selection.where.strip() or None
        if where is None and contains is None:
            return {}, everything, ""
        at = (table.name, table.epoch, before, str(contains), where)
        if at not in self._matching:
            try:
                _keep(self._matching, at, count(where=where, contains=contains))
            except (InvalidSQLError, UnknownColumnError) as error:
                if where is None:
                    raise
                without = Selection(rows=selection.rows, column=selection.column, text=selection.text)
                filters, matching, _ = self._filtered(count, table, without, before, everything)
                return filters, matching, str(error)
        return {"where": where, "contains": contains}, self._matching[at], ""

    def _value(self, table: StateTable, before: int | None, selection: Selection) -> WholeValue | None:
        """The whole value of the cell that is open; of a key that was just removed, what it was."""
        if selection.cell is None:
            return None
        key, column = selection.cell
        held = table.lookup(**key)
        if held is None and (earlier := self._table_before(table, before)) is not None:
            held = earlier.lookup(**key)
        return None if held is None or column not in held else whole_value(column, key, held[column])

    def _marks(self, entries: Sequence[Entry]) -> Marks:
        """The marks of the slider, found again when there are new epochs."""
        now = time.monotonic()
        if not self._forks[0] or now - self._forks[0] > _FORKS:
            self._forks = now, self.history.forks()
        state = (len(entries), entries[-1].epoch, entries[0].epoch, self._forks[1])
        if self._marked[0] != state:
            self._marked = state, marks(self.history.name, entries, self._forks[1])
        return self._marked[1]


def chosen_epoch(selection: Selection, captured: Sequence[int]) -> int:
    """The epoch that a selection means.

    Raises:
        UnknownEpochError: where it was not captured.
    """
    if selection.epoch is None:
        return captured[-1]
    if selection.epoch in captured:
        return selection.epoch
    near = sorted(sorted(captured, key=lambda known: abs(known - (selection.epoch or 0)))[:2])
    raise UnknownEpochError(f"Epoch {selection.epoch} was not captured.\nThe nearest that were: {near}.")


def _place(selection: Selection, table: StateTable, matching: int) -> tuple[int, dict[str, Any]]:
    """Where the page begins, the last one at most, and the order, where there is such a column at the epoch."""
    known = {*table.key_columns, *table.value_columns}
    order_by = selection.order_by if selection.order_by in known else None
    start = min(selection.page, max(0, (matching - 1) // selection.size)) * selection.size
    return start, {"order_by": order_by, "descending": selection.descending}


def _keep(kept: dict[Any, Any], at: object, value: object) -> None:
    if len(kept) >= _KEPT:
        kept.clear()
    kept[at] = value


def _chosen(keys: Sequence[Mapping[str, Any]], key: Mapping[str, Any] | None) -> int | None:
    """The row of the key whose history is open, if it is on the page."""
    wanted = canonical(key)
    return next((at for at, each in enumerate(keys) if key and canonical(each) == wanted), None)


def _facts(snapshot: Snapshot) -> list[tuple[str, str]]:
    """What the manifest says of the epoch."""
    known = (("committed", snapshot.committed_at), ("watermark", snapshot.watermark))
    return [(label, _moment(value)) for label, value in known if value is not None]


def _moment(value: dt.datetime) -> str:
    return "none yet" if value.timestamp() <= 0 else timestamp(value)
