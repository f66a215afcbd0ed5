"""Watching a store for the epoch at which a condition comes true."""

from __future__ import annotations

import atexit
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from streamstate.snapshots.change_log import listed, same
from streamstate.snapshots.errors import InvalidArgumentError
from streamstate.snapshots.operators import HASH
from streamstate.state_inspect.conditions.when import Condition
from streamstate.state_inspect.frames import to_pandas
from streamstate.state_inspect.temporal_index.interval_table import held_at

if TYPE_CHECKING:
    from types import TracebackType

    from streamstate.state_inspect.recorded import Recorded
    from streamstate.state_inspect.snapshot import Snapshot

_MOST_ROWS = 1_000
_PATIENCE = 5.0


@dataclass(frozen=True)
class WatchEvent:
    """An epoch in which some rows began to meet a condition."""

    epoch: int
    """The epoch."""
    rows: pd.DataFrame
    """The rows that meet it now and did not in the captured epoch before, by key; at most 1,000."""
    count: int
    """How many there are."""
    snapshot: Snapshot
    """The state at the epoch."""


class Watch:
    """Looks for new epochs and calls back for each in which rows began to meet a condition.

    :meth:`History.watch` gives it. It stops by itself at the first error, which :attr:`error` then holds.
    """

    def __init__(
        self,
        history: Recorded,
        predicate: str,
        callback: Callable[[WatchEvent], object],
        *,
        table: str,
        every: float,
        key: Mapping[str, Any],
    ) -> None:
        if not (type(every) in (int, float) and every > 0):
            raise InvalidArgumentError(f"every={every!r} cannot be meant: give the seconds between looks, above 0.")
        if not callable(callback):
            raise InvalidArgumentError(f"{callback!r} cannot be called: give a function that takes the event.")
        self.table = table
        """The state table."""
        self.predicate = predicate
        """The condition."""
        self.fired = 0
        """How often the callback was called."""
        self.error: BaseException | None = None
        """What ended the watch: an error of the callback's or of the store's; None while there is none."""
        self._history, self._callback, self._every, self._key = history, callback, every, dict(key)
        self.epoch = history.live().epoch
        """The newest epoch that was looked at."""
        self._condition(self.epoch)  # raises what a mistake in it raises, here and not in the thread
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"streamstate watch of {table}", daemon=True)
        self._thread.start()
        atexit.register(self._end)

    @property
    def running(self) -> bool:
        """Whether it still looks."""
        return self._thread.is_alive() and not self._stopping.is_set()

    def stop(self) -> None:
        """Look no more; a callback that is running is waited for, unless it is the one that asks."""
        atexit.unregister(self._end)
        self._stopping.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _end(self) -> None:
        """Before Python ends, while what the thread uses is still there; a callback that hangs does not hold it up."""
        self._stopping.set()
        self._thread.join(_PATIENCE)

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = f"ended by {self.error!r}" if self.error else "running" if self.running else "stopped"
        return f"<Watch of {self.table} for {self.predicate!r}: {state}, fired {self.fired} times, epoch {self.epoch}>"

    def _run(self) -> None:
        try:
            while not self._stopping.wait(self._every):
                for event in self._events():
                    self.fired += 1
                    self._callback(event)
        except BaseException as error:  # noqa: BLE001 (whatever it is, the handle tells the user)
            self.error = error

    def _events(self) -> Iterator[WatchEvent]:
        """What the epochs bring that have arrived since the last look."""
        captured = self._history.captured()
        for at in range(bisect_right(captured, self.epoch), len(captured)):
            if self._stopping.is_set():
                return
            epoch, before = captured[at], captured[at - 1] if at else None
            event = self._event(epoch, before)
            self.epoch = epoch
            if event is not None:
                yield event

    def _event(self, epoch: int, before: int | None) -> WatchEvent | None:
        snapshot = self._history.at(epoch)
        if self.table not in snapshot.tables():
            return None
        condition = self._condition(epoch if before is None else before)
        table = condition.table
        met = f"SELECT * FROM {table.relation} WHERE {condition.sql}"
        held = "false" if before is None else f"{held_at(before)} AND _valid_to <= {epoch}"
        found = condition.query(
            self._history.index,
            f"WITH now AS ({met} AND _valid_from = {epoch}), earlier AS ({met} AND {held}), fresh AS ("
            f"SELECT now.* FROM now ANTI JOIN earlier ON {same('now', 'earlier', [HASH, *table.key_columns])})"
            f" SELECT {listed(table.columns)}, (SELECT count(*) FROM fresh) AS _n FROM fresh"
            f" ORDER BY {listed(table.key_columns)} LIMIT {_MOST_ROWS}",
            times=2,
        )
        if not found.num_rows:
            return None
        return WatchEvent(epoch, to_pandas(found.drop_columns(["_n"])), int(found["_n"][0].as_py()), snapshot)

    def _condition(self, first: int) -> Condition:
        return Condition(self.predicate, self.table, self._history.interval_table(self.table, first), self._key)
