"""The view of a table that a contract grants: its rows at an epoch, and what changed in it from one to the next.

A row that enters or leaves the filter is inserted or deleted; a change in columns that are not granted is no change.
Rows are sorted by the granted columns, because another order would tell something of the others. Of the changes, those
that end (deletes, rows before an update) come first, and are sorted by themselves, as are those that begin.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from streamstate.sharing.contract import GrantedTable
from streamstate.snapshots.store.duckdb_sql import listed, quoted
from streamstate.state_inspect.differences.changed_rows import ChangedRows
from streamstate.state_inspect.history import History
from streamstate.state_inspect.results.results import ShownColumns, shown_columns
from streamstate.state_inspect.sql.condition_policy import condition_failed, predicate_sql
from streamstate.state_inspect.state_table import StateTable
from streamstate.state_inspect.temporal_index.index import Index

CHANGE_TYPE = "_change_type"
_KINDS = INSERT, DELETE, BEFORE, AFTER = "insert", "delete", "update_preimage", "update_postimage"
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
        """Names and types of the granted columns at the newest epoch; no rows are read."""
        return pa.schema([field.remove_metadata() for field in self._typed(self._shown.schema)])

    @property
    def keys(self) -> list[str] | None:
        """The key columns; None if a part of the key is not granted."""
        keys = self._shown.key_columns
        return keys if {*keys} <= {*self.granted.columns} else None

    @property
    def _shown(self) -> ShownColumns:
        return shown_columns(self._history.recorded, self.granted.name)

    def rows(self, epoch: int) -> pa.Table:
        """Return the granted rows at an epoch.

        Raises:
            UnknownEpochError: the epoch was not captured.
            NoResultError: the result cannot be computed from the state at that epoch.
        """
        table = self._table(epoch)
        there = [name for name in self.granted.columns if name in table.schema.names]
        where, order = self._condition(table.schema.names), _order(table.intervals.key_columns, there)
        found = _run(
            self._history.recorded.index,
            f"SELECT {listed(there)} FROM ({table.rows_sql()}) WHERE {where} ORDER BY {listed(order)}",
        )
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
        there = [name for name in self.granted.columns if name in changed.schema.names]
        view = changed.view_sql(there, self._condition(changed.schema.names))
        order = [*(there.index(name) for name in _order(changed.key_columns, there)), len(there)]
        # Each side is sorted by itself: one sort of both would have twice as many rows. The kinds are numbers, because
        # texts take longer to sort along.
        ended = _side("o", "was", f"CASE WHEN is_there THEN {_code(BEFORE)} ELSE {_code(DELETE)} END", there, order)
        begun = _side("n", "is_there", f"CASE WHEN was THEN {_code(AFTER)} ELSE {_code(INSERT)} END", there, order)
        found = _run(changed.index, f"WITH changed AS MATERIALIZED ({view}) {ended} UNION ALL {begun}")
        found = found.set_column(len(there), CHANGE_TYPE, pc.take(pa.array(_KINDS), found[CHANGE_TYPE]))
        return self._fitted(found, self._typed(changed.schema).append(pa.field(CHANGE_TYPE, pa.string())))

    def _table(self, epoch: int) -> StateTable:
        # A result is computed without Spark, so that whichever process makes a file makes the same one.
        return self._history.at(epoch).table(self.granted.name)

    def _condition(self, names: list[str]) -> str:
        where = self.granted.where
        return "true" if where is None else predicate_sql(where, names, self.granted.name)

    def _typed(self, schema: pa.Schema) -> pa.Schema:
        """Return the granted columns that a table has, with their types."""
        return pa.schema([schema.field(name) for name in self.granted.columns if name in schema.names])

    @staticmethod
    def _fitted(found: pa.Table, schema: pa.Schema) -> pa.Table:
        return found.select(schema.names).cast(schema)


def _order(keys: Sequence[str], columns: Sequence[str]) -> Sequence[str]:
    """Return the columns to sort by: the key, in which no two rows are equal, if it is granted; otherwise all."""
    return keys if keys and {*keys} <= {*columns} else columns


def _side(side: str, there: str, kind: str, columns: Sequence[str], order: Sequence[int]) -> str:
    """Return SQL for the rows on one side of the changes, with the code of each row's kind."""
    values = ", ".join(f"{side}{at} AS {quoted(name)}" for at, name in enumerate(columns))
    places = ", ".join(str(at + 1) for at in order)
    return f"(SELECT {values}, ({kind})::TINYINT AS {CHANGE_TYPE} FROM changed WHERE {there} ORDER BY {places})"


def _code(kind: str) -> int:
    return _KINDS.index(kind)


def _run(index: Index, sql: str) -> pa.Table:
    try:
        return index.query(sql)
    except duckdb.Error as error:
        raise condition_failed(error) from error
