"""Builds the state browser's drawings from a history, keeping what two in a row have in common."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamstate.widgets.browser import static
from streamstate.widgets.browser.drawing import View
from streamstate.widgets.browser.reader import Reader, chosen_epoch
from streamstate.widgets.browser.selection import Selection, changed
from streamstate.widgets.model import Drawing, Focus, ViewModel

if TYPE_CHECKING:
    from streamstate.state_inspect import History

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
        self._reader = Reader(history)

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

    def quick(self, selection: Selection) -> Drawing:
        """The same without counts that take long: they come next."""
        view = self.view(selection, whole=False)
        return Drawing(view.message(), view, unfinished=view.counting)

    def acted(self, selection: Selection, action: str, value: Any, kept: Any) -> Selection:
        """Rows are named by number, never by value."""
        if action in ("key", "cell") and value is not None:
            value = _meant(value, kept) if kept else getattr(selection, action)
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
        if focus.table is not None and focus.table != self._reader.table_name(selection.table):
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
            chosen_epoch(selection, captured)
            self._reader.table_name(selection.table)

    def view(self, selection: Selection, *, whole: bool = True) -> View:
        """What ``selection`` shows now; without ``whole``, counts that take long are left for later.

        Raises:
            UnknownTableError: the history has no such table.
            UnknownEpochError: the epoch was never captured.
        """
        with self._lock:
            return self._reader.view(selection, whole=whole)

    def release(self) -> None:
        """Let go of what is kept between views."""
        with self._lock:
            self._reader.forget()


def _meant(value: Any, kept: View) -> Any:
    """The key of a row, or the cell of a row and a column; None where there is no such row."""
    row = int(value["row"] if isinstance(value, Mapping) else value)
    if not 0 <= row < len(kept.page.keys):
        return None
    if not isinstance(value, Mapping):
        return kept.page.keys[row]
    column = int(value["column"])
    return (kept.page.keys[row], kept.page.columns[column].name) if 0 <= column < len(kept.page.columns) else None
