"""A condition that a user wrote, checked before it becomes part of a statement."""

from __future__ import annotations

from collections.abc import Sequence

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from streamstate.snapshots.errors import InvalidSQLError, UnknownColumnError


def predicate_sql(text: str, columns: Sequence[str], table: str) -> str:
    """The condition as SQL that reads nothing but the table's own columns.

    Raises:
        InvalidSQLError: where it does not parse, or is more than a condition.
        UnknownColumnError: where it names a column that the table does not have.
    """
    try:
        parsed = sqlglot.parse_one(text, read="duckdb")
    except SqlglotError as error:
        raise InvalidSQLError(
            f"The condition {text!r} does not parse: {first_error(error)}\n"
            f"Write it as after WHERE, such as: {columns[-1]} IS NOT NULL"
        ) from error
    if isinstance(parsed, (exp.Query, exp.DDL, exp.DML, exp.Command)) or parsed.find(exp.Query, exp.Table):
        raise InvalidSQLError(
            f"{text!r} is not a condition over the columns of {table}: leave out SELECT and the like."
        )
    known = {name.casefold(): name for name in columns}
    for column in parsed.find_all(exp.Column):
        root = column.parts[0].name  # of window.end it is window: a field of a struct reads as a table's column
        if root.casefold() not in known:
            raise UnknownColumnError.among("column", root, columns, where=f"in {table}")
    return parsed.sql(dialect="duckdb")


def first_error(error: SqlglotError) -> str:
    """What the parser says, in one line without its colours."""
    details = getattr(error, "errors", None)
    if details:
        one = details[0]
        return f"{one.get('description', 'it is no SQL')} (line {one.get('line')}, column {one.get('col')})"
    return str(error).splitlines()[0] if str(error) else "it is no SQL"
