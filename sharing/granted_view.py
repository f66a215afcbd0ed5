"""The view of a table that a contract grants: its rows at an epoch, and what changed in it from one to the next.

A row that enters or leaves the filter is inserted or deleted; a change in columns that are not granted is no change.
Rows are sorted by the granted columns, because another order would tell something of the others.
"""

from __future__ import annotations

import duckdb
import pyarrow as pa

from streamstate.sharing.contract import GrantedTable
from streamstate.snapshots.store.duckdb_sql import listed, quoted
from streamstate.state_inspect.differences.changed_rows import ChangedRows
from streamstate.state_inspect.differences.diff_sql import ADDED, REMOVED
from streamstate.state_inspect.history import History
from streamstate.state_inspect.results.results import state_of
from streamstate.state_inspect.snapshot import Snapshot
from streamstate.state_inspect.sql.condition_policy import condition_failed, predicate_sql
from streamstate.state_inspect.state_table import StateTable
from streamstate.state_inspect.temporal_index.index import Index

CHANGE_TYPE = "_change_type"
INSERT, DELETE, BEFORE, AFTER = "insert", "delete", "update_preimage", "update_postimage"
"""The kinds of changes, as Delta's change data feed names them."""


class GrantedView:
    """A granted table as its readers see it.

    Args:
        history: the query.
        granted: what is granted of one of its tables.
    """

    def __init__(self, history: History, granted: GrantedTable) -> None:
        self._history, self.granted = history, granted

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the granted columns at the newest epoch."""
        return self._typed(self._table(self._history.live().epoch).schema)

    @property
    def keys(self) -> list[str] | None:
        """The key columns; None if a part of the key is not granted."""
        keys = self._table(self._history.live().epoch).intervals.key_columns
        return list(keys) if {*keys} <= {*self.granted.columns} else None

    def rows(self, epoch: int) -> pa.Table:
        """Return the granted rows at an epoch.

        Raises:
            UnknownEpochError: the epoch was not captured.
            NoResultError: the result cannot be computed from the state at that epoch.
        """
        table = self._table(epoch)
        there = [name for name in self.granted.columns if name in table.schema.names]
        sql = f"SELECT {listed(there)} FROM ({table.rows_sql()}) {self._where(table.schema.names)}"
        found = _run(self._history.recorded.index, f"{sql} ORDER BY ALL")
        return self._fitted(found, self._typed(table.schema))

    def changes(self, before: int | None, epoch: int) -> pa.Table:
        """Return the changes of the view after an epoch up to a later one: the granted columns, and ``_change_type``.

        Args:
            before: the epoch before; None: the view was empty.
            epoch: the epoch.
        """
        if before is None:
            rows = self.rows(epoch)
            return rows.append_column(CHANGE_TYPE, pa.array([INSERT] * rows.num_rows, pa.string()))
        changed = ChangedRows(self._history, self.granted.name, before, epoch)
        names, keys = changed.schema.names, changed.key_columns
        row = next(f"_row{at}" for at in range(len(names) + 1) if f"_row{at}" not in names)
        values = [name for name in names if name not in keys]
        was = [f"{quoted(changed.before_named(at))} AS {quoted(name)}" for at, name in enumerate(values)]
        there = [name for name in self.granted.columns if name in names]
        differ = " OR ".join(f"old.{quoted(name)} IS DISTINCT FROM new.{quoted(name)}" for name in there)
        where, granted = self._where(names), listed(there)
        found = _run(
            changed.index,
            f"WITH changed AS MATERIALIZED (SELECT row_number() OVER () AS {row}, * FROM ({changed.rows_sql()})),"
            f" old AS (SELECT {row}, {granted} FROM (SELECT {row}, {', '.join([*map(quoted, keys), *was])} FROM changed"
            f" WHERE _change <> '{ADDED}') {where}),"
            f" new AS (SELECT {row}, {granted} FROM (SELECT {row}, {listed(names)} FROM changed"
            f" WHERE _change <> '{REMOVED}') {where}),"
            f" updated AS (SELECT {row} FROM old JOIN new USING ({row}) WHERE {differ})"
            f" SELECT {granted}, '{DELETE}' AS {CHANGE_TYPE} FROM old ANTI JOIN new USING ({row})"
            f" UNION ALL SELECT {granted}, '{INSERT}' FROM new ANTI JOIN old USING ({row})"
            f" UNION ALL SELECT {granted}, '{BEFORE}' FROM old SEMI JOIN updated USING ({row})"
            f" UNION ALL SELECT {granted}, '{AFTER}' FROM new SEMI JOIN updated USING ({row}) ORDER BY ALL",
        )
        return self._fitted(found, self._typed(changed.schema).append(pa.field(CHANGE_TYPE, pa.string())))

    def _table(self, epoch: int) -> StateTable:
        return table_named(self._history.at(epoch), self.granted.name)

    def _where(self, names: list[str]) -> str:
        if self.granted.where is None:
            return ""
        return f"WHERE {predicate_sql(self.granted.where, names, self.granted.name)}"

    def _typed(self, schema: pa.Schema) -> pa.Schema:
        """Return the granted columns that a table has, with their types."""
        return pa.schema([schema.field(name) for name in self.granted.columns if name in schema.names])

    @staticmethod
    def _fitted(found: pa.Table, schema: pa.Schema) -> pa.Table:
        return found.select(schema.names).cast(schema)


def table_named(snapshot: Snapshot, name: str) -> StateTable:
    """Return a state table of a snapshot, or its result, by the name that a contract has for it."""
    state, is_result = state_of(name)
    return snapshot.result(state) if is_result else snapshot.table(name)


def _run(index: Index, sql: str) -> pa.Table:
    try:
        return index.query(sql)
    except duckdb.Error as error:
        raise condition_failed(error) from error
