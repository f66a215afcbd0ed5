"""Builds the dashboard's drawings from a history and, where there is one, the query of this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.errors import UnknownTableError
from streamstate.widgets.dashboard import static
from streamstate.widgets.dashboard.drawing import View
from streamstate.widgets.dashboard.facts import facts_of, troubles_of
from streamstate.widgets.dashboard.operators import Operators, from_plan, from_store
from streamstate.widgets.dashboard.rates import charts
from streamstate.widgets.dashboard.selection import Selection
from streamstate.widgets.dashboard.spread import Spread, spread_of
from streamstate.widgets.dashboard.watcher import Watcher
from streamstate.widgets.model import Drawing, Focus, ViewModel

if TYPE_CHECKING:
    from streamstate.snapshots.manifest import Entry
    from streamstate.state_inspect import History
    from streamstate.widgets.dashboard.sample import Sample

__all__ = ["PAUSE", "DashboardModel"]

PAUSE = 2.0
"""Seconds between two looks at how a state is spread, at least: that reads the whole state."""


class DashboardModel(ViewModel[Selection]):
    """Reads one history, and what its watcher heard of the query.

    Args:
        history: the query in the store.
        watcher: asks the query of this process.
    """

    kind = "dashboard"

    def __init__(self, history: History, watcher: Watcher) -> None:
        self.history = history
        self.name = history.name
        self._watcher = watcher
        self._lock = threading.Lock()
        self._spreads: dict[str, Spread] = {}
        self._looked = -PAUSE

    def newest(self) -> object:
        """The newest epoch, the query as it was asked last, and the epoch of the spread that would be shown."""
        self._watcher.start()
        entries = self.history.entries()
        newest = _newest(entries)
        epoch = None if newest is None else newest.epoch
        with self._lock:
            kept = next(iter(self._spreads.values()), None)
            shown = kept.epoch if kept is not None and self._resting() else epoch
        return len(entries), epoch, self._watcher.sample(), self._watcher.captured, self._watcher.late, shown

    def drawing(self, selection: Selection) -> Drawing:
        """The dashboard now; what Spark has not answered is left out.

        Raises:
            UnknownTableError: the history has no such table.
        """
        view = self.view(selection)
        return Drawing(view.message(), view)

    def view(self, selection: Selection) -> View:
        """The dashboard now, before it is put into a message.

        Raises:
            UnknownTableError: the history has no such table.
        """
        with self._lock:
            sample = self._watcher.sample()
            entries = self.history.entries()
            captured = self._watcher.captured
            view = View(
                self.name,
                state="" if sample is None else sample.state,
                troubles=troubles_of(sample, captured, late=self._watcher.late),
                charts=charts(entries, sample.batches if sample else ()),
                facts=facts_of(entries, sample, captured, ()),
            )
            newest = _newest(entries)
            if newest is None:
                return replace(view, operators=self._operators(None, sample, ()))
            tables = list(newest.tables)
            spread = self._spread(_table(selection.table, self.history.tables(), newest), entries)
            return replace(
                view,
                epoch=newest.epoch,
                facts=facts_of(entries, sample, captured, list(self._spreads.values())),
                operators=self._operators(newest, sample, tables),
                tables=tables,
                spread=spread,
                key=selection.key,
            )

    def check(self, selection: Selection) -> None:
        """Raise what :meth:`drawing` would for a table that does not exist."""
        newest = _newest(self.history.entries())
        if newest is not None:
            _table(selection.table, self.history.tables(), newest)

    def acted(self, selection: Selection, action: str, value: Any, kept: Any) -> Selection:
        """A table by its name, a key by its number on the page."""
        if action == "table" and isinstance(kept, View) and value in kept.tables:
            return selection if value == selection.table else Selection(table=value)
        if action == "key" and isinstance(kept, View) and kept.spread and isinstance(value, int):
            keys = kept.spread.keys
            if 0 <= value < len(keys):
                return Selection(table=kept.spread.table, key=keys[value].key)
        return selection

    def text(self, drawing: Drawing) -> str:
        """The drawing in one line."""
        return static.summary(drawing.kept)

    def html(self, drawing: Drawing) -> str:
        """The drawing as tables and still pictures."""
        return static.html(drawing.kept)

    def focus(self, selection: Selection) -> Focus:
        """The table and the key; a dashboard always shows the newest epoch, and asks no other view to."""
        return Focus(table=selection.table, key=selection.key)

    def focused(self, selection: Selection, focus: Focus) -> Selection:
        """Another view's table and key; its epoch changes nothing here."""
        table = focus.table if focus.table in self.history.tables() else selection.table
        if table != selection.table:
            return Selection(table=table, key=focus.key)
        return selection if focus.key is None else replace(selection, key=focus.key)

    def release(self) -> None:
        """Ask the query no longer, and let go of what was read."""
        self._watcher.stop()
        with self._lock:
            self._spreads.clear()
            self._looked = -PAUSE

    def _operators(self, newest: Entry | None, sample: Sample | None, tables: Sequence[str]) -> Operators | None:
        if sample is not None and sample.graph is not None and sample.graph.nodes:
            return from_plan(sample.graph, complete=sample.complete, progress=sample.progress, tables=tables)
        return None if newest is None else from_store(newest)

    def _spread(self, table: str, entries: Sequence[Entry]) -> Spread:
        """The table's spread at the newest epoch, or the one before where that was looked at just now."""
        newest = _newest(entries)
        known = self._spreads.get(table)
        current = known is not None and newest is not None and known.epoch == newest.epoch
        if known is None or not (current or self._resting()):
            known = spread_of(self.history, table, entries)
            self._spreads = {table: known}
            self._looked = time.monotonic()
        return known

    def _resting(self) -> bool:
        return time.monotonic() - self._looked < PAUSE


def _newest(entries: Sequence[Entry]) -> Entry | None:
    return next((entry for entry in reversed(entries) if entry.captured), None)


def _table(name: str | None, known: Sequence[str], newest: Entry) -> str:
    """The table that was chosen; the largest where none was, or where it is gone from the newest epoch."""
    if name is not None and name not in known:
        raise UnknownTableError.among("table", name, known, where="in this query")
    facts: Mapping[str, Any] = newest.tables
    if name is not None and name in facts:
        return name
    return max(facts, key=lambda table: facts[table].rows)
