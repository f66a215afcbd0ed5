"""Watching a query for epochs at which rows begin to meet a condition."""

from __future__ import annotations

import atexit
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from streamstate.errors import InvalidArgumentError
from streamstate.snapshots.capture.background import BackgroundThread
from streamstate.snapshots.checkpoint.state_tables import HASH
from streamstate.snapshots.store.duckdb_sql import listed, same
from streamstate.state_inspect.captured_query import QueryHistory
from streamstate.state_inspect.conditions.condition import Condition
from streamstate.state_inspect.frames import to_pandas
from streamstate.state_inspect.keys.table_key import TableKey
from streamstate.state_inspect.results.results import result_plan, state_name, state_of, with_result
from streamstate.state_inspect.snapshot import Snapshot, live_snapshot, snapshot_at
from streamstate.state_inspect.temporal_index.interval_table import held_at

_MOST_ROWS = 1_000
_PATIENCE = 5.0


@dataclass(frozen=True)
class WatchEvent:
    """An epoch at which rows began to meet a condition."""

    epoch: int
    """The epoch."""
    rows: pd.DataFrame
    """The rows that meet it now and did not at the captured epoch before, sorted by key; at most 1,000."""
    count: int
    """The number of such rows."""
    snapshot: Snapshot
    """The state at the epoch."""


class Watch:
    """Calls a function for each new epoch at which rows begin to meet a condition.

    :meth:`History.watch` returns it. It stops at the first error, which :attr:`error` then holds.
    """

    def __init__(
        self,
        history: QueryHistory,
        predicate: str,
        callback: Callable[[WatchEvent], object],
        *,
        table: str,
        interval: float,
        key: Mapping[str, Any],
    ) -> None:
        if not (type(interval) in (int, float) and interval > 0):
            raise InvalidArgumentError(f"Invalid interval={interval!r}: expected a number of seconds above 0.")
        if not callable(callback):
            raise InvalidArgumentError(f"Invalid callback {callback!r}: expected a function that takes the event.")
        self.table = table
        """The state table, or the result."""
        self.predicate = predicate
        """The condition."""
        self.fired = 0
        """The number of calls of the callback."""
        self.error: BaseException | None = None
        """The error of the callback or of the store that ended the watch, if any."""
        self._history, self._callback, self._interval = history, callback, interval
        self._key = TableKey.of(history.recorded, table).given(key, whole=False) if key else {}
        self.epoch = live_snapshot(history).epoch
        """The newest epoch that was checked."""
        self._condition(self.epoch, self.epoch)  # raises here, and not in the thread, if the condition is invalid
        self._stopping = threading.Event()
        self._thread = BackgroundThread(self._run, f"streamstate watch of {table}")
        self._thread.start()
        atexit.register(self._end)

    @property
    def running(self) -> bool:
        """True while it watches."""
        return self._thread.is_alive() and not self._stopping.is_set()

    def stop(self) -> None:
        """Stop watching. Waits for a running callback, unless it is called from the callback."""
        atexit.unregister(self._end)
        self._stopping.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _end(self) -> None:
        """Stop before Python exits, while what the thread uses still exists; does not wait for a hanging callback."""
        self._stopping.set()
        self._thread.join(_PATIENCE)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = f"ended by {self.error!r}" if self.error else "running" if self.running else "stopped"
        return f"<Watch of {self.table} for {self.predicate!r}: {state}, fired {self.fired} times, epoch {self.epoch}>"

    def _run(self) -> None:
        try:
            while not self._stopping.wait(self._interval):
                for event in self._events():
                    self.fired += 1
                    self._callback(event)
        except BaseException as error:  # noqa: BLE001 (the handle reports it to the user)
            self.error = error

    def _events(self) -> Iterator[WatchEvent]:
        """Yield the events of the epochs that have arrived since the last check."""
        captured = self._history.recorded.captured()
        for at in range(bisect_right(captured, self.epoch), len(captured)):
            if self._stopping.is_set():
                return
            epoch, before = captured[at], captured[at - 1] if at else None
            event = self._event(epoch, before)
            self.epoch = epoch
            if event is not None:
                yield event

    def _event(self, epoch: int, before: int | None) -> WatchEvent | None:
        snapshot = snapshot_at(self._history, epoch)
        if state_name(self._history.recorded, self.table) not in snapshot.tables():
            return None
        condition = self._condition(epoch if before is None else before, epoch)
        table = condition.table
        met = f"SELECT * FROM {table.relation} WHERE {condition.sql}"
        held = "false" if before is None else f"{held_at(before)} AND _valid_to <= {epoch}"
        found = condition.query(
            self._history.recorded.index,
            f"WITH now AS ({met} AND _valid_from = {epoch}), earlier AS ({met} AND {held}), fresh AS ("
            f"SELECT now.* FROM now ANTI JOIN earlier ON {same('now', 'earlier', [HASH, *table.key_columns])})"
            f" SELECT {listed(table.columns_at(epoch))}, (SELECT count(*) FROM fresh) AS _n FROM fresh"
            f" ORDER BY {listed(table.key_columns)} LIMIT {_MOST_ROWS}",
            times=2,
        )
        if not found.num_rows:
            return None
        return WatchEvent(epoch, to_pandas(found.drop_columns(["_n"])), int(found["_n"][0].as_py()), snapshot)

    def _condition(self, first: int, epoch: int) -> Condition:
        """Return the condition on the versions from an epoch on; a result is what the query returns at ``epoch``."""
        query = self._history.recorded
        name = state_name(query, self.table)
        table = query.interval_table(name, first)
        if state_of(self.table)[1]:
            table = with_result(table, result_plan(query, name, [epoch]), name, epoch)
        return Condition(self.predicate, self.table, table, self._key)
