"""The relations of an index: each goes once nobody holds the interval table that it belongs to."""

from __future__ import annotations

import itertools
import weakref
from collections import deque

import duckdb

from streamstate.snapshots.change_log import quoted
from streamstate.state_inspect.temporal_index.interval_table import IntervalTable


class Relations:
    """Gives names and drops what was left behind; used under the index's lock.

    Args:
        database: a connection to the index.
    """

    def __init__(self, database: duckdb.DuckDBPyConnection) -> None:
        self._db = database.cursor()
        self._numbers = itertools.count(2)
        self._taken: set[str] = set()
        # Filled while Python collects garbage, where no statement may be run.
        self._left: deque[str] = deque()

    def named(self, name: str) -> str:
        """A name of its own for a new relation, after the room of those that were left was taken back."""
        while self._left:
            self._db.execute(f"DROP TABLE IF EXISTS {quoted(self._left.popleft())}")
        chosen = name if name not in self._taken else f"{name}#{next(self._numbers)}"
        self._taken.add(chosen)
        return chosen

    def owned_by(self, table: IntervalTable, relation: str) -> None:
        """Once nobody holds the table, its relation goes."""
        weakref.finalize(table, self._left.append, relation)
