"""SQL over state: time travel becomes a filter on the temporal index, and reading is all that is allowed.

``delays`` (where there is one state table) and ``delays.op0_left`` are relations. ``VERSION AS OF 12`` and
``TIMESTAMP AS OF '…'`` (the SQL:2011 spellings that Delta and Iceberg use) choose an epoch for one relation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import duckdb
import pandas as pd
import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import traverse_scope

from streamstate.snapshots.errors import (
    InvalidArgumentError,
    InvalidSQLError,
    StreamStateError,
    UnknownColumnError,
    UnknownNameError,
)
from streamstate.state_inspect.expressions import first_error
from streamstate.state_inspect.frames import to_pandas, to_polars
from streamstate.state_inspect.timestamps import aware

if TYPE_CHECKING:
    import polars

    from streamstate.state_inspect.index import Index
    from streamstate.state_inspect.snapshot import Snapshot
    from streamstate.state_inspect.state_table import StateTable

# Table functions that make rows from their arguments alone.
_HARMLESS = {"unnest", "range", "generate_series", "values"}

Travel = Callable[[str, "int | datetime | None"], "Snapshot"]
"""Gives a query's snapshot at an epoch or moment, None meaning the newest."""


@dataclass(frozen=True)
class Result:
    """Rows that a statement gave."""

    rows: pa.Table

    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table."""
        return self.rows

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a pandas frame."""
        return to_pandas(self.rows)

    def to_polars(self) -> polars.DataFrame:
        """The rows as a Polars frame."""
        return to_polars(self.rows)

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def __repr__(self) -> str:
        return f"{self._first()}\n{self._said()}"

    def _repr_html_(self) -> str:
        return f"{self._first().to_html(index=False)}<p>{self._said()}</p>"

    def _first(self) -> pd.DataFrame:
        return to_pandas(self.rows.slice(0, 20))

    def _said(self) -> str:
        left = self.rows.num_rows - 20
        return f"{self.rows.num_rows:,} rows" + (f", {left:,} of them not shown" if left > 0 else "")


def run(sql: str, index: Index, travel: Travel, queries: list[str], at: int | datetime | None) -> Result:
    """Run a statement that reads.

    Raises:
        InvalidSQLError: where it does not parse, does more than read, or fails.
        UnknownNameError: where a relation, column or epoch does not exist.
    """
    statement = _parsed(sql)
    columns: list[str] = []
    held: list[StateTable] = []  # a relation of the index goes once nobody holds its table
    for relation in list(_relations(statement)):
        table = _state_table(relation, travel, queries, at)
        held.append(table)
        columns += [*table.key_columns, *table.value_columns]
        relation.replace(_subquery(relation, table))
    try:
        return Result(index.query(statement.sql(dialect="duckdb")))
    except duckdb.Error as error:
        raise _failed(error, columns) from error


def _parsed(sql: str) -> exp.Query:
    if not sql.strip():
        raise InvalidSQLError("There is no SQL to run. Write a statement such as: SELECT * FROM delays LIMIT 10")
    try:
        statements = [one for one in sqlglot.parse(sql, read="duckdb") if one is not None]
    except SqlglotError as error:
        raise InvalidSQLError(f"The SQL does not parse: {first_error(error)}") from error
    if len(statements) != 1:
        raise InvalidSQLError(f"Give one statement, not {len(statements)}.")
    statement = statements[0]
    writes = statement.find(exp.DDL, exp.DML, exp.Into, exp.Command)
    if isinstance(statement, exp.Query) and writes is None:
        return statement
    what = statement.sql(dialect="duckdb").split(" ", 1)[0]
    raise InvalidSQLError(f"{what} is not allowed: snapshots are only read. Start the statement with SELECT or WITH.")


def _relations(statement: exp.Query) -> Iterator[exp.Table]:
    """The tables that are no common table expressions, each once."""
    seen: set[int] = set()
    for scope in traverse_scope(statement):
        for source in scope.sources.values():
            if isinstance(source, exp.Table) and id(source) not in seen:
                seen.add(id(source))
                if not _makes_rows(source):
                    yield source


def _makes_rows(relation: exp.Table) -> bool:
    """Whether it is a table function; those that could reach anything outside the arguments are refused."""
    if isinstance(relation.this, exp.Identifier):
        return False
    function = relation.this
    name = (function.name if isinstance(function, exp.Anonymous) else function.key).casefold()
    if name.replace("_", "") in {one.replace("_", "") for one in _HARMLESS}:
        return True
    raise InvalidSQLError(
        f"{name}() is not allowed: SQL over snapshots reads state tables, not files or the database's own functions."
    )


def _state_table(relation: exp.Table, travel: Travel, queries: list[str], at: int | datetime | None) -> StateTable:
    """The state table that a relation means, at its epoch."""
    query, table = (relation.db, relation.name) if relation.db else (relation.name, None)
    known = {name.casefold(): name for name in queries}
    if relation.catalog or query.casefold() not in known:
        raise UnknownNameError.among("relation", ".".join(part.name for part in relation.parts), queries)
    snapshot = travel(known[query.casefold()], _epoch(relation, at))
    if table is not None:
        table = {name.casefold(): name for name in snapshot.tables()}.get(table.casefold(), table)
    return snapshot.table(table)


def _subquery(relation: exp.Table, table: StateTable) -> exp.Subquery:
    """What stands in the relation's place: the rows that held at its epoch, under its own name."""
    rows = sqlglot.parse_one(table.rows_sql(), read="duckdb")
    assert isinstance(rows, exp.Query)
    replacement = rows.subquery(relation.alias or relation.name, copy=False)
    for part in ("alias", "joins", "pivots", "sample", "laterals"):
        if relation.args.get(part):
            replacement.set(part, relation.args[part])
    return replacement


def _epoch(relation: exp.Table, at: int | datetime | None) -> int | datetime | None:
    version = relation.args.get("version")
    if version is None:
        return at
    wanted = version.expression
    if version.args.get("kind") != "AS OF" or not isinstance(wanted, exp.Literal):
        raise InvalidSQLError(
            f"{version.sql(dialect='duckdb')} cannot be meant. Write VERSION AS OF 12, or TIMESTAMP AS OF"
            " '2026-03-01T12:00:00+00:00'."
        )
    if version.name.upper() == "TIMESTAMP":
        return aware(wanted.name)
    try:
        return int(wanted.name)
    except ValueError as error:
        raise InvalidArgumentError(f"An epoch is a whole number, not {wanted.name!r}: VERSION AS OF 12.") from error


def _failed(error: duckdb.Error, columns: list[str]) -> StreamStateError:
    """DuckDB's error in our words; without its picture of the statement, which is not the one the user wrote."""
    unknown = re.search(r'Referenced column "([^"]+)" not found', str(error))
    if unknown:
        return UnknownColumnError.among("column", unknown.group(1), dict.fromkeys(columns))
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return InvalidSQLError("\n".join([line for line in lines if not line.startswith(("LINE ", "^"))][:3]))
