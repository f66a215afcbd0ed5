"""The rows of a diff for readers that page through them, sort and search: joined once, read many times.

A page of :meth:`Diff.page` compares the two epochs anew, which is right for one page. Somebody who looks through a
million changed keys asks for many: the first question joins both sides into a temporary table, and each page after it
is a small sort.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, Self

import pyarrow as pa

from streamstate.snapshots.errors import InvalidArgumentError, UnknownColumnError
from streamstate.state_inspect.frames import with_whole_numbers

if TYPE_CHECKING:
    import duckdb
    import pandas as pd

    from streamstate.state_inspect.differences.diff_sql import DiffSQL

__all__ = ["HeldRows"]

_WIDEST = 40_000_000
"""Values that are held at most; where a diff has more, each page compares the epochs anew."""
_CHANGES = ("added", "removed", "changed")


class Readable(Protocol):
    """An index as those need it who only read: see :class:`Index`."""

    def query(
        self, sql: str, parameters: list[Any] | None = None, frames: Mapping[str, pa.Table] | None = None
    ) -> pa.Table:
        """Run a statement that reads."""

    def connection(self) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        """A connection of one's own."""


class HeldRows:
    """Pages of one diff; :meth:`Diff.held` gives it. One thread at a time may ask.

    Args:
        index: where the interval tables are.
        sql: the diff's statements.
        columns: the numbers of the page's columns in the statements, and their names.
        rows: how many rows the diff has.
        frame: makes what a page shows of the rows that a statement found.
    """

    def __init__(
        self,
        index: Readable,
        sql: DiffSQL,
        columns: Sequence[tuple[str, str]],
        rows: int,
        frame: Callable[[pa.Table], pd.DataFrame],
    ) -> None:
        self._sql = sql
        self._columns = columns
        self._frame = frame
        self._open = contextlib.ExitStack()
        self._connection = self._open.enter_context(index.connection())
        self._source = f"({sql.joined(None)})"
        if rows * len(columns) <= _WIDEST:
            self._connection.execute(f"CREATE TEMP TABLE held_rows AS {sql.joined(None)}")
            self._source = "temp.held_rows"

    def count(self, *, change: str | None = None, contains: str = "") -> int:
        """How many keys differ.

        Args:
            change: only ``added``, ``removed`` or ``changed`` keys.
            contains: text to be found in a key column, upper and lower case alike.

        Raises:
            InvalidArgumentError: where there is no such kind of change.

        Example:
            >>> with history.diff(10, 12).held() as rows:  # doctest: +SKIP
            ...     rows.count(change="changed", contains="jfk")
            41
        """
        condition, parameters = self._condition(change, contains)
        found = self._query(f"SELECT count(*) AS n FROM {self._source}{condition}", parameters)
        return int(found["n"][0].as_py())

    def page(
        self,
        offset: int = 0,
        limit: int = 20,
        *,
        change: str | None = None,
        contains: str = "",
        order_by: str | int | None = None,
        descending: bool = False,
        by_size: bool = False,
    ) -> pd.DataFrame:
        """Some of the keys that differ; the columns are those of :meth:`Diff.page`.

        Args:
            offset: rows to pass over.
            limit: rows to give at most.
            change: only ``added``, ``removed`` or ``changed`` keys.
            contains: text to be found in a key column, upper and lower case alike.
            order_by: one of the page's columns to sort by, or its position where names repeat; by default the key.
            descending: the largest first; missing values come last either way.
            by_size: sort by how large a difference is, up or down; only for ``<column>_delta``. What has not moved,
                or by no number, comes last.

        Raises:
            InvalidArgumentError: where an argument cannot be meant.
            UnknownColumnError: where there is no such column to sort by.

        Example:
            >>> with history.diff(10, 12).held() as rows:  # doctest: +SKIP
            ...     rows.page(limit=5, order_by="count_delta", by_size=True, descending=True)
        """
        if offset < 0 or limit < 0:
            raise InvalidArgumentError(f"offset={offset} and limit={limit} cannot be meant: neither may be negative.")
        condition, parameters = self._condition(change, contains)
        ordered = self._order(order_by, descending=descending, by_size=by_size)
        sql = (
            f"SELECT row_number() OVER (ORDER BY {ordered}) - 1 AS _row, * FROM (SELECT * FROM {self._source}"
            f"{condition} ORDER BY {ordered} LIMIT {limit} OFFSET {offset}) ORDER BY _row"
        )
        return self._frame(self._query(sql, parameters))

    def close(self) -> None:
        """Let go of what is held. Idempotent."""
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _condition(self, change: str | None, contains: str) -> tuple[str, list[Any]]:
        parts, parameters = [], []
        if change is not None:
            if change not in _CHANGES:
                raise InvalidArgumentError(f"change={change!r} cannot be meant: give one of {', '.join(_CHANGES)}.")
            parts.append(f"_change = '{change}'")
        if contains:
            found = [f"contains(lower({key}::VARCHAR), lower(?))" for key in self._sql.keys]
            parts.append(f"({' OR '.join(found)})")
            parameters += [contains] * len(found)
        return (f" WHERE {' AND '.join(parts)}" if parts else ""), parameters

    def _order(self, order_by: str | int | None, *, descending: bool, by_size: bool) -> str:
        way = "DESC" if descending else "ASC"
        keys = [f"{key} {way if order_by is None else 'ASC'} NULLS LAST" for key in self._sql.keys]
        if order_by is None:
            return ", ".join(keys)
        column = self._number(order_by)
        if by_size:
            if not column.startswith("d"):
                raise InvalidArgumentError(f"by_size goes with a column of differences; {order_by!r} is none.")
            column = f"CASE WHEN {self._sql.number_where(int(column[1:]))} THEN abs({column}) END"
        return ", ".join([f"{column} {way} NULLS LAST", *keys])

    def _number(self, order_by: str | int) -> str:
        """The column's number in the statements."""
        if isinstance(order_by, int) and 0 <= order_by < len(self._columns):
            return self._columns[order_by][0]
        found = next((number for number, name in self._columns if name == order_by), None)
        if found is None:
            names = [name for _, name in self._columns]
            raise UnknownColumnError.among("column", str(order_by), names, where="in the diff")
        return found

    def _query(self, sql: str, parameters: list[Any]) -> pa.Table:
        relation = self._connection.sql(sql, params=parameters or None)
        return with_whole_numbers(relation.to_arrow_table(), [str(kind) for kind in relation.types])
