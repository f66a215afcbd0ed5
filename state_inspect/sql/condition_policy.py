"""What a condition may contain, checked before it becomes part of a statement.

DuckDB's own parser reads the text, the tree is checked against what conditions may contain, and the SQL that runs is
generated from that tree. So nothing runs that was not checked, and no bracket in the text can close one of ours.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import duckdb

from streamstate.errors import InvalidSQLError, UnknownColumnError
from streamstate.state_inspect.sql.allowed_functions import (
    CONCATENATING,
    CONDITION_FUNCTIONS,
    CONDITION_TYPES,
    CONDITION_VALUES,
    READ_AT_PATH,
)
from streamstate.state_inspect.sql.parse_tree import nodes, parser, serialized, syntax_error

_LONGEST = 4_000
"""Characters of a condition."""
_DEEPEST = 40
"""Nested brackets: more make parsers slow, and no person writes them."""
_MOST_CONCATENATED = 20
"""Concatenated texts or lists: each may be as long as a value of the state."""
_EMPTY = ("where_clause", "group_expressions", "having", "sample", "qualify", "modifiers")
_CLASSES = frozenset(
    {"BETWEEN", "CASE", "CAST", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "FUNCTION", "OPERATOR", "TYPE"}
)
"""Kinds of expression that are allowed, as DuckDB's parser names them."""
_REFUSED = {
    "SUBQUERY": "A subquery",
    "LAMBDA": "A lambda",
    "STAR": "* or COLUMNS(…)",
    "PARAMETER": "A parameter",
    "COLLATE": "COLLATE",
    "POSITIONAL_REFERENCE": "A column's number",
}


def predicate_sql(text: str, columns: Sequence[str], table: str) -> str:
    r"""The condition as SQL that reads nothing but the table's own columns.

    Example:
        >>> predicate_sql("upper(key) = 'A' AND value > 1", ["key", "value"], "op0")
        '((upper("key") = \'A\') AND ("value" > 1))'
    """
    _check_size(text)
    cursor = parser().cursor()
    try:
        tree = _serialized(cursor, f"SELECT (\n{text}\n)")
        _check(_expression(_parsed(tree, text, columns), text, table), columns, table)
        found = cursor.execute("SELECT json_deserialize_sql(?)", [tree]).fetchone()
    finally:
        cursor.close()
    return str(found[0] if found else "").removeprefix("SELECT ")


def _check_size(text: str) -> None:
    if not text.strip():
        raise InvalidSQLError("The condition is empty.\nWrite it as after WHERE, such as: value > 10")
    if len(text) > _LONGEST:
        raise InvalidSQLError(
            f"The condition has {len(text):,} characters; at most {_LONGEST:,} are allowed.\n"
            "Use store.sql for complex conditions."
        )
    depth = deepest = 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        deepest = max(deepest, depth)
    if deepest > _DEEPEST:
        raise _too_deep()


def _too_deep() -> InvalidSQLError:
    return InvalidSQLError(f"The condition is nested too deeply: at most {_DEEPEST} levels of brackets are allowed.")


def _serialized(cursor: duckdb.DuckDBPyConnection, sql: str) -> str:
    try:
        return serialized(cursor, sql)
    except duckdb.Error as error:
        raise _too_deep() from error  # the only texts for which the parser does not report a syntax error


def _parsed(serialized_tree: str, text: str, columns: Sequence[str]) -> dict[str, Any]:
    try:
        tree: dict[str, Any] = json.loads(serialized_tree)
    except RecursionError as error:
        raise _too_deep() from error
    if (problem := syntax_error(tree)) is not None:
        raise InvalidSQLError(
            f"The condition {text!r} does not parse: {problem}\n"
            f"Write it as after WHERE, such as: {columns[-1]} IS NOT NULL"
        )
    return tree


def _expression(tree: dict[str, Any], text: str, table: str) -> dict[str, Any]:
    """The single expression of the text. Brackets that close ours would make more of the statement than that."""
    statements = tree.get("statements", [])
    node = statements[0]["node"] if len(statements) == 1 else {}
    selected = node.get("select_list", [])
    plain = node.get("type") == "SELECT_NODE" and node["from_table"]["type"] == "EMPTY" and not node["cte_map"]["map"]
    if not plain or len(selected) != 1 or selected[0]["alias"] or any(node[part] for part in _EMPTY):
        raise InvalidSQLError(
            f"{text!r} is not a condition over the columns of {table}: write only what follows WHERE."
        )
    expression: dict[str, Any] = selected[0]
    return expression


def _check(expression: dict[str, Any], columns: Sequence[str], table: str) -> None:
    """Raise for the first part that a condition may not contain."""
    known = {name.casefold() for name in columns}
    concatenated = 0
    for node in nodes(expression):
        kind = node.get("class")
        if kind == "COLUMN_REF":
            _check_column(node["column_names"], known, columns, table)
        elif kind == "FUNCTION":
            _check_function(node)
            concatenated += len(node["arguments"]) if node["function_name"].casefold() in CONCATENATING else 0
        elif kind == "TYPE":
            _check_type(node)
        elif kind == "WINDOW":
            raise _many_rows(node["function_name"])
        elif kind is not None and (kind not in _CLASSES or node["type"] == "GROUPING_FUNCTION"):
            raise InvalidSQLError(
                f"{_REFUSED.get(kind, kind)} is not allowed in a condition over the columns of {table}.\n"
                "Compare the columns with values; use store.sql for everything else."
            )
    if concatenated > _MOST_CONCATENATED:
        raise InvalidSQLError(
            f"The condition concatenates {concatenated} values; at most {_MOST_CONCATENATED} are allowed."
        )


def _check_column(path: Sequence[str], known: set[str], columns: Sequence[str], table: str) -> None:
    """Check the first name of a path: in ``window.end`` it is ``window`` that must be a column."""
    root = path[0]
    if root.casefold() not in known and not (len(path) == 1 and root.casefold() in CONDITION_VALUES):
        raise UnknownColumnError.among("column", root, columns, where=f"in {table}")


def _check_function(node: dict[str, Any]) -> None:
    name = str(node["function_name"]).casefold()
    if name not in CONDITION_FUNCTIONS or node["schema"] or node["catalog"]:
        if name in _aggregates() or name == "count_star":
            raise _many_rows(name)
        raise InvalidSQLError(
            f"{name}() is not allowed in a condition.\n"
            "Use operators and functions of numbers, text, time, lists, structs and maps; store.sql allows more."
        )
    if node["filter"] or node["distinct"] or (node["order_bys"] or {}).get("orders"):
        raise _many_rows(name)
    if name in READ_AT_PATH and len(node["arguments"]) > 1:
        literal = node["arguments"][1]["expression"].get("literal") or {}
        if "text" not in literal or "*" in literal["text"]:
            raise InvalidSQLError(f"{name} needs a constant path without * in a condition, such as '$.name'.")


def _many_rows(function: str) -> InvalidSQLError:
    return InvalidSQLError(
        f"{function}() is about many rows; a condition is about one row at a time.\n"
        "Use store.sql for aggregates at one epoch, or diff(a, b).summary() to compare two."
    )


@cache
def _aggregates() -> frozenset[str]:
    with parser().cursor() as cursor:
        found = cursor.execute("SELECT function_name FROM duckdb_functions() WHERE function_type = 'aggregate'")
        return frozenset(str(row[0]).casefold() for row in found.fetchall())


def _check_type(node: dict[str, Any]) -> None:
    name = str(node["type_name"]).casefold()
    if name not in CONDITION_TYPES or node.get("schema") or node.get("catalog"):
        raise InvalidSQLError(
            f"A condition cannot cast to {name}: expected a plain type such as INTEGER, DOUBLE, VARCHAR or TIMESTAMP."
        )
