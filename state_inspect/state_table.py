"""One state table at one epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import pyarrow as pa

from streamstate.snapshots.change_log import listed, quoted
from streamstate.snapshots.errors import InvalidArgumentError, InvalidSQLError, UnknownColumnError
from streamstate.state_inspect.analytics.columns import column_summary
from streamstate.state_inspect.analytics.histogram import column_histogram
from streamstate.state_inspect.analytics.skew import grouping, heavy_keys, partition_skew
from streamstate.state_inspect.expressions import predicate_sql
from streamstate.state_inspect.frames import to_pandas, to_polars
from streamstate.state_inspect.many_keys import Keys, rows_of

if TYPE_CHECKING:
    import polars

    from streamstate.state_inspect.recorded import Recorded
    from streamstate.state_inspect.temporal_index.index import Index
    from streamstate.state_inspect.temporal_index.interval_table import IntervalTable


class StateTable:
    """The rows of one state table as they were at one epoch; whatever is captured later does not change them."""

    def __init__(
        self, index: Index, table: IntervalTable, name: str, epoch: int, *, history: Recorded | None = None
    ) -> None:
        self._index = index
        self._table = table
        self.name = name
        """The table's name, such as ``op0``."""
        self.epoch = epoch
        """The epoch."""
        self.history = history
        """The history it was read from."""

    @property
    def key_columns(self) -> list[str]:
        """Names of the key columns, in the order on disk; together they single out a row."""
        return list(self._table.key_columns)

    @property
    def value_columns(self) -> list[str]:
        """Names of the value columns, in the order on disk."""
        return self._table.columns_at(self.epoch)[len(self._table.key_columns) :]

    @property
    def schema(self) -> pa.Schema:
        """Names and Arrow types of the columns, keys first."""
        return pa.schema(
            [self._table.schema.field(name).remove_metadata() for name in self._table.columns_at(self.epoch)]
        )

    def rows_sql(self) -> str:
        """The rows as SQL over the temporal index."""
        return self._table.at(self.epoch)

    def count(self, *, where: str | None = None, contains: Mapping[str, str] | None = None) -> int:
        """How many rows there are.

        Args:
            where: an SQL condition over the columns.
            contains: text to be found in columns, upper and lower case alike.

        Raises:
            UnknownColumnError, InvalidSQLError: where the condition cannot be meant.
        """
        condition, parameters = self._condition(where, contains)
        found = self._query(f"SELECT count(*) AS n FROM ({self.rows_sql()}){condition}", parameters)
        return int(found["n"][0].as_py())

    def head(self, n: int = 10) -> pd.DataFrame:
        """The first rows by key, at most ``n``."""
        return self.page(limit=n)

    def page(
        self,
        offset: int = 0,
        limit: int = 20,
        *,
        order_by: str | None = None,
        descending: bool = False,
        where: str | None = None,
        contains: Mapping[str, str] | None = None,
    ) -> pd.DataFrame:
        """Some of the rows, in an order that is the same at every call.

        Args:
            offset: rows to pass over.
            limit: rows to give at most.
            order_by: the column to sort by; by default the key columns.
            descending: the largest first; missing values come last either way.
            where: an SQL condition over the columns.
            contains: text to be found in columns, upper and lower case alike.

        Raises:
            UnknownColumnError, InvalidSQLError, InvalidArgumentError: where an argument cannot be meant.

        Example:
            >>> table.page(limit=3, order_by="count", descending=True)  # doctest: +SKIP
        """
        if offset < 0 or limit < 0:
            raise InvalidArgumentError(f"offset={offset} and limit={limit} cannot be meant: neither may be negative.")
        condition, parameters = self._condition(where, contains)
        order = [f"{quoted(key)} ASC NULLS LAST" for key in self._table.key_columns]
        if order_by is not None:
            self._check_column(order_by)
            order.insert(0, f"{quoted(order_by)} {'DESC' if descending else 'ASC'} NULLS LAST")
        sql = f"SELECT * FROM ({self.rows_sql()}){condition} ORDER BY {', '.join(order)} LIMIT {limit} OFFSET {offset}"
        return to_pandas(self._typed(self._query(sql, parameters)))

    def lookup(self, /, **key: Any) -> dict[str, Any] | None:
        """The row of a key, by column; None where the key is not in the state at this epoch.

        Args:
            **key: a value for each key column.

        Raises:
            UnknownColumnError: where a name is no key column.
            InvalidArgumentError: where a key column is missing, or a value does not fit its type.

        Example:
            >>> table.lookup(carrier="UA", origin="EWR")  # doctest: +SKIP
            {'carrier': 'UA', 'origin': 'EWR', 'count': 46087, 'sum': 579063.0}
        """
        check_key(key, self._table.key_columns, self.name)
        condition, parameters = self._table.key_is(key)
        try:
            rows = self._typed(self._query(f"{self.rows_sql()} AND {condition}", parameters)).to_pylist()
        except InvalidSQLError as error:
            raise bad_key(key, self._table, error) from error
        return rows[0] if rows else None

    def lookup_many(self, keys: Keys) -> pd.DataFrame:
        """The rows of many keys in one go, in the order of the keys; those that are not in the state are left out.

        Args:
            keys: a frame or an Arrow table with the key columns, or a dict for each key.

        Raises:
            UnknownColumnError, InvalidArgumentError: as :meth:`lookup`.

        Example:
            >>> table.lookup_many([{"carrier": "UA", "origin": "EWR"}, {"carrier": "AA", "origin": "JFK"}])
            ... # doctest: +SKIP
        """
        return to_pandas(self._typed(rows_of(keys, self._index, self._table, self.epoch)))

    def summary(self) -> pd.DataFrame:
        """What the columns hold, one row each, keys first.

        Columns: ``column``, ``key``, ``type``, ``rows``, ``nulls``, ``distinct`` (exact up to 100,000 rows, beyond that
        estimated by a HyperLogLog sketch, a few percent off), ``min``, ``max``, ``mean``, the quantiles ``p01``,
        ``p25``, ``p50``, ``p75``, ``p99`` (exact; of numbers interpolated) and ``bytes`` (of the values: 8 for a long,
        the UTF-8 of a text, about its text for what is nested; before encoding and compression). What makes no sense
        for a type is missing: nested columns have neither extremes nor a mean, text no mean; a boolean's mean is the
        share of true. NaN counts as larger than any number, as in Spark.

        Example:
            >>> history.live().table().summary()[["column", "distinct", "p50", "p99"]]  # doctest: +SKIP
        """
        return column_summary(self, lambda sql: self._query(sql, []))

    def histogram(self, column: str, bins: int = 20) -> pd.DataFrame:
        """How the values of a column are spread; missing values are left out.

        Numbers, days and points in time: ``low``, ``high``, ``rows``, ``share``, one row for each of ``bins`` intervals
        of equal width; a value lies in the interval that it is at or above the ``low`` of, and the last takes its
        ``high`` as well. Infinities and NaN have rows of their own at the end. Everything else: ``value``, ``rows``,
        ``share`` of the ``bins`` most frequent values.

        Args:
            column: the column.
            bins: how many intervals, or values, at most 1,000.

        Raises:
            UnknownColumnError: where there is no such column.
            InvalidArgumentError: where ``bins`` cannot be meant.

        Example:
            >>> history.live().table().histogram("max", bins=10)  # doctest: +SKIP
        """
        self._check_column(column)
        return column_histogram(self, column, bins, lambda sql: self._query(sql, []))

    def skew(self) -> pd.DataFrame:
        """How the rows are spread over partitions, from 0 to the last that has ever had rows.

        Columns: ``partition``, ``rows``, ``bytes`` (as :meth:`summary` counts them), ``share`` of all rows, and
        ``ratio`` to the mean: 1 everywhere is even.

        Example:
            >>> history.live().table().skew().nlargest(3, "ratio")  # doctest: +SKIP
        """
        return partition_skew(self._table, self.epoch, lambda sql: self._query(sql, []))

    def heavy_keys(self, n: int = 10, *, by: Sequence[str] | str | None = None) -> pd.DataFrame:
        """The keys with most rows (of lists, maps, join sides); where each key has one, the largest.

        Columns: the key columns, ``_rows``, ``_bytes`` (as :meth:`summary` counts them), ``_share`` of all rows.

        Args:
            n: how many.
            by: the key columns that count as the key. By default all, but for a list's ``_position`` and a join side's
                ``index``, which number the rows of one key. For a map, name the columns of the grouping key.

        Raises:
            UnknownColumnError: where ``by`` names no key column.
            InvalidArgumentError: where ``n`` cannot be meant.

        Example:
            >>> history.live().table("op0_visits").heavy_keys(3, by="user")  # doctest: +SKIP
        """
        columns = grouping(self._table, self.name, by)
        return heavy_keys(self._table, self.epoch, n, columns, lambda sql: self._query(sql, []))

    def to_arrow(self) -> pa.Table:
        """All rows as an Arrow table with the column types on disk, sorted by key."""
        order = listed(self._table.key_columns)
        return self._typed(self._query(f"{self.rows_sql()} ORDER BY {order}", []))

    def to_pandas(self) -> pd.DataFrame:
        """All rows as a pandas frame, sorted by key."""
        return to_pandas(self.to_arrow())

    def to_polars(self) -> polars.DataFrame:
        """All rows as a Polars frame, sorted by key."""
        return to_polars(self.to_arrow())

    def __len__(self) -> int:
        return self.count()

    def __repr__(self) -> str:
        return (
            f"<StateTable {self.name} at epoch {self.epoch}: {self.count():,} rows,"
            f" key {', '.join(self.key_columns)}; {', '.join(self.value_columns) or 'no values'}>"
        )

    def _typed(self, found: pa.Table) -> pa.Table:
        return found.cast(self.schema)

    def _check_column(self, name: str) -> None:
        if name in self.schema.names:
            return
        begins = self._table.beginnings.get(name)
        where = f"in {self.name} at epoch {self.epoch}" + (f"; it is there from epoch {begins} on" if begins else "")
        raise UnknownColumnError.among("column", name, self.schema.names, where=where)

    def _condition(self, where: str | None, contains: Mapping[str, str] | None) -> tuple[str, list[str]]:
        parts, parameters = [], []
        if where is not None and where.strip():
            parts.append(f"({predicate_sql(where, self.schema.names, self.name)})")
        for name, text in (contains or {}).items():
            self._check_column(name)
            parts.append(f"contains(lower({quoted(name)}::VARCHAR), lower(?))")
            parameters.append(text)
        return (f" WHERE {' AND '.join(parts)}" if parts else ""), parameters

    def _query(self, sql: str, parameters: list[Any]) -> pa.Table:
        try:
            return self._index.query(sql, parameters)
        except duckdb.Error as error:
            raise InvalidSQLError(f"The condition cannot be run: {str(error).splitlines()[0]}") from error


def check_key(key: Mapping[str, Any], keys: list[str], table: str) -> None:
    """Raise unless there is a value for each key column and for nothing else."""
    for name in key:
        if name not in keys:
            raise UnknownColumnError.among("key column", name, keys, where=f"in {table}")
    missing = [name for name in keys if name not in key]
    if missing:
        raise InvalidArgumentError(
            f"The key of {table} needs a value for: {', '.join(missing)}.\nIts key columns: {', '.join(keys)}."
        )


def bad_key(key: Mapping[str, Any], table: IntervalTable, error: Exception) -> InvalidArgumentError:
    """The error for key values that do not fit the columns' types."""
    given = ", ".join(f"{name}={value!r}" for name, value in key.items())
    types = ", ".join(f"{name} {table.schema.field(name).type}" for name in table.key_columns)
    return InvalidArgumentError(f"{given} does not fit the key: {str(error).splitlines()[0]}\nKey columns: {types}.")
