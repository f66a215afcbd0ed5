"""Statements in DuckDB, and the relations that they read: state tables at an epoch, histories and changelogs."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
from sqlglot import exp

from streamstate.errors import InvalidSQLError, StoreError, StreamStateError, UnknownColumnError
from streamstate.snapshots.checkpoint.state_tables import CHANGE, EPOCH, PARTITION
from streamstate.snapshots.store.changelog import DELETE, KEYFRAME, ChangeLog
from streamstate.snapshots.store.delta.data_files import verified
from streamstate.snapshots.store.duckdb_sql import listed, quoted
from streamstate.state_inspect.captured_query import CapturedQuery
from streamstate.state_inspect.results.results import RESULT
from streamstate.state_inspect.snapshot import Snapshot
from streamstate.state_inspect.sql.statement_policy import check_for_duckdb
from streamstate.state_inspect.sql.time_travel import CHANGES, HISTORY, INPUTS, Bound
from streamstate.state_inspect.sql.user_data import DuckDBSource
from streamstate.state_inspect.state_table import StateTable
from streamstate.state_inspect.temporal_index.epoch_runs import spans_until
from streamstate.state_inspect.temporal_index.index import Index, as_arrow
from streamstate.state_inspect.temporal_index.interval_table import IntervalTable

_VOLATILE = {"random", "uuid", "gen_random_uuid", "uuidv4", "uuidv7", "get_current_time", "get_current_timestamp"}


class DuckDBEngine:
    """One statement, checked and ready to run any number of times. Its sources are held so that they stay."""

    frame = None

    def __init__(self, index: Index, bound: Bound[DuckDBSource]) -> None:
        self._index = index
        self._bound = bound
        self._sql = _plain(bound.statement.tree).sql(dialect="duckdb", comments=False)
        self._values = bound.statement.used()
        self.repeatable = not _is_volatile(bound.statement.tree)
        with self._connection() as cursor:
            check_for_duckdb(cursor, self._sql, bound.original_names)
            described = cursor.execute(f"DESCRIBE {self._sql}", self._values or None).fetchall()
        self.columns: list[str] = [str(column[0]) for column in described]

    def rows(self) -> pa.Table:
        """Return all rows."""
        return self._run(self._sql)

    def first(self, count: int) -> pa.Table:
        """Return the first rows, at most ``count``."""
        return self._run(f"SELECT * FROM ({self._sql}) LIMIT {count}")

    def count(self) -> int:
        """Return the number of rows."""
        with self._connection() as cursor:
            found = cursor.execute(f"SELECT count(*) FROM ({self._sql})", self._values or None).fetchone()
        return int(found[0]) if found else 0

    def _run(self, sql: str) -> pa.Table:
        with self._connection() as cursor:
            return as_arrow(cursor.sql(sql, params=self._values or None)).rename_columns(self.columns)

    @contextlib.contextmanager
    def _connection(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection with the statement's relations; translates DuckDB's errors."""
        try:
            with self._index.connection() as cursor:
                for name, source in self._bound.sources.items():
                    source.in_duckdb(cursor, name)
                yield cursor
        except duckdb.Error as error:
            raise self._failed(error) from error

    def _failed(self, error: duckdb.Error) -> StreamStateError:
        """Return the error without DuckDB's excerpt of the statement, which is not the text that the user wrote."""
        text = self._bound.in_users_words(str(error))
        unknown = re.search(r'Referenced column "([^"]+)" not found', text)
        if unknown:
            columns = [name for source in self._bound.sources.values() for name in source.columns]
            return UnknownColumnError.among("column", unknown.group(1), dict.fromkeys(columns))
        unread = re.search(r"registered as '\S+_files' failed: (.*)", text)
        if unread:
            return StoreError(f"Files of the store could not be read: {unread[1]}\nRun the statement again.")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return InvalidSQLError("\n".join([line for line in lines if not line.startswith(("LINE ", "^"))][:3]))


def _plain(tree: exp.Query) -> exp.Query:
    """Return the statement in a form that DESCRIBE accepts."""
    if isinstance(tree, (exp.Select, exp.SetOperation)):
        return tree
    return exp.select("*").from_(tree.subquery("rows", copy=False) if not isinstance(tree, exp.Subquery) else tree)


def _is_volatile(tree: exp.Query) -> bool:
    """Return whether a statement may return different rows each time."""
    if tree.find(exp.TableSample, exp.Rand, exp.Uuid):
        return True
    return any(function.name.casefold() in _VOLATILE for function in tree.find_all(exp.Anonymous))


def read_in_duckdb(query: CapturedQuery, snapshot: Snapshot, table: str, kind: str | None) -> DuckDBSource:
    """Return a state table of a snapshot, its result, its history or its changes."""
    if kind is not None and kind.startswith(INPUTS):
        raise InvalidSQLError(
            f"{query.name}.{kind} is what the query's sources delivered, which only Spark can read.\n"
            "Pass engine='spark', or in a cell: %%statesql --engine spark."
        )
    if kind == CHANGES:
        return _changes(query.changelog(table), snapshot.epoch)
    if kind == HISTORY:
        if not query.is_soon_read(table, -1):
            return _history_in_files(query.changelog(table), snapshot.epoch)
        return _history(query.interval_table(table, -1), snapshot.epoch)
    state = snapshot.table(f"{table}.{RESULT}" if kind == RESULT else table)
    return _View([*state.key_columns, *state.value_columns], state.rows_sql(), state)


@dataclass(frozen=True)
class _View:
    """Rows of the temporal index."""

    columns: list[str]
    sql: str
    table: StateTable | IntervalTable  # held, because the index drops a table that nothing refers to

    def in_duckdb(self, cursor: duckdb.DuckDBPyConnection, name: str) -> None:
        cursor.execute(f"CREATE TEMP VIEW {quoted(name)} AS {self.sql}")


def _history(table: IntervalTable, epoch: int) -> _View:
    """Return all versions known at an epoch; a version that ended after the epoch is still valid at it."""
    columns = [PARTITION, *table.columns]
    sql = (
        f"SELECT _valid_from, CASE WHEN _valid_to <= {epoch} THEN _valid_to END AS _valid_to, {listed(columns)}"
        f" FROM {table.relation} WHERE _valid_from <= {epoch}"
    )
    return _View(["_valid_from", "_valid_to", *columns], sql, table)


@dataclass(frozen=True)
class _Rows:
    """Rows of a changelog, streamed from its files."""

    columns: list[str]
    files: pa.Table | ds.Dataset
    sql: str
    """Their query over the relation ``files``."""

    def in_duckdb(self, cursor: duckdb.DuckDBPyConnection, name: str) -> None:
        cursor.register(f"{name}_files", self.files)
        rows = f"WITH files AS (FROM {quoted(name + '_files')}) {self.sql}"
        cursor.execute(f"CREATE TEMP VIEW {quoted(name)} AS {rows}")


def _changes(log: ChangeLog, epoch: int) -> _Rows:
    """Return the changelog up to an epoch."""
    sql = f"SELECT {listed(log.all_columns)} FROM files WHERE {EPOCH} <= {epoch}"
    return _Rows(log.all_columns, _files(log, epoch), sql)


def _history_in_files(log: ChangeLog, epoch: int) -> _Rows:
    """As :func:`_history`, without an index; DuckDB applies conditions on keys while it reads the files."""
    columns = [PARTITION, *log.columns]
    spans = ", ".join(
        f"({first}, {last}, {starts}, {'NULL' if gap is None else gap})"
        for first, last, starts, gap in spans_until(log.facts, epoch)
    )
    keys = ", ".join(f"files.{quoted(name)}" for name in log.key_columns)
    following = f"lead({EPOCH}) OVER (PARTITION BY spans._first, {keys} ORDER BY {EPOCH})"
    in_span = f"{EPOCH} BETWEEN spans._first AND spans._last"
    sql = (
        f"SELECT {EPOCH} AS _valid_from, _until AS _valid_to, {listed(columns)}"
        f" FROM (SELECT files.*, coalesce({following}, spans._gap) AS _until FROM files"
        f" JOIN (VALUES {spans}) AS spans (_first, _last, _restarts, _gap) ON {in_span}"
        f" WHERE {CHANGE} <> '{KEYFRAME}' AND (NOT spans._restarts OR {EPOCH} > spans._first)"
        f" OR {CHANGE} = '{KEYFRAME}' AND spans._restarts AND {EPOCH} = spans._first) WHERE {CHANGE} <> '{DELETE}'"
    )
    return _Rows(["_valid_from", "_valid_to", *columns], _files(log, epoch), sql)


def _files(log: ChangeLog, epoch: int) -> pa.Table | ds.Dataset:
    """Return the changelog's files up to an epoch, verified and, from an object store, downloaded."""
    schema = log.version.schema
    files = [file for file in log.version.files(EPOCH) if file.may_hold(None, epoch)]
    paths = [str(verified(log.version.place, file.path, file.size)) for file in files]
    return ds.dataset(paths, schema=schema) if paths else schema.empty_table()
