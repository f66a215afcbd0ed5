"""The query dashboard: a running query, and the spread of its state over partitions and keys."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from streamstate.errors import InvalidArgumentError
from streamstate.snapshots.store.entries import TableCounts
from streamstate.snapshots.store.registry import required_query
from streamstate.state_inspect.analytics.watermark_lags import WatermarkLags
from streamstate.widgets.dashboard.drawing import DashboardDrawing
from streamstate.widgets.dashboard.facts import charts, facts_of, newest_entry, troubles_of
from streamstate.widgets.dashboard.operators import Operators, from_plan, from_store
from streamstate.widgets.dashboard.spread import StateSpread, spread_of
from streamstate.widgets.dashboard.watcher import FindQuery, QuerySample, QueryWatcher
from streamstate.widgets.model import Focus, ViewModel, chosen_table
from streamstate.widgets.view import View

if TYPE_CHECKING:
    from streamstate.snapshots.store.entries import Entry
    from streamstate.state_inspect import History

PAUSE = 2.0
"""The least seconds between two reads of how a state is spread, because each reads the whole state."""


@dataclass(frozen=True)
class DashboardSelection:
    """The selection.

    Attributes:
        table: the state table whose spread is shown; None for the one with the most rows.
        key: the key columns and values of the row that was clicked.
    """

    table: str | None = None
    key: Mapping[str, Any] | None = None


class DashboardModel(ViewModel[DashboardSelection]):
    """Reads one history, and what its watcher knows of the running query."""

    kind = "dashboard"

    def __init__(self, history: History, watcher: QueryWatcher) -> None:
        self.history = history
        self.name = history.name
        self._watcher = watcher
        self._lock = threading.Lock()
        self._known: StateSpread | None = None
        self._read_at = -PAUSE

    def newest(self) -> object:
        """Return the newest epoch, the last sample of the query, and the epoch whose spread would be shown."""
        self._watcher.start()
        entries = self.history.recorded.entries()
        newest = newest_entry(entries)
        epoch = None if newest is None else newest.epoch
        with self._lock:
            shown = self._known.epoch if self._known is not None and self._pausing() else epoch
        return len(entries), epoch, self._watcher.sample(), self._watcher.captured, self._watcher.late, shown

    def view(self, selection: DashboardSelection) -> DashboardDrawing:
        """Return the dashboard now, without what Spark has not answered yet.

        Raises:
            UnknownTableError: the query has no such table.
        """
        with self._lock:
            sample = self._watcher.sample()
            entries = self.history.recorded.entries()
            captured = self._watcher.captured
            newest = newest_entry(entries)
            spread = None if newest is None else self._spread(self._table(selection.table, entries), entries, newest)
            # Reading the spread has loaded the table, whose rows can be counted now.
            counted = None if newest is None else self.history.recorded.with_counts([newest])[0]
            lags = WatermarkLags(self.history.recorded)
            return DashboardDrawing(
                self.name,
                None if newest is None else newest.epoch,
                "" if sample is None else sample.state,
                facts_of(entries, counted, sample, captured, spread, lags=lags),
                troubles_of(sample, captured, late=self._watcher.late),
                _operators(counted, sample),
                charts(entries, sample.batches if sample else (), lags),
                [] if newest is None else list(newest.tables),
                spread,
                selection.key,
            )

    def check(self, selection: DashboardSelection) -> None:
        """Raise what :meth:`view` raises for a table that does not exist."""
        entries = self.history.recorded.entries()
        if newest_entry(entries) is not None:
            self._table(selection.table, entries)

    def acted(self, selection: DashboardSelection, action: str, value: Any, kept: Any) -> DashboardSelection:
        """Return the selection after an action. A page names a table by its name, and a key by its row."""
        if not isinstance(kept, DashboardDrawing):
            return selection
        match action, value:
            case "table", str() if value in kept.tables and value != selection.table:
                return DashboardSelection(table=value)
            case "key", int() if kept.spread and 0 <= value < len(kept.spread.keys):
                return DashboardSelection(table=kept.spread.table, key=kept.spread.keys[value].key)
        return selection

    def focus(self, selection: DashboardSelection) -> Focus:
        """The table and the key; the dashboard always shows the newest epoch, and does not move other views to it."""
        return Focus(table=selection.table, key=selection.key)

    def focused(self, selection: DashboardSelection, focus: Focus) -> DashboardSelection:
        """Return the table and key of another view; its epoch is ignored."""
        table = focus.table if focus.table in self.history.tables() else selection.table
        if table != selection.table:
            return DashboardSelection(table=table, key=focus.key)
        return selection if focus.key is None else replace(selection, key=focus.key)

    def epochs(self) -> Sequence[int]:
        """None: the dashboard shows the newest."""
        return ()

    def release(self) -> None:
        """Stop polling the query, and drop the cache."""
        self._watcher.stop()
        with self._lock:
            self._known = None

    def _table(self, name: str | None, entries: Sequence[Entry]) -> str:
        """The chosen table; if there is none, or the newest epoch does not have it, the one that may be the largest."""
        captured = [entry for entry in entries if entry.captured]
        newest = captured[-1]
        if name is not None and chosen_table(self.history, name) in newest.tables:
            return name
        return max(newest.tables, key=lambda table: TableCounts(captured, table).most())

    def _spread(self, table: str, entries: Sequence[Entry], newest: Entry) -> StateSpread:
        """Return the table's spread at the newest epoch, or a cached one that was read a moment ago."""
        known = self._known
        if known is None or known.table != table or not (known.epoch == newest.epoch or self._pausing()):
            self._known = known = spread_of(self.history, table, entries)
            self._read_at = time.monotonic()
        return known

    def _pausing(self) -> bool:
        return time.monotonic() - self._read_at < PAUSE


def _operators(newest: Entry | None, sample: QuerySample | None) -> Operators | None:
    if sample is not None and sample.graph is not None and sample.graph.nodes:
        tables = [] if newest is None else list(newest.tables)
        return from_plan(sample.graph, complete=sample.complete, progress=sample.progress, tables=tables)
    return None if newest is None else from_store(newest)


class QueryDashboard(View[DashboardSelection]):
    """Shows how a query runs: its operators with rows, bytes and time, its rates, and where its state is heavy.

    With the running query, the operators are those of Spark's plan of the newest finished batch, and rates and
    durations come from Spark; if the query fails or stops, the dashboard says so, and if it starts again, the dashboard
    goes on with it. Without it, everything comes from the store, and Spark is not needed: state operators, changes,
    watermark, gaps, and input rows if the capture recorded them. The dashboard shows the newest epoch. Clicking a state
    table shows how it is spread over partitions, and which keys are written most.

    Args:
        history: the query in the store, ``store[name]``.
        query: the same query, if it runs in this process: what ``%%stream`` returned, or Spark's ``StreamingQuery``.
            A separate thread polls Spark.
        table: the state table whose spread is shown first; by default the largest.

    Raises:
        UnknownTableError: the query has no such table.
        InvalidArgumentError: ``query`` is not a running query, or not the query of the history.

    Example:
        >>> QueryDashboard(store["delays"])
        delays: epoch 61 · committed ... · state 5 rows · changed 5 rows · log of op0 ... on disk · ...
    """

    def __init__(self, history: History, query: Any = None, *, table: str | None = None) -> None:
        find = _finder(query)
        running, _ = find()
        if running is not None:
            _check_same(history, running)
        model = DashboardModel(history, QueryWatcher(find, history.name))
        super().__init__(model, DashboardSelection(table=table))


def _finder(query: Any) -> FindQuery:
    """Returns a function for Spark's handle and the capture: those of the newest start of the same query."""
    if query is None:
        return lambda: (None, None)
    if hasattr(query, "capture") and hasattr(query, "query"):

        def newest() -> tuple[Any, Any]:
            handle = getattr(query, "newest", query)
            return handle.query, handle.capture

        return newest
    if hasattr(query, "lastProgress") and hasattr(query, "isActive"):
        return lambda: (query, None)
    raise InvalidArgumentError(
        f"Invalid query: expected what %%stream returned, or a StreamingQuery, not {type(query).__name__}.\n"
        "Leave it out to show the store alone."
    )


def _check_same(history: History, query: Any) -> None:
    """Check that the query's id is the one that the store recorded from its checkpoint."""
    from py4j.protocol import Py4JError

    captured = required_query(history.recorded.layout, history.name).query_id
    try:
        running = str(query.id)
    except (Py4JError, OSError):
        return  # its JVM is gone, which the dashboard shows by itself
    if running != captured:
        raise InvalidArgumentError(
            f"query={running!r} is not the query of {history.name!r}, which is {captured!r}.\n"
            "Pass the history that this query is captured as, or leave the query out to show what the store knows."
        )
