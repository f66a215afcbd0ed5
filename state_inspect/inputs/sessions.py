"""The session window that a key's rows were merged into in an epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pandas as pd

from streamstate.state_inspect.captured_query import CapturedQuery
from streamstate.state_inspect.differences.key_history import changes_in_all_tables
from streamstate.state_inspect.frames import to_pandas
from streamstate.state_inspect.keys.key_rows import SESSION_START, session_column

if TYPE_CHECKING:
    from streamstate.state_inspect.snapshot import Snapshot

Window = tuple[int, int]
"""The start and the end, in microseconds since 1970."""


class StateSessions:
    """The session windows in a state table around an epoch.

    ``key`` is the state's key, with the session's start; ``at`` returns an epoch's snapshot.
    """

    def __init__(
        self,
        query: CapturedQuery,
        at: Callable[[int], Snapshot],
        table: str,
        *,
        epoch: int,
        before: int | None,
        key: Mapping[str, Any],
    ) -> None:
        self._query, self._at, self._table = query, at, table
        self._epoch, self._before, self._key = epoch, before, key
        log = query.columns(table)
        self._column = session_column(log.key_columns, log.schema) or ""

    def merged(self, arrived: Callable[[], Iterable[Window]]) -> Window | None:
        """Return the session of the key in the epoch; None if there is none.

        Args:
            arrived: returns the windows of the rows that arrived; called only if the state does not know the session.
        """
        row = self._at(self._epoch).table(self._table).lookup(key=dict(self._key))
        if row is not None:
            return window_of(row[self._column])
        # It ended in the epoch, or an earlier row moved its start. Spark merges windows that overlap or touch.
        spans: list[Window] = []
        for start, end in sorted([*arrived(), *self._held_before()]):
            if spans and start <= spans[-1][1]:
                spans[-1] = spans[-1][0], max(spans[-1][1], end)
            else:
                spans.append((start, end))
        asked = _micros(self._key[SESSION_START])
        return next(((start, end) for start, end in spans if start <= asked <= end), None)

    def last_known(self) -> Window:
        """Return the session of the key as the state had it last by the epoch; without a length if it never had it."""
        found = self._changes(self._key)
        held = found[(found["epoch"] <= self._epoch) & (found["change"] != "delete")]
        start = _micros(self._key[SESSION_START])
        return window_of(held[self._column].iloc[-1]) if len(held) else (start, start)

    def _held_before(self) -> list[Window]:
        """Return all sessions with the rest of the key at the epoch before."""
        if self._before is None:
            return []
        rest = {column: value for column, value in self._key.items() if column != SESSION_START}
        if not rest:
            held = self._at(self._before).table(self._table).to_arrow()
            return [window_of(window) for window in held[self._column].to_pylist()]
        found = self._changes(rest)
        newest = found[found["epoch"] <= self._before].drop_duplicates(SESSION_START, keep="last")
        return [window_of(window) for window in newest[newest["change"] != "delete"][self._column]]

    def _changes(self, key: Mapping[str, Any]) -> pd.DataFrame:
        """Return the changes of all sessions whose key has some values."""
        found = to_pandas(changes_in_all_tables(self._query, dict(key)))
        return found[found["table"] == self._table]


def window_of(window: Mapping[str, datetime]) -> Window:
    """Return a window of the state in microseconds."""
    return _micros(window["start"]), _micros(window["end"])


def _micros(moment: datetime) -> int:
    return int(pd.Timestamp(moment).value) // 1000
