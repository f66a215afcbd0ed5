"""Statements in the embedded engine, over the temporal index."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
from sqlglot import exp

from streamstate.snapshots.errors import InvalidSQLError, StoreError, StreamStateError, UnknownColumnError
from streamstate.state_inspect.frames import with_whole_numbers
from streamstate.state_inspect.sql import safety

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from streamstate.state_inspect.sql.names import Bound
    from streamstate.state_inspect.sql.user_data import DuckDBSource
    from streamstate.state_inspect.temporal_index.index import Index

_VOLATILE = {"random", "uuid", "gen_random_uuid", "uuidv4", "uuidv7", "get_current_time", "get_current_timestamp"}


class DuckDBEngine:
    """One statement, checked and ready to be run, as often as needed.

    Args:
        index: where the state tables are.
        bound: the statement and what its relations stand for; held on to, so that they stay.

    Raises:
        InvalidSQLError: where it does more than read, or DuckDB cannot make sense of it.
        UnknownColumnError: where it names a column that there is not.
    """

    def __init__(self, index: Index, bound: Bound[DuckDBSource]) -> None:
        self._index = index
        self._bound = bound
        self._sql = _plain(bound.statement.tree).sql(dialect="duckdb", comments=False)
        self._values = bound.statement.used()
        self.repeatable = not _is_volatile(bound.statement.tree)
        with self._connection() as cursor:
            safety.check(cursor, self._sql, bound.said)
            described = cursor.execute(f"DESCRIBE {self._sql}", self._values or None).fetchall()
        self.columns: list[str] = [str(one[0]) for one in described]
        self._kinds = [str(one[1]) for one in described]

    def rows(self) -> pa.Table:
        """All rows."""
        return self._run(self._sql)

    def first(self, count: int) -> pa.Table:
        """At most so many rows, the first."""
        return self._run(f"SELECT * FROM ({self._sql}) LIMIT {count}")

    def count(self) -> int:
        """How many rows there are."""
        with self._connection() as cursor:
            found = cursor.execute(f"SELECT count(*) FROM ({self._sql})", self._values or None).fetchone()
        return int(found[0]) if found else 0

    def spark_frame(self, spark: SparkSession | None, rows: pa.Table | None) -> DataFrame:
        """The rows as a Spark frame."""
        from streamstate.state_inspect.sql.sessions import frame_of, session_in_use

        return frame_of(session_in_use(spark), self.rows() if rows is None else rows)

    def _run(self, sql: str) -> pa.Table:
        with self._connection() as cursor:
            found = cursor.sql(sql, params=self._values or None).to_arrow_table()
        return with_whole_numbers(found.rename_columns(self.columns), self._kinds)

    @contextlib.contextmanager
    def _connection(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection that has the statement's relations; DuckDB's errors in our words."""
        try:
            with self._index.connection() as cursor:
                for name, source in self._bound.sources.items():
                    source.in_duckdb(cursor, name)
                yield cursor
        except duckdb.Error as error:
            raise self._failed(error) from error

    def _failed(self, error: duckdb.Error) -> StreamStateError:
        """Without DuckDB's picture of the statement, which is not the one the user wrote."""
        text = self._bound.in_users_words(str(error))
        unknown = re.search(r'Referenced column "([^"]+)" not found', text)
        if unknown:
            columns = [name for source in self._bound.sources.values() for name in source.columns]
            return UnknownColumnError.among("column", unknown.group(1), dict.fromkeys(columns))
        unread = re.search(r"registered as '\S+_files' failed: (.*)", text)
        if unread:
            return StoreError(f"Files of the store could not be read: {unread[1]}\nGive the statement again.")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return InvalidSQLError("\n".join([line for line in lines if not line.startswith(("LINE ", "^"))][:3]))


def _plain(tree: exp.Query) -> exp.Query:
    """The statement in a form that can follow DESCRIBE."""
    if isinstance(tree, (exp.Select, exp.SetOperation)):
        return tree
    return exp.select("*").from_(tree.subquery("rows", copy=False) if not isinstance(tree, exp.Subquery) else tree)


def _is_volatile(tree: exp.Query) -> bool:
    """Whether it may give other rows each time."""
    if tree.find(exp.TableSample, exp.Rand, exp.Uuid):
        return True
    return any(one.name.casefold() in _VOLATILE for one in tree.find_all(exp.Anonymous))
