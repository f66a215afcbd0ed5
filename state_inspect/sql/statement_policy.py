"""DuckDB's own parse of a text as a tree of JSON objects, and the policy for statements that is judged by it.

The rewriting of a statement relies on sqlglot's parse. If DuckDB parsed the text differently, the difference would show
here: relations that the rewriting did not put there, functions that are not allowed, and statements that do more than
read are refused. This is the second line of defense: the index's DuckDB has no access to files or the network, and its
settings are locked.
"""

from __future__ import annotations

import atexit
import difflib
import json
import re
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from typing import Any

import duckdb
from sqlglot.errors import SqlglotError

from streamstate.errors import InvalidSQLError, worded
from streamstate.snapshots.store.duckdb_sql import embedded
from streamstate.state_inspect.sql.allowed_functions import DUCKDB_FUNCTIONS, ROWS_FROM_ARGUMENTS

_STATEMENTS = {"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"}
_SOURCES = {"BASE_TABLE", "SUBQUERY", "JOIN", "TABLE_FUNCTION", "EXPRESSION_LIST", "EMPTY", "EMPTY_FROM", "PIVOT"}


@cache
def parser() -> duckdb.DuckDBPyConnection:
    """Return a DuckDB that only parses and binds: it holds no data. Use a cursor of it."""
    database = embedded()
    atexit.register(_close)  # what is still open when Python exits is reported as leaked
    return database


def _close() -> None:
    parser().close()
    parser.cache_clear()


def serialized(cursor: duckdb.DuckDBPyConnection, sql: str) -> str:
    """Return the parse tree of a text as JSON. A syntax error is part of the tree."""
    found = cursor.execute("SELECT json_serialize_sql(?)", [sql]).fetchone()
    return str(found[0]) if found else '{"error": true}'


def syntax_error(tree: dict[str, Any]) -> str | None:
    """Return the first line of the parser's message; None if the text parses."""
    if tree["error"] and tree.get("error_type") == "parser":
        return str(tree.get("error_message", "")).splitlines()[0]
    return None


def nodes(part: Any) -> Iterator[dict[str, Any]]:
    """Yield all objects of a JSON document, from the outside in, without recursion."""
    left = [part]
    while left:
        node = left.pop()
        if isinstance(node, dict):
            yield node
            left.extend(node.values())
        elif isinstance(node, list):
            left.extend(node)


# What sqlglot says in its own classes, and the same in words.
_IN_WORDS = (
    (re.compile(r" but got <Token.*"), ""),
    (re.compile(r"Required keyword: .* missing for <class .*"), "Something is missing"),
    (re.compile(r"Invalid expression / Unexpected token"), "Unexpected token"),
)


def first_error(error: SqlglotError) -> str:
    """Sqlglot's first message in one line, without terminal colours and names of classes."""
    details = getattr(error, "errors", None)
    if not details:
        return str(error).splitlines()[0] if str(error) else "not valid SQL"
    first = details[0]
    text = str(first.get("description") or "not valid SQL")
    for pattern, words in _IN_WORDS:
        text = pattern.sub(words, text)
    near = f" near {first['highlight']}" if first.get("highlight") else ""
    return f"{text}{near} (line {first.get('line')}, column {first.get('col')})"


def check_for_duckdb(
    cursor: duckdb.DuckDBPyConnection, sql: str, known: Iterable[str], functions: Collection[str] = DUCKDB_FUNCTIONS
) -> None:
    """Raise unless a statement only reads from known relations, with allowed functions.

    ``known`` has all names of relations, those of WITH included; ``functions`` are in lower case, without operators.
    """
    tree: dict[str, Any] = json.loads(serialized(cursor, sql))
    if (problem := syntax_error(tree)) is not None:
        raise InvalidSQLError(f"The SQL does not parse: {problem}")
    if tree["error"]:
        raise InvalidSQLError(
            "Only statements that read are allowed, and PIVOT must list its values.\n"
            "Start the statement with SELECT or WITH; write PIVOT … ON column IN (value, …) USING …"
        )
    if len(tree["statements"]) != 1:
        raise InvalidSQLError(f"Expected one statement, got {len(tree['statements'])}.")
    relations = {name.casefold() for name in known}
    for node in [*nodes(tree)]:
        _check_duckdb_node(node, relations, functions)


def _check_duckdb_node(node: dict[str, Any], relations: set[str], functions: Collection[str]) -> None:
    kind = node.get("type")
    if "modifiers" in node and "cte_map" in node and kind not in _STATEMENTS:
        raise InvalidSQLError(f"{kind} is not allowed: snapshots are read-only.")
    if "sample" in node and "alias" in node and "class" not in node:
        _check_duckdb_source(node, relations)
    if "function_name" in node:
        function = str(node["function_name"]).casefold()
        outside = (node.get("schema") or "main").casefold() != "main" or bool(node.get("catalog"))
        is_allowed = function in functions or function in ROWS_FROM_ARGUMENTS or not re.search(r"\w", function)
        if outside or not is_allowed:
            raise function_not_allowed(function, functions)


def _check_duckdb_source(node: dict[str, Any], relations: set[str]) -> None:
    kind = node["type"]
    if kind not in _SOURCES:
        raise InvalidSQLError(f"{kind} is not allowed: SQL over snapshots reads state tables.")
    if kind == "BASE_TABLE":
        name = node["table_name"]
        if node["schema_name"] or node["catalog_name"] or node["at_clause"] or name.casefold() not in relations:
            raise InvalidSQLError(f"{name!r} is not a relation of the store.")
    if kind == "TABLE_FUNCTION":
        function = str(node["function"].get("function_name", node["function"]["type"])).casefold()
        if function not in ROWS_FROM_ARGUMENTS:
            raise function_not_allowed(function, ROWS_FROM_ARGUMENTS)


def _instead() -> str:
    return "SQL over snapshots reads state tables, not files or settings. " + worded(
        "Pass your own data as sql(…, frames={'name': frame_or_path}); allow SQL to read files with allow_files=True.",
        magic="Name a variable that holds your own data or its path with --frame.",
        command="Allow it to read files with --files.",
    )


def function_not_allowed(function: str, allowed: Collection[str], instead: str | None = None) -> InvalidSQLError:
    """Return the error for a function that a statement may not call; ``instead`` is its last line."""
    near = difflib.get_close_matches(function, allowed, n=1)
    hint = f" Did you mean {near[0]}()?" if near and near[0] != function else ""
    return InvalidSQLError(
        f"{function}() is not allowed: only functions that depend on their arguments alone are.{hint}\n"
        + (_instead() if instead is None else instead)
    )
