"""The keys that differ between two epochs, as rows of the state: paged, sorted and filtered as the state itself is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from streamstate.snapshots.change_log import quoted
from streamstate.snapshots.errors import InvalidSQLError, UnknownColumnError
from streamstate.state_inspect.differences.diff_sql import REMOVED, DiffSQL
from streamstate.state_inspect.expressions import predicate_sql

if TYPE_CHECKING:
    from streamstate.state_inspect.recorded import Recorded

__all__ = ["ChangedPage", "ChangedRows"]


@dataclass(frozen=True)
class ChangedPage:
    """Some of the keys that differ, row by row.

    Attributes:
        changes: ``added``, ``changed`` or ``removed``.
        rows: the state's columns with the values at the later epoch; of a removed key those that it had.
        before: the values that it had at the earlier epoch; all missing where it was not there.
    """

    changes: list[str]
    rows: pa.Table
    before: pa.Table


class ChangedRows:
    """The keys of a state table that differ from epoch ``a`` to epoch ``b``.

    Args:
        history: the query.
        table: the state table.
        a: the epoch compared from.
        b: the epoch compared to.

    Raises:
        UnknownEpochError, UnknownTableError: where there is no such epoch or table.

    Example:
        >>> ChangedRows(history, "op0", 11, 12).page(limit=10, order_by="count").changes  # doctest: +SKIP
        ['added', 'changed', 'removed']
    """

    def __init__(self, history: Recorded, table: str, a: int, b: int) -> None:
        for epoch in (a, b):
            history.at(epoch)
        self._index = history.index
        self._table = history.interval_table(table, min(a, b))
        self._sql = DiffSQL(self._table, a, b)
        self._was = "_was"
        while any(name.startswith(self._was) for name in self._table.columns):
            self._was = f"_{self._was}"
        self.name = table
        """The state table."""

    def count(self, *, where: str | None = None, contains: Mapping[str, str] | None = None) -> int:
        """How many keys differ, of those whose row satisfies a condition.

        Args:
            where: an SQL condition over the columns.
            contains: text to be found in columns, upper and lower case alike.

        Raises:
            UnknownColumnError, InvalidSQLError: where the condition cannot be meant.
        """
        condition, parameters = self._condition(where, contains)
        return int(self._query(f"SELECT count(*) AS n FROM ({self._rows()}){condition}", parameters)["n"][0].as_py())

    def page(
        self,
        offset: int = 0,
        limit: int = 20,
        *,
        order_by: str | None = None,
        descending: bool = False,
        where: str | None = None,
        contains: Mapping[str, str] | None = None,
    ) -> ChangedPage:
        """Some of them, in an order that is the same at every call.

        Args:
            offset: rows to pass over.
            limit: rows to give at most.
            order_by: the column to sort by; by default the key columns.
            descending: the largest first; missing values come last either way.
            where: an SQL condition over the columns.
            contains: text to be found in columns, upper and lower case alike.

        Raises:
            UnknownColumnError, InvalidSQLError: where an argument cannot be meant.
        """
        condition, parameters = self._condition(where, contains)
        order = [f"{quoted(key)} ASC NULLS LAST" for key in self._table.key_columns]
        if order_by is not None:
            self._check(order_by)
            order.insert(0, f"{quoted(order_by)} {'DESC' if descending else 'ASC'} NULLS LAST")
        found = self._query(
            f"SELECT * FROM ({self._rows()}){condition} ORDER BY {', '.join(order)} LIMIT {limit} OFFSET {offset}",
            parameters,
        )
        names, keys = self._table.columns, self._table.key_columns
        schema = pa.schema([self._table.schema.field(name).remove_metadata() for name in names])
        was = [found[self._was_named(at)] for at in range(len(names) - len(keys))]
        before = pa.table([*(found[key] for key in keys), *was], names=names)
        return ChangedPage(found["_change"].to_pylist(), found.select(names).cast(schema), before.cast(schema))

    def _rows(self) -> str:
        """All of them under the state's own names, and what the values were under names of ours."""
        keys = [
            f"{number} AS {quoted(name)}" for number, name in zip(self._sql.keys, self._table.key_columns, strict=True)
        ]
        values = [
            f"CASE WHEN _change = '{REMOVED}' THEN o{at} ELSE n{at} END AS {quoted(name)},"
            f" o{at} AS {quoted(self._was_named(at))}"
            for at, name in enumerate(self._table.value_columns)
        ]
        return f"SELECT {', '.join(['_change', *keys, *values])} FROM ({self._sql.differing()})"

    def _was_named(self, at: int) -> str:
        return f"{self._was}_{at}"

    def _check(self, name: str) -> None:
        if name not in self._table.columns:
            raise UnknownColumnError.among("column", name, self._table.columns, where=f"in {self.name}")

    def _condition(self, where: str | None, contains: Mapping[str, str] | None) -> tuple[str, list[Any]]:
        parts = [f"({predicate_sql(where, self._table.columns, self.name)})"] if where and where.strip() else []
        for name in contains or {}:
            self._check(name)
            parts.append(f"contains(lower({quoted(name)}::VARCHAR), lower(?))")
        return (f" WHERE {' AND '.join(parts)}" if parts else ""), [*(contains or {}).values()]

    def _query(self, sql: str, parameters: list[Any]) -> pa.Table:
        try:
            return self._index.query(sql, parameters)
        except duckdb.Error as error:
            raise InvalidSQLError(f"The condition cannot be run: {str(error).splitlines()[0]}") from error
