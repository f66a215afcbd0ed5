"""One state table at one epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import pyarrow as pa

from streamstate.errors import UnknownColumnError
from streamstate.snapshots.calls.checks import whole_number
from streamstate.snapshots.store.duckdb_sql import listed, quoted
from streamstate.state_inspect.analytics.columns import column_histogram, column_summary
from streamstate.state_inspect.analytics.skew import grouping, heavy_keys, partition_skew
from streamstate.state_inspect.captured_query import QueryHistory
from streamstate.state_inspect.frames import to_pandas, to_polars
from streamstate.state_inspect.keys.key_rows import Keys, rows_of_keys
from streamstate.state_inspect.keys.table_key import TableKey
from streamstate.state_inspect.python_rows import records
from streamstate.state_inspect.sql.condition_policy import CheckedCondition, checked_condition, condition_failed
from streamstate.state_inspect.temporal_index.index import Index, as_arrow, rows_at
from streamstate.state_inspect.temporal_index.interval_table import IntervalTable, held_at

if TYPE_CHECKING:
    import polars


class StateTable:
    """The rows of one state table at one epoch. Epochs captured later do not change them."""

    def __init__(self, index: Index, table: IntervalTable, name: str, epoch: int, *, history: QueryHistory) -> None:
        self._index = index
        self._table = table
        self.name = name
        """The table's name, such as ``op0``."""
        self.epoch = epoch
        """The epoch."""
        self.history = history
        """The history it was read from."""
        self._columns = table.columns_at(epoch)

    @property
    def key_columns(self) -> list[str]:
        """Names of the key columns, in the order on disk. Together they identify a row."""
        return [name for name in self._table.key_columns if name in self._columns]

    @property
    def value_columns(self) -> list[str]:
        """Names of the value columns, in the order on disk."""
        return [name for name in self._columns if name not in self._table.key_columns]

    @property
    def table_key(self) -> TableKey:
        """Reads keys that a person writes, for parts of streamstate that take them."""
        columns, schema = self._table.key_columns, self._table.schema
        return TableKey(self.name, columns, schema, self.history.recorded, self._some_key)

    def _some_key(self) -> dict[str, Any] | None:
        """Return the key of a row at this epoch, or at another."""
        for valid in (held_at(self.epoch), "true"):
            keys = listed(self._table.key_columns)
            found = self._query(f"SELECT {keys} FROM {self._table.relation} WHERE {valid} LIMIT 1")
            if found.num_rows:
                return records(found)[0]
        return None

    @property
    def intervals(self) -> IntervalTable:
        """The temporal index that the rows are read from."""
        return self._table

    @property
    def schema(self) -> pa.Schema:
        """Names and Arrow types of the columns, keys first."""
        return pa.schema([self._table.schema.field(name).remove_metadata() for name in self._columns])

    def rows_sql(self) -> str:
        """Return the rows as SQL over the temporal index."""
        return self._table.at(self.epoch)

    def count(self, *, where: str | None = None, contains: Mapping[str, str] | None = None) -> int:
        """Return the number of rows.

        Args:
            where: an SQL condition over the columns.
            contains: text to find in columns, ignoring case.

        Raises:
            UnknownColumnError: a column does not exist.
            InvalidSQLError: the condition is invalid.
        """
        if where is None and not contains:
            return rows_at(self._index, self._table, self.epoch)
        found = self._filtered(where, contains, "SELECT count(*) AS n")
        return int(found["n"][0].as_py())

    def head(self, n: int = 10) -> pd.DataFrame:
        """Return the first ``n`` rows, sorted by key."""
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
        """Return a slice of the rows, in a stable order, as a pandas frame; :meth:`page_arrow` returns an Arrow table.

        Args:
            offset: the number of rows to skip.
            limit: the maximum number of rows to return.
            order_by: the column to sort by; by default the key columns.
            descending: sort the largest values first. Missing values come last either way.
            where: an SQL condition over the columns.
            contains: text to find in columns, ignoring case.

        Raises:
            UnknownColumnError: a column does not exist.
            InvalidSQLError: the condition is invalid.
            InvalidArgumentError: the offset or the limit is not an integer of at least 0.

        Example:
            >>> table.page(limit=2, order_by="count", descending=True)
              carrier origin  count     sum  count_2     max
            0      HA    JFK     75  3487.0       75  1301.0
            1      UA    EWR     75  2247.0       75    60.0
        """
        found = self.page_arrow(offset, limit, order_by=order_by, descending=descending, where=where, contains=contains)
        return to_pandas(found)

    def page_arrow(
        self,
        offset: int = 0,
        limit: int = 20,
        *,
        order_by: str | None = None,
        descending: bool = False,
        where: str | None = None,
        contains: Mapping[str, str] | None = None,
    ) -> pa.Table:
        """As :meth:`page`, with the column types on disk."""
        whole_number(offset, "offset", least=0)
        whole_number(limit, "limit", least=0)
        order = order_sql(self._sorted_by, order_by, self._check_column, descending=descending)
        found = self._filtered(where, contains, "SELECT *", f"ORDER BY {order} LIMIT {limit} OFFSET {offset}")
        return self._typed(found)

    def lookup(self, /, **key: Any) -> dict[str, Any] | None:
        """Return the row of one key as a dict; None if the key is not in the state at this epoch.

        Args:
            **key: a value for each key column; or ``key={…}``, for column names that cannot be keyword arguments.

        Raises:
            UnknownColumnError: a name is not a key column.
            InvalidArgumentError: a key column is missing, a value does not fit its type, or the key is given both
                ways.

        Example:
            >>> table.lookup(carrier="UA", origin="EWR")
            {'carrier': 'UA', 'origin': 'EWR', 'count': 75, 'sum': 2247.0, 'count_2': 75, 'max': 60.0}
            >>> table.lookup(key={"carrier": "UA", "origin": "LGA"})  # None: there is no such key
        """
        condition, parameters = self._table.key_is(self.table_key.given(key))
        rows = records(self._typed(self._query(f"{self.rows_sql()} AND {condition}", parameters)))
        return rows[0] if rows else None

    def lookup_many(self, keys: Keys) -> pd.DataFrame:
        """Return the rows of many keys, in the order of the keys. Keys that are not in the state are left out.

        Args:
            keys: a frame or an Arrow table with the key columns, or a list of dicts, one per key.

        Raises:
            UnknownColumnError, InvalidArgumentError: as :meth:`lookup`.

        Example:
            >>> table.lookup_many([{"carrier": "UA", "origin": "EWR"}, {"carrier": "AA", "origin": "JFK"}])
        """
        return to_pandas(self.lookup_many_arrow(keys))

    def lookup_many_arrow(self, keys: Keys) -> pa.Table:
        """As :meth:`lookup_many`, with the column types on disk."""
        return self._typed(rows_of_keys(self.table_key.many(keys), self._index, self._table, self.epoch))

    def summary(self) -> pd.DataFrame:
        """Return statistics of each column, one row per column, keys first.

        Columns: ``column``, ``key``, ``type``, ``rows``, ``nulls``, ``distinct`` (exact up to 100,000 rows, beyond that
        a HyperLogLog estimate within a few percent), ``min``, ``max``, ``mean``, the quantiles ``p01``, ``p25``,
        ``p50``, ``p75``, ``p99`` (exact; interpolated for numbers) and ``bytes`` (the size of the values: 8 for a
        long, the UTF-8 length of a string, roughly the printed length of a nested value; before encoding and
        compression). Statistics that a type does not have are missing: nested columns have no minimum, maximum or mean,
        strings no mean; the mean of a boolean is the share of true. NaN counts as larger than any number, as in Spark.

        Example:
            >>> history.live().table().summary()[["column", "distinct", "p50", "p99"]].tail(2)
                column  distinct   p50      p99
            4  count_2         2  74.0     75.0
            5      max         3  60.0  1251.36
        """
        return column_summary(self.schema, self.key_columns, self.rows_sql(), self.count(), self._query)

    def histogram(self, column: str, bins: int = 20) -> pd.DataFrame:
        """Return the distribution of a column's values. Missing values are left out.

        For numbers, dates and timestamps: ``low``, ``high``, ``rows``, ``share``, one row for each of ``bins``
        intervals of equal width. An interval includes its ``low``; the last one also includes its ``high``. Infinities
        and NaN have rows of their own at the end. For everything else: ``value``, ``rows``, ``share`` of the ``bins``
        most frequent values.

        Args:
            column: the column.
            bins: the number of intervals or values, from 1 to 1,000.

        Raises:
            UnknownColumnError: the column does not exist.
            InvalidArgumentError: ``bins`` is out of range.

        Example:
            >>> history.live().table().histogram("max", bins=2)
                 low    high  rows  share
            0   59.0   680.0     4    0.8
            1  680.0  1301.0     1    0.2
        """
        self._check_column(column)
        return column_histogram(self.schema.field(column), self.rows_sql(), bins, self._query)

    def skew(self) -> pd.DataFrame:
        """Return the rows per partition, from 0 to the last partition that has ever had rows.

        Columns: ``partition``, ``rows``, ``bytes`` (as in :meth:`summary`), ``share`` of all rows, and ``ratio`` to
        the mean, which is 1 everywhere if the state is spread evenly.

        Example:
            >>> history.live().table().skew().nlargest(1, "ratio")
               partition  rows  bytes  share  ratio
            1          1     3    111    0.6    1.2
        """
        return partition_skew(self._table, self.epoch, self._query)

    def heavy_keys(self, n: int = 10, *, by: Sequence[str] | str | None = None) -> pd.DataFrame:
        """Return the keys with the most rows (lists, maps, join sides) or, if each key has one row, the largest rows.

        Columns: the key columns, ``_rows``, ``_bytes`` (as in :meth:`summary`), ``_share`` of all rows.

        Args:
            n: the number of keys to return.
            by: the key columns to group by. By default all, except the ``_position`` of a list and the ``index`` of a
                join side, which number the rows of one key. For a map, name the columns of the grouping key.

        Raises:
            UnknownColumnError: ``by`` names a column that is not a key column.
            InvalidArgumentError: ``n`` is not an integer of at least 0.

        Example:
            >>> store["sessions"].live().table().heavy_keys(1, by="user")
              user  _rows  _bytes    _share
            0   u2     17    1326  0.377778
        """
        columns = grouping(self._table, self.name, by)
        return heavy_keys(self._table, self.epoch, n, columns, self._query)

    def to_arrow(self) -> pa.Table:
        """Return all rows as an Arrow table with the column types on disk, sorted by key."""
        return self._typed(self._query(f"{self.rows_sql()} ORDER BY {listed(self._sorted_by)}"))

    def to_pandas(self) -> pd.DataFrame:
        """Return all rows as a pandas frame, sorted by key."""
        return to_pandas(self.to_arrow())

    def to_polars(self) -> polars.DataFrame:
        """Return all rows as a Polars frame, sorted by key."""
        return to_polars(self.to_arrow())

    def __len__(self) -> int:
        return self.count()

    def __repr__(self) -> str:
        return (
            f"<StateTable {self.name} at epoch {self.epoch}: {self.count():,} rows,"
            f" key {', '.join(self.key_columns)}; {', '.join(self.value_columns) or 'no values'}>"
        )

    @property
    def _sorted_by(self) -> list[str]:
        """The key columns; all columns if the rows do not have their whole key."""
        return self.key_columns if len(self.key_columns) == len(self._table.key_columns) else self._columns

    def _typed(self, found: pa.Table) -> pa.Table:
        return found.cast(self.schema)

    def _check_column(self, name: str) -> None:
        if name in self.schema.names:
            return
        begins = self._table.beginnings.get(name)
        where = f"in {self.name} at epoch {self.epoch}" + (f"; it exists from epoch {begins} on" if begins else "")
        raise UnknownColumnError.among("column", name, self.schema.names, where=where)

    def _filtered(self, where: str | None, contains: Mapping[str, str] | None, select: str, end: str = "") -> pa.Table:
        filters = Filters(where, contains, self.schema.names, self.name)
        return filters.query(self._index, self.rows_sql(), select, end, self._check_column)

    def _query(self, sql: str, parameters: list[Any] | None = None) -> pa.Table:
        return run_filtered(self._index, sql, parameters or [])


CheckColumn = Callable[[str], None]
"""Raises for a column that the table does not have."""


@dataclass(frozen=True)
class Filters:
    """Filters of the rows of a table: a condition, and text that columns contain, ignoring case."""

    where: str | None
    contains: Mapping[str, str] | None
    columns: Sequence[str]
    table: str

    def query(self, index: Index, rows: str, select: str, end: str, check: CheckColumn) -> pa.Table:
        """Run a statement over the rows that meet the filters.

        Args:
            index: has the rows.
            rows: the rows as SQL.
            select: how the statement begins, until its FROM.
            end: what comes after the FROM.
            check: raises for a column that the rows do not have.
        """
        where = (self.where or "").strip()
        condition = checked_condition(where, self.columns, self.table) if where else None
        meets = [f"({condition.sql})"] if condition else []
        for name in self.contains or {}:
            check(name)
            meets.append(f"contains(lower({quoted(name)}::VARCHAR), lower(?))")
        parameters = [*(self.contains or {}).values()]
        where = " AND ".join(meets)
        parts = 1 if condition is None or condition.is_small else condition.parts(self._size(index, rows, condition))
        if parts == 1:
            filtered = f"(SELECT * FROM ({rows}) WHERE {where})" if meets else f"({rows})"
            return run_filtered(index, f"{select} FROM {filtered} {end}", parameters)
        part = f"hash({listed(self.columns)}) % {parts}"
        try:
            with index.connection() as cursor:
                cursor.execute(f"CREATE TEMP TABLE _rows AS {rows}")
                for at in range(parts):
                    into = "INSERT INTO _met" if at else "CREATE TEMP TABLE _met AS"
                    cursor.execute(f"{into} FROM _rows WHERE CASE WHEN {part} = {at} THEN {where} END", parameters)
                return as_arrow(cursor.sql(f"{select} FROM _met {end}"))
        except duckdb.Error as error:
            raise condition_failed(error) from error

    def _size(self, index: Index, rows: str, condition: CheckedCondition) -> int:
        """Return the bytes in the columns that a condition uses."""
        used = {name.casefold() for name in condition.columns}
        lengths = [f"coalesce(strlen({quoted(name)}::VARCHAR), 0)" for name in self.columns if name.casefold() in used]
        size = run_filtered(index, f"SELECT sum({' + '.join(lengths) or '0'}) AS n FROM ({rows})", [])["n"][0].as_py()
        return int(size or 0)


def order_sql(keys: Sequence[str], order_by: str | None, check: CheckColumn, *, descending: bool) -> str:
    """Return the ORDER BY list: a column, if one is given, then the key columns."""
    order = [f"{quoted(key)} ASC NULLS LAST" for key in keys]
    if order_by is not None:
        check(order_by)
        order.insert(0, f"{quoted(order_by)} {'DESC' if descending else 'ASC'} NULLS LAST")
    return ", ".join(order)


def run_filtered(index: Index, sql: str, parameters: list[Any]) -> pa.Table:
    """Run a statement that contains a user's condition."""
    try:
        return index.query(sql, parameters)
    except duckdb.Error as error:
        raise condition_failed(error) from error
