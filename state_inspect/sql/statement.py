"""One statement that reads, as a tree: parsed, checked, and its parameters given names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from streamstate.snapshots.errors import InvalidArgumentError, InvalidSQLError, choices
from streamstate.state_inspect.expressions import first_error

Parameters = Sequence[Any] | Mapping[str, Any] | None
"""Values for ``?``, in their order, or for ``$name``."""

# They do more than read, or show what is not the user's.
_REFUSED = (
    exp.DDL,
    exp.DML,
    exp.Into,
    exp.Command,
    exp.Describe,
    exp.Summarize,
    exp.Show,
    exp.Pragma,
    exp.Set,
    exp.Use,
    exp.Attach,
    exp.Detach,
    exp.Install,
    exp.Lock,
)

_MARK = "p_"


@dataclass
class Statement:
    """A statement and the values of its parameters, by the names that they have in it."""

    tree: exp.Query
    values: dict[str, Any]

    def value(self, node: exp.Expr) -> Any:
        """The value of a literal or a parameter; None where it is neither."""
        if isinstance(node, exp.Placeholder):
            return self.values[node.name]
        if isinstance(node, exp.Neg):
            number = self.value(node.this)
            return -number if isinstance(number, int) else None
        if not isinstance(node, exp.Literal):
            return None
        return node.name if node.is_string or not node.name.isdigit() else int(node.name)

    def used(self) -> dict[str, Any]:
        """The values of the parameters that still stand in the tree: those that choose epochs are gone by then."""
        return {one.name: self.values[one.name] for one in self.tree.find_all(exp.Placeholder)}


def parsed(sql: str, params: Parameters = None) -> Statement:
    """The statement.

    Args:
        sql: one statement in DuckDB's SQL.
        params: values for its ``?`` or ``$name``.

    Raises:
        InvalidSQLError: where it does not parse, is not one statement, or does more than read.
        InvalidArgumentError: where parameters and values do not fit each other.
    """
    tree = read(sql)
    values = dict(params) if isinstance(params, Mapping) else dict(_by_number(params))
    asked = {one.name: one for one in tree.find_all(exp.Placeholder)}
    _check_parameters(asked, values)
    for one in list(tree.find_all(exp.Placeholder)):
        one.set("this", _MARK + one.name)
    return Statement(tree, {_MARK + name: value for name, value in values.items()})


def _by_number(params: Parameters) -> list[tuple[str, Any]]:
    if params is None:
        return []
    if isinstance(params, str | bytes) or not isinstance(params, Sequence):
        raise InvalidArgumentError(
            f"params={params!r} cannot be meant: give a list for the ? of a statement, a dict for its $names."
        )
    return [(str(number), value) for number, value in enumerate(params, 1)]


def _check_parameters(asked: Mapping[str, object], given: Mapping[str, object]) -> None:
    missing = [f"${name}" for name in asked if name not in given]
    if missing:
        raise InvalidArgumentError(
            f"The statement's parameters need values: {choices(missing)} have none.\n"
            "Give params=[…] for ? in their order, or params={'name': …} for $name."
        )
    left = [f"${name}" for name in given if name not in asked]
    if left:
        raise InvalidArgumentError(
            f"The statement has no parameters {choices(left)}.\nIts parameters: {choices(f'${one}' for one in asked)}."
        )


def _numbered(sql: str) -> str:
    """The statement with each ``?`` as ``$1``, ``$2``, …, so that none depends on where it ends up."""
    try:
        tokens = sqlglot.tokenize(sql, read="duckdb")
    except SqlglotError as error:
        raise InvalidSQLError(f"The SQL does not parse: {first_error(error)}") from error
    marks = [one.start for one in tokens if one.token_type is TokenType.PLACEHOLDER or one.text == "?::"]
    pieces, start = [], 0
    for number, at in enumerate(marks, 1):
        pieces += [sql[start:at], f"${number}"]
        start = at + 1
    return "".join([*pieces, sql[start:]])


def _why(error: Exception) -> str:
    if isinstance(error, SqlglotError):
        return first_error(error)
    return "it is nested too deeply" if isinstance(error, RecursionError) else "it is no SQL"


def read(sql: str) -> exp.Query:
    """The tree of one statement that reads, its ``?`` numbered.

    Raises:
        InvalidSQLError: where it does not parse, is not one statement, or does more than read.
    """
    if not sql.strip():
        raise InvalidSQLError("There is no SQL to run. Write a statement such as: SELECT * FROM delays LIMIT 10")
    try:
        statements = [one for one in sqlglot.parse(_numbered(sql), read="duckdb") if one is not None]
    except InvalidSQLError:
        raise
    except Exception as error:  # some texts that are no SQL end the parser with an error of Python's
        raise InvalidSQLError(f"The SQL does not parse: {_why(error)}") from error
    if len(statements) != 1:
        raise InvalidSQLError(f"Give one statement, not {len(statements)}.")
    statement = statements[0]
    if isinstance(statement, exp.Pivot):
        # PIVOT and UNPIVOT as statements of their own are short for selecting from them.
        statement = exp.select("*").from_(exp.Subquery(this=statement))
    refused = statement.find(*_REFUSED)
    if isinstance(statement, exp.Query) and refused is None:
        return statement
    begins = re.search(r"\w+", sql)
    what = begins[0].upper() if begins and refused in (None, statement) else (refused or statement).key.upper()
    raise InvalidSQLError(f"{what} is not allowed: snapshots are only read. Start the statement with SELECT or WITH.")
