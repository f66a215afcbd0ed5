"""The keys that differ between two epochs as rows of the state, paged, sorted and filtered like the state itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from streamstate.errors import UnknownColumnError
from streamstate.snapshots.store.duckdb_sql import quoted
from streamstate.state_inspect.captured_query import QueryHistory
from streamstate.state_inspect.differences.diff_sql import REMOVED, DiffSQL
from streamstate.state_inspect.results.results import result_plan, state_of, table_of_result, with_results
from streamstate.state_inspect.snapshot import snapshot_at
from streamstate.state_inspect.state_table import Filters, order_sql


@dataclass(frozen=True)
class ChangedPage:
    """A page of differing keys, row by row.

    Attributes:
        changes: ``added``, ``changed`` or ``removed``.
        rows: the state's columns with the values at epoch ``b``, or at epoch ``a`` if the key was removed.
        before: the values at epoch ``a``; all missing if the key was added.
    """

    changes: list[str]
    rows: pa.Table
    before: pa.Table


class ChangedRows:
    """The keys of a state table that differ from epoch ``a`` to epoch ``b``."""

    def __init__(self, history: QueryHistory, table: str, a: int, b: int) -> None:
        for epoch in (a, b):
            snapshot_at(history, epoch)  # raises if it is not captured
        query = history.recorded
        self.index = query.index
        """The index in which :meth:`rows_sql` runs."""
        state, is_result = state_of(table)
        if is_result:
            name = table_of_result(query, state, query.tables(), b)
            state_tables = query.interval_tables(name, a, b)
            tables = with_results(state_tables, result_plan(query, name, [b, a]), name, b)
        else:
            tables = query.interval_tables(table, a, b)
        self._table = tables[1]
        self._sql = DiffSQL.between(tables, a, b)
        self._was = "_was"
        while any(name.startswith(self._was) for name in self._table.columns):
            self._was = f"_{self._was}"
        self.name = table
        """The state table."""

    @property
    def schema(self) -> pa.Schema:
        """Names and Arrow types of the state's columns."""
        return pa.schema([self._table.schema.field(name).remove_metadata() for name in self._table.columns])

    @property
    def key_columns(self) -> list[str]:
        """Names of the key columns."""
        return list(self._table.key_columns)

    def count(self, *, where: str | None = None, contains: Mapping[str, str] | None = None) -> int:
        """Return the number of differing keys whose row meets a condition; see :meth:`StateTable.count`."""
        return int(self._filtered(where, contains, "SELECT count(*) AS n")["n"][0].as_py())

    def page_arrow(
        self,
        offset: int = 0,
        limit: int = 20,
        *,
        order_by: str | None = None,
        descending: bool = False,
        where: str | None = None,
        contains: Mapping[str, str] | None = None,
    ) -> ChangedPage:
        """Return a slice of the differing keys, in a stable order; see :meth:`StateTable.page`."""
        order = order_sql(self._table.key_columns, order_by, self._check, descending=descending)
        found = self._filtered(where, contains, "SELECT *", f"ORDER BY {order} LIMIT {limit} OFFSET {offset}")
        names, keys = self._table.columns, self._table.key_columns
        schema = self.schema
        was = [found[self.before_named(at)] for at in range(len(names) - len(keys))]
        before = pa.table([*(found[key] for key in keys), *was], names=names)
        return ChangedPage(found["_change"].to_pylist(), found.select(names).cast(schema), before.cast(schema))

    def rows_sql(self) -> str:
        """Return all differing keys with the state's column names, and the earlier values under names of our own."""
        keys = [
            f"{number} AS {quoted(name)}" for number, name in zip(self._sql.keys, self._table.key_columns, strict=True)
        ]
        values = [
            f"CASE WHEN _change = '{REMOVED}' THEN o{at} ELSE n{at} END AS {quoted(name)},"
            f" o{at} AS {quoted(self.before_named(at))}"
            for at, name in enumerate(self._table.value_columns)
        ]
        return f"SELECT {', '.join(['_change', *keys, *values])} FROM ({self._sql.joined(None)})"

    def view_sql(self, columns: Sequence[str], where: str) -> str:
        """Return the differing rows of a view, with both values of each column; see :meth:`DiffSQL.of_view`."""
        return self._sql.of_view(columns, where)

    def before_named(self, at: int) -> str:
        """Return the name of a value column's earlier values in :meth:`rows_sql`."""
        return f"{self._was}_{at}"

    def _check(self, name: str) -> None:
        if name not in self._table.columns:
            raise UnknownColumnError.among("column", name, self._table.columns, where=f"in {self.name}")

    def _filtered(self, where: str | None, contains: Mapping[str, str] | None, select: str, end: str = "") -> pa.Table:
        filters = Filters(where, contains, self._table.columns, self.name)
        return filters.query(self.index, self.rows_sql(), select, end, self._check)
