"""The diff view: the differences between two epochs of a state table."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.store.consistent_read import consistent_read
from streamstate.state_inspect.branches.ancestors import branch_names
from streamstate.state_inspect.cell_text import canonical, timestamp
from streamstate.state_inspect.differences.diff_sql import is_duration
from streamstate.state_inspect.epoch_names import relative_epoch
from streamstate.state_inspect.expiry_times import expiry_columns
from streamstate.state_inspect.python_rows import row_tuples
from streamstate.state_inspect.results.naming import naming_note
from streamstate.state_inspect.results.results import state_name
from streamstate.widgets.diffs.actions import LIVE, DiffSelection, acted, previous, resolved
from streamstate.widgets.diffs.drawing import DiffColumn, DiffDrawing, DiffPage, DiffSide, Movers
from streamstate.widgets.diffs.rows import (
    DIFFERENCE,
    MOVERS,
    DiffRecord,
    finite,
    key_of,
    labels_of,
    movers_chart,
    record_row,
)
from streamstate.widgets.model import (
    Drawing,
    Focus,
    ViewModel,
    chosen_row,
    chosen_table,
    clicked,
    first_row,
    tables_shown,
)
from streamstate.widgets.state_browser.rows import table_at
from streamstate.widgets.view import View
from streamstate.widgets.why import WhyReader

if TYPE_CHECKING:
    from streamstate.state_inspect import Diff, History
    from streamstate.state_inspect.differences.held_rows import HeldRows

Keys = list[Mapping[str, Any]]
_PENDING = "…"
"""Instead of causes that are not known yet."""


class DiffModel(ViewModel[DiffSelection]):
    """Reads one history, or two branches; a lock allows one drawing at a time."""

    kind = "diffs"
    epoch_action = "b"

    def __init__(self, history: History, other: History | None = None) -> None:
        self.history = history
        self.second_history = other or history
        self.branches = other is not None
        self.name = " → ".join(branch_names(history, other)) if other else history.name
        self._lock = threading.Lock()
        self._diff: Diff | None = None
        self._held: HeldRows | None = None
        self._why = WhyReader(history)

    def newest(self) -> object:
        """Return the captured epochs, and whether changes can be explained."""
        with self._lock:
            return self.history.captured(), self.second_history.captured(), self._why.why_not()

    def check(self, selection: DiffSelection) -> None:
        """Raise if an epoch is invalid or was not captured, or if there is no such table."""
        for history, epoch in ((self.history, selection.a), (self.second_history, selection.b)):
            captured = history.captured()
            if isinstance(epoch, str):
                relative_epoch(epoch, captured[-1] if captured else 0)
            if captured:
                history.at(epoch)
        if self.history.captured():
            chosen_table(self.history, selection.table)

    @consistent_read()
    def quick(self, selection: DiffSelection) -> Drawing:
        """Return the drawing without causes and an explanation that take long to find; the next drawing has them."""
        view = self.view(selection, whole=False)
        reading = view.why is not None and view.why.busy
        return Drawing(view.message(), view, unfinished=reading or not view.explained)

    def view(self, selection: DiffSelection, *, whole: bool = True) -> DiffDrawing:
        """Return the differences between the two epochs; without ``whole``, only those that are quick to find."""
        shown = self._view(selection, whole=whole)
        table = shown.table
        if self.branches or table is None:
            return shown
        shown = replace(shown, why_not=self._why.why_not())
        if selection.why is None or selection.key is None:
            return shown
        # Without the lock: reading takes seconds, and the page may act meanwhile.
        return replace(shown, why=self._why.panel(table, selection.key, selection.why, whole=whole))

    def serve(self) -> None:
        """Explain no changes by their input."""
        self._why.serve()

    def _view(self, selection: DiffSelection, *, whole: bool) -> DiffDrawing:
        with self._lock:
            captured, second_captured = self.history.captured(), self.second_history.captured()
            if not captured or not second_captured:
                return DiffDrawing(self.name, selection)
            name = self._table(selection)
            a, b = resolved(selection.a, captured), resolved(selection.b, second_captured)
            diff, held = self._compared(a[1], b[1], name)
            columns = _columns(diff, expiry_columns(self.history.recorded, name))
            explained = whole or self._explains_soon(diff)
            places = held.moved()
            selection = _opened(selection, columns, places)
            page, keys = _page(held, columns, selection, causes=explained)
            movers, moved = _movers(held, columns, selection.mover, places)
            return DiffDrawing(
                name=self.name,
                selection=selection,
                tables=self._tables(),
                table=name,
                captured=captured,
                others=second_captured if self.branches else (),
                sides=(self._side(self.history, *a, name), self._side(self.second_history, *b, name)),
                counts=diff.counts,
                columns=columns,
                page=page,
                movers=movers,
                keys=keys,
                moved=moved,
                explained=explained,
                naming=naming_note(self.history.recorded, name),
            )

    def acted(self, selection: DiffSelection, action: str, value: Any, kept: Any) -> DiffSelection:
        """Return the selection after an action. A page names rows and bars by number, never by value."""
        if action in ("key", "mover"):
            key = clicked((kept.keys if action == "key" else kept.moved) if kept else (), value)
            return selection if key is None else replace(selection, key=key, why=None)
        if action == "why":
            self._why.again()
            if isinstance(value, Mapping):
                return self._asked(selection, value, kept)
        if self.branches and action in ("swap", "previous"):
            return selection  # the sides are of different queries
        with self._lock:
            captured = (self.second_history if action == "follow" else self.history).captured()
        return acted(selection, action, value, captured)

    def focus(self, selection: DiffSelection) -> Focus:
        """Return the two epochs, the table and the key; while following the newest epoch, no epochs."""
        with self._lock:
            captured = self.history.captured()
            table = selection.table or next(iter(self._tables()), None)
        if selection.following or self.branches or not captured:
            return Focus(table=table, key=selection.key, live=selection.following and not self.branches)
        a, b = sorted(resolved(epoch, captured)[1] for epoch in (selection.a, selection.b))
        return Focus(between=(a, b), table=table, key=selection.key)

    def focused(self, selection: DiffSelection, focus: Focus) -> DiffSelection:
        """Return the epochs, table and key of another view; a single epoch becomes the later of the two."""
        with self._lock:
            captured, tables = self.history.captured(), self._tables()
        moved = selection
        if focus.table in tables and focus.table != (moved.table or tables[0]):
            moved = acted(moved, "table", focus.table, captured)
        if self.branches:
            pass  # the epochs of another view are those of one query
        elif focus.between is not None:
            moved = replace(moved, a=focus.between[0], b=focus.between[1], page=0)
        elif focus.live:
            moved = moved if moved.following else replace(moved, b=LIVE, page=0)
        elif focus.epoch is not None and captured:
            moved = _until(moved, focus.epoch, captured)
        if focus.key is None or canonical(focus.key) == canonical(moved.key):
            return moved
        return replace(moved, key=focus.key, why=None)

    def saved_actions(self, selection: DiffSelection, drawing: Drawing) -> Iterable[tuple[str, Any]]:
        """Closing an explanation."""
        return [] if drawing.kept.why is None else [("why", None)]

    def epochs(self) -> Sequence[int]:
        """Return the epochs to compare to; None for two branches, whose epochs are not the same."""
        return () if self.branches else super().epochs()

    def release(self) -> None:
        """Drop the cached diff."""
        with self._lock:
            self._drop()

    @staticmethod
    def _asked(selection: DiffSelection, value: Mapping[str, Any], kept: DiffDrawing | None) -> DiffSelection:
        """Return the last change of a row between the two epochs."""
        row, key = (clicked(kept.page.rows, value), clicked(kept.keys, value)) if kept else (None, None)
        return selection if row is None or key is None else replace(selection, key=key, why=row.latest)

    def _tables(self) -> list[str]:
        """Return the tables that can be compared; two branches may compute their results in different ways."""
        return self.history.tables() if self.branches else tables_shown(self.history)

    def _table(self, selection: DiffSelection) -> str:
        if selection.table is None and self.branches:
            return self._tables()[0]
        return chosen_table(self.history, selection.table)

    def _drop(self) -> None:
        if self._held is not None:
            self._held.close()
        self._diff = self._held = None

    def _compared(self, a: int, b: int, table: str) -> tuple[Diff, HeldRows]:
        """Return the diff, cached until other epochs or another table are shown."""
        diff = self._diff
        if diff is None or self._held is None or (diff.a, diff.b, diff.table) != (a, b, table):
            self._drop()
            self._diff = diff = self.history.diff(a, self.second_history.at(b), table)
            self._held = diff.held()
        return diff, self._held

    def _explains_soon(self, diff: Diff) -> bool:
        """Check if the changes between the epochs are loaded, or quick to read."""
        first, last = sorted((diff.a, diff.b))
        return self.branches or self.history.recorded.is_soon_read(
            state_name(self.history.recorded, diff.table), first, last
        )

    def _side(self, history: History, asked: int, epoch: int, table: str) -> DiffSide:
        snapshot = history.at(epoch)
        committed, watermark = (
            timestamp(moment) if isinstance(moment, dt.datetime) and moment.timestamp() > 0 else ""
            for moment in (snapshot.committed_at, snapshot.watermark)
        )
        shown = table_at(history, table, epoch)
        rows = 0 if shown is None else shown.count()
        query = history.name if self.branches else ""
        return DiffSide(epoch, rows, committed, watermark, None if asked == epoch else asked, query)


def _columns(diff: Diff, expiring: frozenset[str]) -> list[DiffColumn]:
    columns: list[DiffColumn] = []
    at = 1  # the first place has what happened to the key
    for name in [*diff.key_columns, *diff.value_columns]:
        key, moves = name in diff.key_columns, name in diff.delta_columns
        width = 1 if key else 3 if moves else 2
        expires = name in expiring
        ratios = moves and not expires and not is_duration(diff.schema.field(name).type)
        columns.append(DiffColumn(name, key, moves, range(at, at + width), ratios, expires))
        at += width
    return columns


def _opened(selection: DiffSelection, columns: Sequence[DiffColumn], moved: Collection[int]) -> DiffSelection:
    """With the order that a diff opens with: the largest relative change of the first number that moved."""
    if not selection.opening or selection.order_by is not None:
        return selection
    first = next((column for column in columns if column.ratios and column.places[DIFFERENCE] in moved), None)
    if first is None:
        return selection
    return replace(selection, order_by=first.name, by_size=True, relative=True, descending=True)


def _page(
    held: HeldRows, columns: Sequence[DiffColumn], selection: DiffSelection, *, causes: bool
) -> tuple[DiffPage, Keys]:
    matching = held.count(change=selection.change, contains=selection.text)
    start = first_row(selection.page, selection.size, matching)
    at, by_size = _sorted_by(columns, selection)
    relative = by_size and selection.relative
    found = held.page_arrow(
        start,
        selection.size,
        change=selection.change,
        contains=selection.text,
        order_by=at,
        by_size=by_size,
        relative=relative,
        descending=selection.descending,
        causes=causes,
    )
    records = row_tuples(found)
    keys = [key_of(record, columns) for record in records]
    rows = [record_row(record, columns) for record in records]
    if not causes:
        rows = [replace(row, cause=_PENDING) for row in rows]
    return DiffPage(rows, start, matching, chosen_row(keys, selection.key)), keys


def _sorted_by(columns: Sequence[DiffColumn], selection: DiffSelection) -> tuple[int | None, bool]:
    """Return the place in a page to sort by, and whether to sort by how far it moved; None for an unknown column."""
    column = next((column for column in columns if column.name == selection.order_by), None)
    if column is None:
        return None, False
    by_size = selection.by_size and column.moves
    return column.places[DIFFERENCE if by_size else 0 if column.key else 1], by_size


def _movers(
    held: HeldRows, columns: Sequence[DiffColumn], chosen: str | None, moved: Collection[int]
) -> tuple[Movers | None, Keys]:
    """Return the movers of the chosen column, or of the first that moved."""
    moving = [column for column in columns if column.moves]
    names = [column.name for column in moving]
    candidates = [column for column in moving if column.name == chosen] or moving
    if not candidates:
        return None, []
    column = next((column for column in candidates if column.places[DIFFERENCE] in moved), candidates[-1])
    records = _largest(held, column.places[DIFFERENCE])
    labels, common = labels_of(records, columns)
    chart = movers_chart(records, labels, columns, column) if records else None
    keys = [key_of(record, columns) for record in records]
    return Movers(column.name, names, chart, len(records), common), keys


def _largest(held: HeldRows, place: int) -> list[DiffRecord]:
    found = held.page_arrow(0, MOVERS, change="changed", order_by=place, by_size=True, descending=True, causes=False)
    return [record for record in row_tuples(found) if record[place] and finite(record[place])]


def _until(selection: DiffSelection, epoch: int, captured: Sequence[int]) -> DiffSelection:
    """Return the epochs up to ``epoch``; the earlier side stays if it still is earlier."""
    later = resolved(epoch, captured)[1]
    earlier = resolved(selection.a, captured)[1]
    if resolved(selection.b, captured)[1] == later and not selection.following:
        return selection
    return replace(selection, a=earlier if earlier < later else previous(later, captured), b=later, page=0)


class DiffView(View[DiffSelection]):
    """Shows which keys were added, removed and changed between two epochs, and which moved the most.

    In JupyterLab the view is live: both epochs can be moved, the keys are paged, sorted and searched in the kernel,
    and if the later epoch is ``"live"``, the view follows the query. In a saved notebook and in exported HTML it is
    still: the counts, the first keys and a picture of the largest movers; elsewhere, a line of text.

    Args:
        history: the query, ``store[name]``.
        a: the epoch to compare from: a number, or ``"live - 10"``, which advances as epochs are captured.
        b: the epoch to compare to; by default the newest, which the view follows.
        table: the state table to show first; by default the query's first.
        other: the query of epoch ``b``, if it is another one: a fork, or the same query in another store.

    Raises:
        UnknownTableError: the query has no such table.
        UnknownEpochError: an epoch was not captured.
        InvalidArgumentError: an epoch is invalid.

    Example:
        >>> DiffView(store["delays"], 10, 12)
        delays: table result · epoch 10 → 12 · +0 ~5 −0 (added, changed, removed) · 5 → 5 rows
    """

    def __init__(
        self,
        history: History,
        a: int | str,
        b: int | str = LIVE,
        table: str | None = None,
        *,
        other: History | None = None,
    ) -> None:
        super().__init__(DiffModel(history, other), DiffSelection(a, b, table))
