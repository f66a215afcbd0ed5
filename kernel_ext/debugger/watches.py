"""Watched expressions: the value of an SQL expression over a state table, epoch by epoch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from streamstate.snapshots.errors import InvalidArgumentError, InvalidSQLError, UnknownTableError, choices
from streamstate.state_inspect.expressions import first_error

if TYPE_CHECKING:
    from streamstate.debugger.branch import Line

__all__ = ["Watches", "statement"]


class Watches:
    """The expressions that a session watches; a value that was computed is kept."""

    def __init__(self) -> None:
        self._expressions: list[str] = []
        self._known: dict[tuple[str, int, str], Any] = {}

    def add(self, expression: str, line: Line, epoch: int) -> None:
        """Watch an expression, if it has a value where the session stands.

        Raises:
            InvalidSQLError, UnknownTableError, UnknownColumnError: where it has none.
        """
        self._value(expression, epoch, line)
        if expression not in self._expressions:
            self._expressions.append(expression)

    def remove(self, expression: str) -> None:
        """Watch it no longer.

        Raises:
            InvalidArgumentError: it is not watched.
        """
        if expression not in self._expressions:
            raise InvalidArgumentError(f"{expression!r} is not watched.\nWatched: {choices(self._expressions)}.")
        self._expressions.remove(expression)

    def values(self, path: Iterable[tuple[int, Line]]) -> pd.DataFrame:
        """A row for each epoch, a column for each expression."""
        rows = [
            [epoch, line.name, *(self._value(one, epoch, line) for one in self._expressions)] for epoch, line in path
        ]
        return pd.DataFrame(rows, columns=["epoch", "branch", *self._expressions])

    def _value(self, expression: str, epoch: int, line: Line) -> Any:
        place = (line.name, epoch, expression)
        if place not in self._known:
            store = line.changes.store
            tables = store[line.name].at(epoch).tables()
            found = store.sql(statement(expression, line.name, tables), at=epoch).to_arrow()
            if (found.num_rows, found.num_columns) != (1, 1):
                raise InvalidSQLError(
                    f"{expression!r} has {found.num_rows} rows of {found.num_columns} columns; a watch has one value.\n"
                    "Write an aggregate, such as: max(column), or count(*) FROM op0 WHERE …"
                )
            self._known[place] = found.column(0)[0].as_py()
        return self._known[place]


def statement(expression: str, branch: str, tables: Sequence[str]) -> str:
    """The statement that an expression means, on one branch.

    Args:
        expression: what stands after SELECT; a state table after FROM, or none where there is one.
        branch: the branch.
        tables: its state tables.

    Raises:
        InvalidSQLError: it does not parse.
        UnknownTableError: it names a table that there is not, or none where there are several.
    """
    try:
        parsed = sqlglot.parse_one(f"SELECT {expression}", read="duckdb")
    except SqlglotError as error:
        raise InvalidSQLError(
            f"The watch {expression!r} does not parse: {first_error(error)}\nWrite it as after SELECT."
        ) from error
    named = [*parsed.find_all(exp.Table)]
    if not named and isinstance(parsed, exp.Select):
        if len(tables) != 1:
            raise UnknownTableError(
                f"{branch} has {len(tables)} state tables; say which one {expression!r} is about.\n"
                f"Write it as: {expression} FROM {tables[0] if tables else 'table'}. Tables: {choices(tables)}."
            )
        return parsed.from_(_relation(branch, tables[0])).sql(dialect="duckdb")
    for table in named:
        chosen = table.name if table.name in tables else tables[0] if len(tables) == 1 else None
        if chosen is None:
            raise UnknownTableError.among("state table", table.name, tables, where=f"in {branch}")
        alias = table.alias or table.name
        table.replace(exp.alias_(_relation(branch, chosen), alias, table=True, quoted=True))
    return parsed.sql(dialect="duckdb")


def _relation(branch: str, table: str) -> exp.Table:
    return exp.table_(table, db=branch, quoted=True)
