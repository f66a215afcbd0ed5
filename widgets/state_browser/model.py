"""The state browser: one query's state through its epochs."""

from __future__ import annotations

import datetime as dt
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.store.consistent_read import consistent_read
from streamstate.state_inspect.cell_text import canonical, timestamp
from streamstate.state_inspect.expiry_times import expiry_columns
from streamstate.state_inspect.results.naming import naming_note
from streamstate.state_inspect.results.results import state_name
from streamstate.state_inspect.temporal_index.background_loading import ReadAhead
from streamstate.widgets.model import SAVED_PAGES, Drawing, Focus, ViewModel, chosen_table, clicked, tables_shown
from streamstate.widgets.state_browser.actions import BrowserSelection, acted
from streamstate.widgets.state_browser.drawing import BrowserDrawing, BrowserPage, ChangeCounts, WholeValue
from streamstate.widgets.state_browser.marks import SliderMarks, slider_marks
from streamstate.widgets.state_browser.rows import (
    RowReader,
    beginnings,
    key_panel,
    remember,
    shown_columns,
    table_at,
    whole_value,
)
from streamstate.widgets.view import View
from streamstate.widgets.why import WhyReader

if TYPE_CHECKING:
    from streamstate.snapshots.store.entries import Entry
    from streamstate.snapshots.store.registry import ForkPoint
    from streamstate.state_inspect import History, Snapshot, StateTable

_QUICK = 0.03
"""Seconds: counting that takes less is done before the rows are shown, otherwise after."""
_SAVED_ORDERS = 8
"""Columns that a saved file can sort by."""
_SAVED_WIDE = 3
"""Columns to sort by, and rows with a history, in a saved file of a wide table, which takes longer to draw."""
_FORKS = 5.0
"""Seconds between two look-ups of forks: they are rare, and there may be five epochs a second."""


class BrowserModel(ViewModel[BrowserSelection]):
    """Reads one history; a lock allows one drawing at a time."""

    kind = "browser"

    def __init__(self, history: History) -> None:
        self.history = history
        self.name = history.name
        self._lock = threading.Lock()
        self._rows = RowReader(history)
        self._counts: dict[tuple[str, int, int], ChangeCounts] = {}
        self._ahead = ReadAhead(lambda table, epoch: history.recorded.interval_table(table, epoch, epoch))
        self._took = 0.0
        self._marked: tuple[object, SliderMarks] = (None, SliderMarks())
        self._forks: tuple[float, list[ForkPoint]] = (0.0, [])
        self._why = WhyReader(history)

    def newest(self) -> object:
        """Return the captured epochs, and whether changes can be explained."""
        with self._lock:
            return self.history.captured(), self._why.why_not()

    def view(self, selection: BrowserSelection, *, whole: bool = True) -> BrowserDrawing:
        """Return the table at its epoch, and its changes; without ``whole``, only those that are quick to find."""
        with self._lock:
            shown = replace(self._view(selection, whole=whole), why_not=self._why.why_not())
        if selection.why is None or shown.history is None or shown.table is None:
            return shown
        # Without the lock: reading takes seconds, and the page may act meanwhile.
        return replace(shown, why=self._why.panel(shown.table, selection.key or {}, selection.why, whole=whole))

    def serve(self) -> None:
        """Explain no changes by their input."""
        self._why.serve()

    @consistent_read()
    def quick(self, selection: BrowserSelection) -> Drawing:
        """Return the drawing without counts and an explanation that take long; the next drawing has them."""
        view = self.view(selection, whole=False)
        if view.epoch is not None and view.table is not None:
            state = state_name(self.history.recorded, view.table)
            self._ahead.want(state, self.history.recorded.beside(state, view.epoch))
        return Drawing(view.message(), view, unfinished=view.counting or (view.why is not None and view.why.busy))

    def acted(self, selection: BrowserSelection, action: str, value: Any, kept: Any) -> BrowserSelection:
        """Return the selection after an action. A page names rows by number, never by value."""
        if action in ("key", "cell") and value is not None:
            value = _clicked(value, kept) if kept else getattr(selection, action)
        if action == "why":
            self._why.again()
        return acted(selection, action, value)

    def playing(self, selection: BrowserSelection) -> bool:
        """True if the epochs play."""
        return selection.playing

    def paused(self, selection: BrowserSelection) -> BrowserSelection:
        """Return the same epoch, paused."""
        return replace(selection, playing=False)

    def played(self, selection: BrowserSelection) -> BrowserSelection:
        """Return the next captured epoch; playing stops at the last one."""
        with self._lock:
            captured = self.history.captured()
        after = bisect_right(captured, selection.epoch or 0)
        if after == len(captured):
            return replace(selection, playing=False)
        return replace(selection, epoch=captured[after])

    def focus(self, selection: BrowserSelection) -> Focus:
        """Return the epoch, the table and the key."""
        return Focus(selection.epoch, table=selection.table, key=selection.key, live=selection.following)

    def focused(self, selection: BrowserSelection, focus: Focus) -> BrowserSelection:
        """Return the table, epoch and key of another view; of two epochs the later."""
        moved = selection
        if focus.table is not None and focus.table != chosen_table(self.history, selection.table):
            moved = acted(moved, "table", focus.table)
        if focus.live:
            moved = acted(moved, "follow", None)
        epoch = focus.between[1] if focus.between and focus.epoch is None else focus.epoch
        if epoch is not None:
            moved = acted(moved, "epoch", epoch)
        same = focus.key is None or canonical(focus.key) == canonical(moved.key)
        return moved if same else acted(moved, "key", focus.key)

    def saved_actions(self, selection: BrowserSelection, drawing: Drawing) -> Iterable[tuple[str, Any]]:
        """Return the next likely actions: changed rows, other tables, orders, pages, and histories of rows."""
        view: BrowserDrawing = drawing.kept
        orders, rows = (_SAVED_WIDE,) * 2 if view.page.window else (_SAVED_ORDERS, selection.size)
        if view.why is not None:
            yield "why", None
        yield "rows", "all" if selection.rows == "changed" else "changed"
        yield from (("table", name) for name in view.tables if name != view.table)
        yield from (("sort", column.name) for column in view.page.columns[:orders])
        pages = -(-view.page.matching // selection.size)
        yield from (("page", page) for page in range(min(pages, SAVED_PAGES)) if page != selection.page)
        yield "key", None
        yield from (("key", row) for row in range(len(view.page.rows[:rows])))

    def check(self, selection: BrowserSelection) -> None:
        """Raise what :meth:`view` raises for a table or an epoch that does not exist."""
        if self.history.captured():
            if selection.epoch is not None:
                self.history.recorded.entry(selection.epoch)
            chosen_table(self.history, selection.table)

    def release(self) -> None:
        """Drop the cache between drawings."""
        self._ahead.stop()
        with self._lock:
            self._rows.forget()
            self._counts.clear()
            self._marked = (None, SliderMarks())
            self._forks = (0.0, [])

    def _view(self, selection: BrowserSelection, *, whole: bool) -> BrowserDrawing:
        entries, captured = self.history.recorded.entries(), self.history.captured()
        if not captured:
            return BrowserDrawing(self.history.name, selection=selection)
        epoch = captured[-1] if selection.epoch is None else self.history.recorded.entry(selection.epoch).epoch
        snapshot = self.history.at(epoch)
        name = chosen_table(self.history, selection.table)
        before = captured[bisect_left(captured, epoch) - 1] if epoch != captured[0] else None
        counts = self._counted(name, before, epoch, whole=whole or selection.rows == "changed")
        table = snapshot.table(name)
        total = table.count()
        expiring = expiry_columns(self.history.recorded, name)
        columns, window = shown_columns(table.key_columns, table.value_columns, selection, expiring)
        if selection.rows == "all":
            page, problem = self._rows.state_page(table, before, columns, selection, total)
        elif before is None or counts is None:
            page, problem = BrowserPage(columns), ""
        else:
            page, problem = self._rows.changed_page(table, before, columns, selection, counts.total)
        names = None if window is None else {column.name for column in columns}
        return BrowserDrawing(
            name=self.history.name,
            tables=tables_shown(self.history),
            table=name,
            columns=[*table.key_columns, *table.value_columns],
            naming=naming_note(self.history.recorded, name),
            copies=beginnings(table, self.history.recorded.layout.root),
            captured=captured,
            epoch=epoch,
            facts=_facts(snapshot),
            marks=self._marks(entries),
            total=total,
            counts=counts,
            counting=counts is None and before is not None,
            page=replace(page, window=window),
            history=key_panel(self.history, name, selection.key, names) if selection.key else None,
            value=self._value(table, before, selection),
            problem=problem,
            selection=selection,
        )

    def _counted(self, table: str, before: int | None, epoch: int, *, whole: bool) -> ChangeCounts | None:
        """Count the keys that differ from the previous epoch; None without one, or if counting is left for later."""
        if before is None:
            return None
        known = self._counts.get((table, before, epoch))
        if known is None and (whole or self._took < _QUICK):
            began = time.monotonic()
            found = self.history.diff(before, epoch, table=table).counts
            self._took = time.monotonic() - began
            known = ChangeCounts(before, found["added"], found["changed"], found["removed"])
            remember(self._counts, (table, before, epoch), known)
        return known

    def _value(self, table: StateTable, before: int | None, selection: BrowserSelection) -> WholeValue | None:
        """Return the whole value of the cell that is open; if its key was just removed, the value before."""
        if selection.cell is None:
            return None
        key, column = selection.cell
        held = table.lookup(key=key)
        if held is None and before is not None and (earlier := table_at(self.history, table.name, before)) is not None:
            held = earlier.lookup(key=key)
        return None if held is None or column not in held else whole_value(column, key, held[column])

    def _marks(self, entries: Sequence[Entry]) -> SliderMarks:
        """Return the marks of the slider, updated when there are new epochs."""
        now = time.monotonic()
        if not self._forks[0] or now - self._forks[0] > _FORKS:
            self._forks = now, self.history.forks()
        state = (len(entries), entries[-1].epoch, entries[0].epoch, self._forks[1])
        if self._marked[0] != state:
            self._marked = state, slider_marks(self.history.name, entries, self._forks[1])
        return self._marked[1]


def _clicked(value: Any, kept: BrowserDrawing) -> Any:
    """Return the key of a row, or the key and column of a cell; None if there is no such row."""
    if not isinstance(value, Mapping):
        return clicked(kept.page.keys, value)
    key, column = clicked(kept.page.keys, value.get("row")), clicked(kept.page.columns, value.get("column"))
    return None if key is None or column is None else (key, column.name)


def _facts(snapshot: Snapshot) -> list[tuple[str, str]]:
    """Return the manifest's facts about the epoch."""
    known = (("committed", snapshot.committed_at), ("watermark", snapshot.watermark))
    return [(label, _moment(value)) for label, value in known if value is not None]


def _moment(value: dt.datetime) -> str:
    return "none yet" if value.timestamp() <= 0 else timestamp(value)


class StateBrowser(View[BrowserSelection]):
    """Shows the state of a query: an epoch slider, the table at that epoch, and what changed.

    In JupyterLab the view is live: it follows new epochs while the query runs, pages, sorts and filters in the
    kernel, and shows a key's history when its row is clicked. In a saved notebook and in exported HTML it is a
    still table; elsewhere, a line of text.

    Args:
        history: the query, ``store[name]``.
        table: the state table to show first; by default the query's first.
        epoch: the epoch to show first; by default the newest is followed.

    Raises:
        UnknownTableError: the query has no such table.
        UnknownEpochError: the epoch was not captured.

    Example:
        >>> StateBrowser(store["delays"])
        delays: table result · epoch 61 (captured: 0–61) · 5 rows · +0 ~5 −0 since epoch 60 · committed ...
    """

    def __init__(self, history: History, table: str | None = None, *, epoch: int | None = None) -> None:
        super().__init__(BrowserModel(history), BrowserSelection(table=table, epoch=epoch))
