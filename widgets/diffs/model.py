"""Builds a diff view's drawings from a history, holding the diff while the same epochs are looked at."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.errors import UnknownTableError
from streamstate.state_inspect.branches.ancestry import branch_names
from streamstate.state_inspect.moments import relative_epoch
from streamstate.widgets.diffs import static
from streamstate.widgets.diffs.drawing import Column, DiffDrawing, Movers, Rows, Side
from streamstate.widgets.diffs.movers import MOVERS, movers_chart
from streamstate.widgets.diffs.rows import DIFFERENCE, Record, finite, key_of, page_columns, record_rows, records_of
from streamstate.widgets.diffs.selection import LIVE, Selection, changed, previous, resolved
from streamstate.widgets.model import Drawing, Focus, ViewModel
from streamstate.widgets.values import canonical, timestamp

if TYPE_CHECKING:
    from streamstate.state_inspect import Diff, History
    from streamstate.state_inspect.differences.held_rows import HeldRows

__all__ = ["DiffModel"]


class DiffModel(ViewModel[Selection]):
    """Reads one history, or two branches, one drawing at a time whichever threads ask."""

    kind = "diffs"

    def __init__(self, history: History, other: History | None = None) -> None:
        self.history = history
        self.other = other or history
        self.branches = other is not None
        self.name = " → ".join(branch_names(history, other)) if other else history.name
        self._lock = threading.Lock()
        self._diff: Diff | None = None
        self._held: HeldRows | None = None

    def newest(self) -> object:
        """The epochs there are now."""
        with self._lock:
            return self.history.captured(), self.other.captured()

    def check(self, selection: Selection) -> None:
        """Raise where an epoch cannot be meant or was not captured, or there is no such table."""
        for history, epoch in ((self.history, selection.a), (self.other, selection.b)):
            captured = history.captured()
            if isinstance(epoch, str):
                relative_epoch(epoch, captured[-1] if captured else 0)
            if captured:
                history.at(epoch)
        if self.history.captured():
            self._table_name(selection.table)

    def drawing(self, selection: Selection) -> Drawing:
        """What differs between the two epochs.

        Raises:
            UnknownTableError: the history has no such table.
            InvalidArgumentError: an epoch cannot be meant.
        """
        with self._lock:
            drawn = self._drawing(selection)
        return Drawing(drawn.message(), drawn)

    def acted(self, selection: Selection, action: str, value: Any, kept: Any) -> Selection:
        """Rows and bars are named by number, never by value."""
        if action in ("key", "mover"):
            key = _key_at(action, value, kept)
            return selection if key is None else replace(selection, key=key)
        if self.branches and action in ("swap", "previous"):
            return selection  # the sides are two queries'
        with self._lock:
            captured = (self.other if action == "follow" else self.history).captured()
        return changed(selection, action, value, captured)

    def text(self, drawing: Drawing) -> str:
        """The drawing in one line."""
        return static.summary(drawing.kept)

    def html(self, drawing: Drawing) -> str:
        """The drawing as a table and a still picture."""
        return static.html(drawing.kept)

    def focus(self, selection: Selection) -> Focus:
        """The two epochs, the table and the key; while it follows, only that."""
        with self._lock:
            captured = self.history.captured()
            table = selection.table or next(iter(self.history.tables()), None)
        if selection.following or self.branches or not captured:
            return Focus(table=table, key=selection.key, live=selection.following and not self.branches)
        a, b = sorted(resolved(epoch, captured)[1] for epoch in (selection.a, selection.b))
        return Focus(between=(a, b), table=table, key=selection.key)

    def focused(self, selection: Selection, focus: Focus) -> Selection:
        """Of one epoch, what led to it: the later of the two becomes that epoch."""
        with self._lock:
            captured, tables = self.history.captured(), self.history.tables()
        moved = selection
        if focus.table in tables and focus.table != (moved.table or tables[0]):
            moved = changed(moved, "table", focus.table, captured)
        if self.branches:
            pass  # another view's epochs are of one query
        elif focus.between is not None:
            moved = replace(moved, a=focus.between[0], b=focus.between[1], page=0)
        elif focus.live:
            moved = moved if moved.following else replace(moved, b=LIVE, page=0)
        elif focus.epoch is not None and captured:
            moved = _led_to(moved, focus.epoch, captured)
        return moved if focus.key is None else replace(moved, key=focus.key)

    def release(self) -> None:
        """Let go of the diff that is held."""
        with self._lock:
            self._let_go()

    def _let_go(self) -> None:
        if self._held is not None:
            self._held.close()
        self._diff = self._held = None

    def _table_name(self, name: str | None) -> str:
        tables = self.history.tables()
        if name is not None and name not in tables:
            raise UnknownTableError.among("table", name, tables, where=f"in {self.name!r}")
        return name or tables[0]

    def _drawing(self, selection: Selection) -> DiffDrawing:
        captured, others = self.history.captured(), self.other.captured()
        if not captured or not others:
            return DiffDrawing(self.name, selection)
        name = self._table_name(selection.table)
        a, b = resolved(selection.a, captured), resolved(selection.b, others)
        diff, held = self._compared(a[1], b[1], name)
        columns = _columns(diff)
        page, keys = _page(held, columns, selection)
        movers, moved = _movers(held, columns, selection.mover)
        return DiffDrawing(
            name=self.name,
            selection=selection,
            tables=self.history.tables(),
            table=name,
            captured=captured,
            others=others if self.branches else (),
            sides=(self._side(self.history, *a, name), self._side(self.other, *b, name)),
            counts=diff.counts,
            columns=columns,
            page=page,
            movers=movers,
            keys=keys,
            moved=moved,
        )

    def _compared(self, a: int, b: int, table: str) -> tuple[Diff, HeldRows]:
        """The diff, kept while the same epochs are looked at."""
        kept = self._diff
        if kept is None or self._held is None or (kept.a, kept.b, kept.table) != (a, b, table):
            self._let_go()
            self._diff = kept = self.history.diff(a, self.other.at(b), table)
            self._held = kept.held()
        return kept, self._held

    def _side(self, history: History, asked: int, epoch: int, table: str) -> Side:
        snapshot = history.at(epoch)
        committed, watermark = (
            timestamp(moment) if isinstance(moment, dt.datetime) and moment.timestamp() > 0 else ""
            for moment in (snapshot.committed_at, snapshot.watermark)
        )
        rows = snapshot.rows().get(table, 0)
        query = history.name if self.branches else ""
        return Side(epoch, rows, committed, watermark, None if asked == epoch else asked, query)


def _columns(diff: Diff) -> list[Column]:
    keys = [Column(name, key=True) for name in diff.key_columns]
    return keys + [Column(name, moves=moves) for name, moves in diff.value_columns.items()]


def _page(held: HeldRows, columns: Sequence[Column], selection: Selection) -> tuple[Rows, list[Mapping[str, Any]]]:
    matching = held.count(change=selection.change, contains=selection.text)
    start = min(selection.page, max(0, (matching - 1) // selection.size)) * selection.size
    at, by_size = _sorted_by(columns, selection)
    frame = held.page(
        start,
        selection.size,
        change=selection.change,
        contains=selection.text,
        order_by=at,
        by_size=by_size,
        descending=selection.descending,
    )
    records = records_of(frame)
    keys = [key_of(record, columns) for record in records]
    chosen = canonical(selection.key) if selection.key else None
    found = next((at for at, key in enumerate(keys) if chosen is not None and canonical(key) == chosen), None)
    return Rows(record_rows(records, columns), start, matching, found), keys


def _sorted_by(columns: Sequence[Column], selection: Selection) -> tuple[int | None, bool]:
    """The place in a page to sort by, and whether by how far it moved; a column that is not there sorts nothing."""
    for at, column in enumerate(columns):
        if column.name == selection.order_by:
            places = page_columns(columns)[at]
            by_size = selection.by_size and column.moves
            return (places[DIFFERENCE] if by_size else places[-1] if column.key else places[1]), by_size
    return None, False


def _movers(
    held: HeldRows, columns: Sequence[Column], wanted: str | None
) -> tuple[Movers | None, list[Mapping[str, Any]]]:
    """The movers of the column that was asked for, or of the first that moved."""
    moving = [at for at, column in enumerate(columns) if column.moves]
    names = [columns[at].name for at in moving]
    if not moving:
        return None, []
    first = [at for at in moving if columns[at].name == wanted] or moving
    for at in first:
        records = _largest(held, page_columns(columns)[at][DIFFERENCE])
        if records or at == first[-1]:
            chart = movers_chart(records, columns, at) if records else None
            return Movers(columns[at].name, names, chart, len(records)), [key_of(record, columns) for record in records]
    return None, []


def _largest(held: HeldRows, place: int) -> list[Record]:
    frame = held.page(0, MOVERS, change="changed", order_by=place, by_size=True, descending=True)
    return [record for record in records_of(frame) if record[place] and finite(record[place])]


def _key_at(action: str, value: Any, kept: Any) -> Mapping[str, Any] | None:
    """The key of a row of the page, or of a bar, that a person clicked."""
    try:
        keys = kept.keys if action == "key" else kept.moved
        at = int(value if action == "key" else value["row"][0])
        return keys[at] if 0 <= at < len(keys) else None
    except (AttributeError, KeyError, IndexError, TypeError, ValueError):
        return None  # a page can send anything, and a selection that is cleared names no bar


def _led_to(selection: Selection, epoch: int, captured: Sequence[int]) -> Selection:
    later = resolved(epoch, captured)[1]
    earlier = resolved(selection.a, captured)[1]
    if resolved(selection.b, captured)[1] == later and not selection.following:
        return selection
    return replace(selection, a=earlier if earlier < later else previous(later, captured), b=later, page=0)
