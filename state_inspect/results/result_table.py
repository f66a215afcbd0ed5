"""The versions of a result's rows: an interval table whose columns are the query's own.

The rows are computed from the state's when they are read, so that nothing more is loaded or kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from streamstate.snapshots.checkpoint.state_tables import HASH, NO_KEY, PARTITION
from streamstate.snapshots.store.duckdb_sql import listed, quoted
from streamstate.state_inspect.results.result_columns import ResultColumns
from streamstate.state_inspect.temporal_index.index import Index
from streamstate.state_inspect.temporal_index.interval_table import IntervalTable, held_at


class ResultTable(IntervalTable):
    """A view of an interval table.

    Key columns that the result does not have can be used, but are not shown.
    """

    def __init__(self, state: IntervalTable, columns: ResultColumns) -> None:
        self._state = state
        self.result = columns
        self.generation, self.starts, self.low, self.high = state.generation, state.starts, state.low, state.high
        self.counts = {} if columns.where else state.counts
        self.beginnings = {}
        self._kinds = {columns.keys[key]: state.kind(key) for key in state.key_columns}
        self.key_columns = [columns.keys[key] for key in state.key_columns]
        self.value_columns = [name for name in columns.schema.names if name not in self.key_columns]
        hidden = [(key, name) for key, name in columns.keys.items() if name not in columns.schema.names]
        self.schema = pa.schema(
            [*columns.schema, *(state.schema.field(key).remove_metadata().with_name(name) for key, name in hidden)]
        )
        selected = [f"{sql} AS {quoted(name)}" for sql, name in zip(columns.sql, columns.schema.names, strict=True)]
        selected += [f"{quoted(key)} AS {quoted(name)}" for key, name in hidden]
        self._selected = ", ".join([HASH, "_valid_from", "_valid_to", PARTITION, *selected])
        where = f" WHERE {' AND '.join(columns.where)}" if columns.where else ""
        # The state's own columns keep their names inside, where a result's column of the same name does not hide them.
        self.relation = f"(SELECT {self._selected} FROM {state.relation}{where})"

    @property
    def state(self) -> IntervalTable:
        """The state's versions."""
        return self._state

    @property
    def versions(self) -> int:
        """The number of the state's versions."""
        return self._state.versions

    def columns_at(self, epoch: int) -> list[str]:
        """Return the result's columns, in the query's order."""
        return list(self.result.schema.names)

    def at(self, epoch: int) -> str:
        """Return SQL for the rows at an epoch."""
        return f"SELECT {listed(self.columns_at(epoch))} FROM {self.relation} WHERE {held_at(epoch)}"

    def covers(self, first: int, last: int) -> bool:
        """Return whether the index has all epochs from ``first`` to ``last``."""
        return self._state.covers(first, last)

    def in_state(self, column: str) -> str:
        """Return a column as SQL over the columns of the state; missing while the row is not in the result."""
        for key, name in self.result.keys.items():
            if name == column:
                return quoted(key)
        sql = self.result.sql[self.result.schema.names.index(column)]
        return f"CASE WHEN {' AND '.join(self.result.where)} THEN {sql} END" if self.result.where else sql


class FilledTable(ResultTable):
    """A result at one epoch, whose columns that only Spark can compute were computed by Spark, and are kept.

    ``found`` has what Spark computed, with the state's keys as ``_key<number>``, for rows that meet the conditions.
    """

    def __init__(self, index: Index, state: IntervalTable, columns: ResultColumns, found: pa.Table, epoch: int) -> None:
        super().__init__(state, columns)
        self.low = self.high = epoch
        self.counts = {}
        keys = stored_keys(state.key_columns)
        same = [f"held.{quoted(key)} IS NOT DISTINCT FROM computed._key{at}" for at, key in enumerate(keys)]
        rows = f"(FROM {state.relation} WHERE {held_at(epoch)}) AS held"
        where = f" WHERE {' AND '.join(columns.where)}" if columns.where else ""
        self.relation = index.keep(
            self,
            f"SELECT {self._selected} FROM {rows} JOIN computed ON {' AND '.join(same) or 'true'}{where}"
            f" ORDER BY {HASH}",
            {"computed": found},
        )

    def covers(self, first: int, last: int) -> bool:
        """Return whether it has all epochs from ``first`` to ``last``."""
        return first == last == self.high


def stored_keys(keys: Sequence[str]) -> list[str]:
    """Return the key columns that have values: a state without a key has a column for its row's name."""
    return [key for key in keys if key != NO_KEY]
