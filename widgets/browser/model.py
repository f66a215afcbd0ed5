"""Builds the state browser's drawings from a history, keeping what two in a row have in common."""

from __future__ import annotations

import datetime as dt
import threading
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.errors import UnknownEpochError, UnknownTableError
from streamstate.widgets.browser import static
from streamstate.widgets.browser.changes import changed_page, counts, marked
from streamstate.widgets.browser.drawing import Column, Rows, View
from streamstate.widgets.browser.key_history import key_history
from streamstate.widgets.browser.selection import Selection, changed
from streamstate.widgets.model import Drawing, Focus, ViewModel
from streamstate.widgets.values import canonical, plain, records, timestamp

if TYPE_CHECKING:
    from streamstate.state_inspect import Diff, History, StateTable

__all__ = ["BrowserModel"]

_SAVED_PAGES = 5
"""Pages of a table that a saved file is worth filling with."""


class BrowserModel(ViewModel[Selection]):
    """Reads one history, one drawing at a time whichever threads ask."""

    kind = "browser"

    def __init__(self, history: History) -> None:
        self.history = history
        self.name = history.name
        self._lock = threading.Lock()
        self._manifest: tuple[int, dict[int, Mapping[str, Any]]] = (-1, {})
        self._diff: Diff | None = None

    def newest(self) -> object:
        """The epochs there are now."""
        with self._lock:
            return self.history.captured()

    def drawing(self, selection: Selection) -> Drawing:
        """The table at its epoch, and what changed.

        Raises:
            UnknownTableError: the history has no such table.
            UnknownEpochError: the epoch was never captured.
        """
        view = self.view(selection)
        return Drawing(view.message(), view)

    def acted(self, selection: Selection, action: str, value: Any, kept: Any) -> Selection:
        """Rows are named by number, never by value."""
        if action == "key" and value is not None:
            value = kept.page.keys[int(value)] if kept else selection.key
        return changed(selection, action, value)

    def text(self, drawing: Drawing) -> str:
        """The drawing in one line."""
        return static.summary(drawing.kept)

    def html(self, drawing: Drawing) -> str:
        """The drawing as a table."""
        return static.html(drawing.kept)

    def playing(self, selection: Selection) -> bool:
        """Whether the next epoch comes by itself."""
        return selection.playing

    def paused(self, selection: Selection) -> Selection:
        """The epoch stays."""
        return replace(selection, playing=False)

    def played(self, selection: Selection) -> Selection:
        """The next epoch that was captured; at the end it stops."""
        with self._lock:
            captured = self.history.captured()
        after = bisect_right(captured, selection.epoch or 0)
        if after == len(captured):
            return replace(selection, playing=False)
        return replace(selection, epoch=captured[after])

    def focus(self, selection: Selection) -> Focus:
        """The epoch, the table and the key."""
        return Focus(selection.epoch, table=selection.table, key=selection.key, live=selection.following)

    def focused(self, selection: Selection, focus: Focus) -> Selection:
        """Another table has other columns and keys; of two epochs the later is shown."""
        moved = selection
        if focus.table is not None and focus.table != self._table_name(selection.table):
            moved = changed(moved, "table", focus.table)
        if focus.live:
            moved = changed(moved, "follow", None)
        epoch = focus.between[1] if focus.between and focus.epoch is None else focus.epoch
        if epoch is not None:
            moved = changed(moved, "epoch", epoch)
        return moved if focus.key is None else replace(moved, key=focus.key)

    def saved_actions(self, selection: Selection, drawing: Drawing) -> Iterable[tuple[str, Any]]:
        """The changes, the other tables, each order, the next pages, and the history of each row."""
        view: View = drawing.kept
        yield "rows", "all" if selection.rows == "changed" else "changed"
        yield from (("table", name) for name in view.tables if name != view.table)
        yield from (("sort", column.name) for column in view.page.columns)
        pages = -(-view.page.matching // selection.size)
        yield from (("page", page) for page in range(min(pages, _SAVED_PAGES)) if page != selection.page)
        yield "key", None
        yield from (("key", row) for row in range(len(view.page.rows)))

    def check(self, selection: Selection) -> None:
        """Raise what :meth:`drawing` would for a table or an epoch that does not exist."""
        captured = self.history.captured()
        if captured:
            _epoch(selection, captured)
            self._table_name(selection.table)

    def view(self, selection: Selection) -> View:
        """What ``selection`` shows now.

        Raises:
            UnknownTableError: the history has no such table.
            UnknownEpochError: the epoch was never captured.
        """
        with self._lock:
            captured = self.history.captured()
            if not captured:
                return View(self.name, selection=selection)
            return self._view(selection, captured)

    def _view(self, selection: Selection, captured: Sequence[int]) -> View:
        epoch = _epoch(selection, captured)
        name = self._table_name(selection.table)
        table = self.history.at(epoch).table(name)
        before = captured[captured.index(epoch) - 1] if epoch != captured[0] else None
        diff = self._difference(before, epoch, name)
        return View(
            name=self.name,
            tables=self.history.tables(),
            table=name,
            captured=captured,
            epoch=epoch,
            facts=self._facts(epoch, captured),
            total=table.count(),
            counts=counts(diff) if diff else None,
            page=self._page(table, diff, selection),
            history=key_history(self.history, name, selection.key) if selection.key else None,
            selection=selection,
        )

    def release(self) -> None:
        """Let go of what is kept between views."""
        with self._lock:
            self._diff = None
            self._manifest = (-1, {})

    def _table_name(self, name: str | None) -> str:
        tables = self.history.tables()
        if name is not None and name not in tables:
            raise UnknownTableError.among("table", name, tables, where=f"in {self.name!r}")
        return name or tables[0]

    def _page(self, table: StateTable, diff: Diff | None, selection: Selection) -> Rows:
        keys = set(table.key_columns)
        columns = [Column(name, name in keys) for name in (*table.key_columns, *table.value_columns)]
        if selection.rows == "changed":
            return changed_page(diff, columns, selection) if diff else Rows(columns)
        return self._state_page(table, diff, columns, selection)

    def _state_page(
        self, table: StateTable, diff: Diff | None, columns: Sequence[Column], selection: Selection
    ) -> Rows:
        contains = {selection.column: selection.text} if selection.text and selection.column else None
        matching = table.count(contains=contains)
        start = min(selection.page, max(0, (matching - 1) // selection.size)) * selection.size
        frame = table.page(
            start, selection.size, order_by=selection.order_by, descending=selection.descending, contains=contains
        )
        page = records(frame)
        keys = [{name: record[name] for name in table.key_columns} for record in page]
        rows = marked(page, columns, diff)
        return Rows(columns, rows, start, matching, keys, _chosen(keys, selection.key))

    def _difference(self, before: int | None, epoch: int, table: str) -> Diff | None:
        """The diff to the previous captured epoch, kept while the same epoch is looked at."""
        if before is None:
            return None
        kept = self._diff
        if kept is None or (kept.a, kept.b, kept.table) != (before, epoch, table):
            self._diff = kept = self.history.diff(before, epoch, table=table)
        return kept

    def _facts(self, epoch: int, captured: Sequence[int]) -> list[tuple[str, str]]:
        """What the manifest says of the epoch."""
        if self._manifest[0] != captured[-1]:
            frame = self.history.epochs()
            rows = records(frame[frame["status"] == "captured"])
            self._manifest = (captured[-1], {int(row["epoch"]): row for row in rows})
        row = self._manifest[1].get(epoch, {})
        known = (
            (label, plain(row.get(column)))
            for label, column in (("committed", "committed_at"), ("watermark", "watermark"))
        )
        return [(label, _shown(value)) for label, value in known if value is not None]


def _chosen(keys: Sequence[Mapping[str, Any]], key: Mapping[str, Any] | None) -> int | None:
    """The row of the key whose history is open, if it is on the page."""
    wanted = canonical(key)
    return next((at for at, each in enumerate(keys) if key and canonical(each) == wanted), None)


def _shown(value: Any) -> str:
    if isinstance(value, dt.datetime):
        return "none yet" if value.timestamp() <= 0 else timestamp(value)
    return str(value)


def _epoch(selection: Selection, captured: Sequence[int]) -> int:
    if selection.epoch is None:
        return captured[-1]
    if selection.epoch in captured:
        return selection.epoch
    near = sorted(sorted(captured, key=lambda known: abs(known - (selection.epoch or 0)))[:2])
    raise UnknownEpochError(f"Epoch {selection.epoch} was not captured.\nThe nearest that were: {near}.")
