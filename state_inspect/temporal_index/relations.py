"""The relations of an index. Each is dropped after its interval table is garbage-collected."""

from __future__ import annotations

import itertools
import weakref
from collections import deque

import duckdb

from streamstate.snapshots.store.duckdb_sql import quoted
from streamstate.state_inspect.temporal_index.interval_table import IntervalTable


class Relations:
    """Assigns names and drops unused relations. Used under the index's lock.

    Args:
        database: a connection to the index.
    """

    def __init__(self, database: duckdb.DuckDBPyConnection) -> None:
        self._db = database.cursor()
        self._numbers = itertools.count(2)
        self._taken: set[str] = set()
        # Filled during garbage collection, when no statement may run.
        self._unused: deque[str] = deque()

    def named(self, name: str) -> str:
        """Return a unique name for a new relation; first drops those that are no longer used."""
        while self._unused:
            self._db.execute(f"DROP TABLE IF EXISTS {quoted(self._unused.popleft())}")
        chosen = name if name not in self._taken else f"{name}#{next(self._numbers)}"
        self._taken.add(chosen)
        return chosen

    def owned_by(self, table: IntervalTable, relation: str) -> None:
        """Drop the relation after the table is garbage-collected."""
        weakref.finalize(table, self._unused.append, relation)
