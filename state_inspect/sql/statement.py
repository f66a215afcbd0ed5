"""One statement as sqlglot's tree: parsed, refused if it does more than read, its parameters and relations found."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlglot
from sqlglot import TokenType, exp
from sqlglot.errors import SqlglotError

from streamstate.errors import InvalidArgumentError, InvalidSQLError, choices, worded
from streamstate.state_inspect.sql.statement_policy import first_error

Parameters = Sequence[Any] | Mapping[str, Any] | None
"""Values for ``?``, in order, or for ``$name``."""

_WRITES = (exp.DDL, exp.DML, exp.Into, exp.Lock, exp.Command)
_SETTINGS = (exp.Set, exp.Pragma, exp.Use, exp.Attach, exp.Detach, exp.Install)
_REVEALS = (exp.Describe, exp.Summarize, exp.Show)  # what is not the user's

_PREFIX = "p_"


@dataclass
class Statement:
    """A statement and the values of its parameters, by their names in the tree."""

    tree: exp.Query
    values: dict[str, Any]

    def value(self, node: exp.Expr) -> Any:
        """Return the value of a literal or a parameter; None for any other expression."""
        if isinstance(node, exp.Placeholder):
            return self.values[node.name]
        if isinstance(node, exp.Neg):
            number = self.value(node.this)
            return -number if isinstance(number, int) else None
        if not isinstance(node, exp.Literal):
            return None
        return node.name if node.is_string or not node.name.isdigit() else int(node.name)

    def used(self) -> dict[str, Any]:
        """Return the values of the parameters that are still in the tree; those that chose epochs are gone by then."""
        return {mark.name: self.values[mark.name] for mark in self.tree.find_all(exp.Placeholder)}


def parse_statement(sql: str, params: Parameters = None) -> Statement:
    """Return the statement of a text in DuckDB's SQL, with values for its ``?`` or ``$name``."""
    tree = parse_query(sql)
    values = dict(params) if isinstance(params, Mapping) else dict(_by_number(params))
    marks = {mark.name: mark for mark in tree.find_all(exp.Placeholder)}
    _check_parameters(marks, values)
    for mark in list(tree.find_all(exp.Placeholder)):
        mark.set("this", _PREFIX + mark.name)
    return Statement(tree, {_PREFIX + name: value for name, value in values.items()})


def _by_number(params: Parameters) -> list[tuple[str, Any]]:
    if params is None:
        return []
    if isinstance(params, str | bytes) or not isinstance(params, Sequence):
        raise InvalidArgumentError(
            f"Invalid params={params!r}: expected a list for ? parameters or a dict for $name parameters."
        )
    return [(str(number), value) for number, value in enumerate(params, 1)]


def _check_parameters(marks: Mapping[str, object], values: Mapping[str, object]) -> None:
    missing = [f"${name}" for name in marks if name not in values]
    if missing:
        raise InvalidArgumentError(
            f"The statement's parameters need values: {choices(missing)}.\n"
            + worded(
                "Pass params=[…] for ? in order, or params={'name': …} for $name.",
                line="Only Python can pass them: store.sql(…, params=[…]). Write the values into the statement.",
            )
        )
    unused = [f"${name}" for name in values if name not in marks]
    if unused:
        raise InvalidArgumentError(
            f"The statement has no parameters {choices(unused)}.\n"
            f"Its parameters: {choices(f'${name}' for name in marks)}."
        )


def _numbered(sql: str) -> str:
    """Return the statement with each ``?`` as ``$1``, ``$2``, …, so that a parameter may move within the tree."""
    try:
        tokens = sqlglot.tokenize(sql, read="duckdb")
    except SqlglotError as error:
        raise InvalidSQLError(f"The SQL does not parse: {first_error(error)}") from error
    marks = [token.start for token in tokens if token.token_type is TokenType.PLACEHOLDER or token.text == "?::"]
    pieces, start = [], 0
    for number, at in enumerate(marks, 1):
        pieces += [sql[start:at], f"${number}"]
        start = at + 1
    return "".join([*pieces, sql[start:]])


def _reason(error: Exception) -> str:
    if isinstance(error, SqlglotError):
        return first_error(error)
    return "it is nested too deeply" if isinstance(error, RecursionError) else "not valid SQL"


def parse_query(sql: str) -> exp.Query:
    """Return the tree of one statement that reads, its ``?`` numbered."""
    if not sql.strip():
        raise InvalidSQLError("The SQL is empty. Write a statement such as: SELECT * FROM delays LIMIT 10")
    try:
        statements = [tree for tree in sqlglot.parse(_numbered(sql), read="duckdb") if tree is not None]
    except InvalidSQLError:
        raise
    except Exception as error:  # for some invalid texts sqlglot raises Python's own errors
        raise InvalidSQLError(f"The SQL does not parse: {_reason(error)}") from error
    if len(statements) != 1:
        raise InvalidSQLError(f"Expected one statement, got {len(statements)}.")
    statement = statements[0]
    if isinstance(statement, exp.Pivot):
        # A PIVOT or UNPIVOT statement is short for selecting from it.
        statement = exp.select("*").from_(exp.Subquery(this=statement))
    refused = statement.find(*_WRITES, *_SETTINGS, *_REVEALS)
    if isinstance(statement, exp.Query) and refused is None:
        return statement
    begins = re.search(r"\w+", sql)
    what = begins[0].upper() if begins and refused in (None, statement) else (refused or statement).key.upper()
    raise InvalidSQLError(f"{what} is not allowed: snapshots are read-only. Start the statement with SELECT or WITH.")


def tables_named(sql: str) -> list[str]:
    """Return the unqualified names that a statement reads from, as written, without those that its WITH defines.

    Example:
        >>> tables_named("WITH x AS (FROM delays) SELECT * FROM x JOIN airports ON true")
        ['airports', 'delays']
    """
    return sorted({table.name for table in relations(parse_query(sql)) if table.name and not table.db})


def relations(tree: exp.Query) -> list[exp.Table]:
    """Return the tables and table functions that are not common table expressions."""
    return [table for table in tree.find_all(exp.Table) if definition(table) is None]


def definition(table: exp.Table) -> exp.CTE | None:
    """Return the common table expression that a table refers to; None if it is outside the statement."""
    if table.db or not isinstance(table.this, exp.Identifier):
        return None
    name = table.name.casefold()
    return next((defined for defined in _visible(table) if defined.alias.casefold() == name), None)


def _visible(table: exp.Table) -> Iterator[exp.CTE]:
    """Yield the common table expressions that are in scope for a table, the innermost first."""
    below: exp.Expr = table
    above = table.parent
    while above is not None:
        defined = above.args.get("with_")
        if isinstance(above, exp.With):
            yield from _before(below, above)
        elif defined is not None and defined is not below:
            yield from reversed(defined.expressions)
        below, above = above, above.parent


def _before(inside: exp.Expr, defining: exp.With) -> list[exp.CTE]:
    """Return the definitions that one of a WITH can use: those before it, and itself if it is recursive."""
    at = next(position for position, defined in enumerate(defining.expressions) if defined is inside)
    recursive = defining.recursive and isinstance(inside.this, exp.SetOperation)
    return list(reversed(defining.expressions[: at + 1 if recursive else at]))
