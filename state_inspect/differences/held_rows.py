"""The rows of a diff, joined once and then read page by page, sorted and searched.

:meth:`Diff.page` compares the two epochs at every call, which is right for a single page. For many pages, both sides
are joined into a temporary table first, and each page is then a small sort.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, Self

import duckdb
import pandas as pd
import pyarrow as pa

from streamstate.errors import InvalidArgumentError, UnknownColumnError
from streamstate.snapshots.calls.checks import whole_number
from streamstate.state_inspect.differences.diff_sql import DiffSQL, check_change, numbered
from streamstate.state_inspect.frames import to_pandas
from streamstate.state_inspect.temporal_index.index import as_arrow

_WIDEST = 40_000_000
"""The most values to hold; for a larger diff, each page compares the epochs again."""


class Readable(Protocol):
    """The part of :class:`Index` that reads."""

    def query(
        self, sql: str, parameters: list[Any] | None = None, frames: Mapping[str, pa.Table] | None = None
    ) -> pa.Table:
        """Run a statement that reads."""

    def connection(self) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        """Open a separate connection."""


class HeldRows:
    """Pages of one diff; :meth:`Diff.held` returns it. Not thread-safe.

    Args:
        index: the index that holds the interval tables.
        sql: the diff's statements.
        columns: the page's columns: their names in the statements, and their names on the page.
        rows: the number of rows of the diff.
        made: makes a page from the rows of a statement, with their causes or without.
    """

    def __init__(
        self,
        index: Readable,
        sql: DiffSQL,
        columns: Sequence[tuple[str, str]],
        rows: int,
        made: Callable[[pa.Table, bool], pa.Table],
    ) -> None:
        self._sql = sql
        self._columns = columns
        self._made = made
        self._open = contextlib.ExitStack()
        self._connection = self._open.enter_context(index.connection())
        self._source = f"({sql.joined(None)})"
        if rows * len(columns) <= _WIDEST:
            self._connection.execute(f"CREATE TEMP TABLE held_rows AS {sql.joined(None)}")
            self._source = "temp.held_rows"

    def count(self, *, change: str | None = None, contains: str = "") -> int:
        """Return the number of differing keys.

        Args:
            change: count only ``added``, ``removed`` or ``changed`` keys.
            contains: text to find in a key column, ignoring case.

        Raises:
            InvalidArgumentError: there is no such kind of change.

        Example:
            >>> with history.diff(10, 12).held() as rows:
            ...     rows.count(change="changed", contains="jfk")
            3
        """
        condition, parameters = self._condition(change, contains)
        found = self._query(f"SELECT count(*) AS n FROM {self._source}{condition}", parameters)
        return int(found["n"][0].as_py())

    def page(self, offset: int = 0, limit: int = 20, **options: Any) -> pd.DataFrame:
        """Return a slice of the differing keys as a pandas frame; see :meth:`page_arrow`."""
        return to_pandas(self.page_arrow(offset, limit, **options))

    def page_arrow(
        self,
        offset: int = 0,
        limit: int = 20,
        *,
        change: str | None = None,
        contains: str = "",
        order_by: str | int | None = None,
        descending: bool = False,
        by_size: bool = False,
        relative: bool = False,
        causes: bool = True,
    ) -> pa.Table:
        """Return a slice of the differing keys as an Arrow table. The columns are those of :meth:`Diff.page`.

        Args:
            offset: the number of rows to skip.
            limit: the maximum number of rows to return.
            change: return only ``added``, ``removed`` or ``changed`` keys.
            contains: text to find in a key column, ignoring case.
            order_by: the column of the page to sort by, or its position if names repeat; by default the key.
            descending: sort the largest values first. Missing values come last either way.
            by_size: sort by the size of a difference, up or down; only for ``<column>_delta``. Keys that did not
                move, or whose difference is NaN, come last.
            relative: with ``by_size``, sort by the difference as a share of the old value; only for numbers. A value
                that was 0 has changed the most.
            causes: find the causes, which takes longer the more epochs are between; otherwise they are unknown.

        Raises:
            InvalidArgumentError: an argument is invalid.
            UnknownColumnError: there is no such column to sort by.

        Example:
            >>> with history.diff(10, 12).held() as rows:
            ...     page = rows.page_arrow(limit=3, order_by="count_delta", by_size=True, descending=True)
            >>> page["count_delta"].to_pylist()
            [3, 3, 2]
        """
        whole_number(offset, "offset", least=0)
        whole_number(limit, "limit", least=0)
        condition, parameters = self._condition(change, contains)
        ordered = self._order(order_by, descending=descending, by_size=by_size, relative=relative)
        sql = numbered(f"SELECT * FROM {self._source}{condition}", ordered, limit, offset)
        return self._made(self._query(sql, parameters), causes)

    def moved(self) -> set[int]:
        """Return the positions in a page of the differences that are not 0 for some changed key, from a single query.

        Example:
            >>> with history.diff(10, 12).held() as rows:
            ...     sorted(rows.moved())
            [5, 8, 11, 14]
        """
        differences = {at: int(number[1:]) for at, (number, _) in enumerate(self._columns) if number.startswith("d")}
        if not differences:
            return set()
        any_moved = ", ".join(f"bool_or({self._sql.number_where(at)})" for at in differences.values())
        found = self._query(f"SELECT {any_moved} FROM {self._source} WHERE _change = 'changed'", [])
        return {place for place, column in zip(differences, found.columns, strict=True) if column[0].as_py()}

    def close(self) -> None:
        """Release the rows. Safe to call more than once."""
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _condition(self, change: str | None, contains: str) -> tuple[str, list[Any]]:
        check_change(change)
        parts, parameters = [], []
        if change is not None:
            parts.append(f"_change = '{change}'")
        if contains:
            found = [f"contains(lower({key}::VARCHAR), lower(?))" for key in self._sql.keys]
            parts.append(f"({' OR '.join(found)})")
            parameters += [contains] * len(found)
        return (f" WHERE {' AND '.join(parts)}" if parts else ""), parameters

    def opening_order(self) -> dict[str, Any]:
        """Return the order in which a diff is shown first: the largest relative changes of the first number that moved.

        Example:
            >>> with history.diff(10, 12).held() as rows:
            ...     rows.opening_order()["order_by"]  # for rows.page(**rows.opening_order())
            5
        """
        ratios = [at for at in sorted(self.moved()) if self._sql.is_ratio(int(self._columns[at][0][1:]))]
        return {"order_by": ratios[0], "by_size": True, "relative": True, "descending": True} if ratios else {}

    def _order(self, order_by: str | int | None, *, descending: bool, by_size: bool, relative: bool) -> str:
        column = None if order_by is None else self._number(order_by)
        if column is None or not by_size:
            return self._sql.order(column, descending=descending)
        if not column.startswith("d") or (relative and not self._sql.is_ratio(int(column[1:]))):
            wanted = " of numbers" * relative
            raise InvalidArgumentError(
                f"Invalid order_by={order_by!r} with by_size: expected a column of differences{wanted}, <column>_delta."
            )
        at = int(column[1:])
        size = f"CASE WHEN {self._sql.number_where(at)} THEN abs({column}) END"
        if not relative:
            return self._sql.order(size, descending=descending)
        share = f"CASE WHEN o{at} = 0 THEN 'Infinity'::DOUBLE ELSE ({size})::DOUBLE / abs(o{at}::DOUBLE) END"
        share = f"CASE WHEN {self._sql.number_where(at)} THEN {share} END"
        direction = "DESC" if descending else "ASC"
        return f"{share} {direction} NULLS LAST, {self._sql.order(size, descending=descending)}"

    def _number(self, order_by: str | int) -> str:
        """Return the column's name in the statements."""
        if isinstance(order_by, int) and 0 <= order_by < len(self._columns):
            return self._columns[order_by][0]
        found = next((number for number, name in self._columns if name == order_by), None)
        if found is None:
            names = [name for _, name in self._columns]
            raise UnknownColumnError.among("column", str(order_by), names, where="in the diff")
        return found

    def _query(self, sql: str, parameters: list[Any]) -> pa.Table:
        return as_arrow(self._connection.sql(sql, params=parameters or None))
