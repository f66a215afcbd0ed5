"""What DuckDB is allowed to run, judged by DuckDB's own parse of the very text that it is given.

The rewriting knows a statement as sqlglot reads it. Should DuckDB read the text in another way, then this is where it
shows: relations that the rewriting did not put there, functions that reach outside their arguments, and statements
that do more than read are refused. It is the second lock; the first is that the index's DuckDB has no access to files
or the network and that its settings are locked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import duckdb

from streamstate.snapshots.errors import InvalidSQLError

ROWS_FROM_ARGUMENTS = frozenset({"unnest", "range", "generate_series", "json_each", "json_tree", "repeat"})
"""Table functions that make rows from their arguments alone."""

_STATEMENTS = {"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"}
_SOURCES = {"BASE_TABLE", "SUBQUERY", "JOIN", "TABLE_FUNCTION", "EXPRESSION_LIST", "EMPTY", "EMPTY_FROM", "PIVOT"}

# Functions, Spark's too, that tell of the database, its settings or the machine, wait, or leave something behind.
_REFUSED = re.compile(
    r"pg_(?!typeof$|size_pretty$).*|has_\w+_privilege|inet_\w+|__internal_.*|json_(de)?serialize_\w+|"
    r"json_execute_\w+|current_(setting|query|query_id|schemas?|database|catalog|connection_id|transaction_id)|"
    r"getenv|getvariable|nextval|currval|setval|setseed|write_log|parse_duckdb_log_message|sleep_ms|txid_current|"
    r"in_search_path|stats|get_block_size|map_to_pg_oid|format_pg_type|format_type|col_description|obj_description|"
    r"shobj_description|which_secret|read_\w+|query|query_table|reflect|try_reflect|java_method"
)


def check(cursor: duckdb.DuckDBPyConnection, sql: str, known: Iterable[str]) -> None:
    """Raise unless a statement only reads from known relations.

    Args:
        cursor: a connection to the database that will run it.
        sql: the text that will be run.
        known: all names that may stand in it for relations; those that it defines with WITH are among them.

    Raises:
        InvalidSQLError: as said.
    """
    found = cursor.execute("SELECT json_serialize_sql(?)", [sql]).fetchone()
    tree: dict[str, Any] = json.loads(found[0]) if found else {"error": True}
    if tree["error"] and tree.get("error_type") == "parser":
        raise InvalidSQLError(f"The SQL does not parse: {str(tree.get('error_message', '')).splitlines()[0]}")
    if tree["error"]:
        raise InvalidSQLError(
            "The statement is more than one that reads, or a PIVOT that does not list its values.\n"
            "Start it with SELECT or WITH; write PIVOT … ON column IN (value, …) USING …"
        )
    if len(tree["statements"]) != 1:
        raise InvalidSQLError(f"Give one statement, not {len(tree['statements'])}.")
    nodes = list(_nodes(tree))
    names = {one.casefold() for one in known}
    for node in nodes:
        _check(node, names)


def _nodes(part: Any) -> Iterator[dict[str, Any]]:
    """All objects of a JSON document, from the outside inwards; without recursion, which nesting would exhaust."""
    left = [part]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            yield one
            left.extend(one.values())
        elif isinstance(one, list):
            left.extend(one)


def _check(node: dict[str, Any], names: set[str]) -> None:
    kind = node.get("type")
    if "modifiers" in node and "cte_map" in node and kind not in _STATEMENTS:
        raise InvalidSQLError(f"{kind} is not allowed: snapshots are only read.")
    if "sample" in node and "alias" in node and "class" not in node:
        _check_source(node, names)
    if "function_name" in node:
        function = str(node["function_name"]).casefold()
        outside = (node.get("schema") or "main").casefold() != "main" or bool(node.get("catalog"))
        if outside or _REFUSED.fullmatch(function):
            raise not_allowed(function)


def _check_source(node: dict[str, Any], names: set[str]) -> None:
    kind = node["type"]
    if kind not in _SOURCES:
        raise InvalidSQLError(f"{kind} is not allowed: SQL over snapshots reads state tables.")
    if kind == "BASE_TABLE":
        named = node["table_name"]
        if node["schema_name"] or node["catalog_name"] or node["at_clause"] or named.casefold() not in names:
            raise InvalidSQLError(f"{named!r} cannot be read: it is no relation of the store.")
    if kind == "TABLE_FUNCTION":
        function = str(node["function"].get("function_name", node["function"]["type"])).casefold()
        if function not in ROWS_FROM_ARGUMENTS:
            raise not_allowed(function)


def not_allowed(function: str) -> InvalidSQLError:
    """The error for a function that reaches outside its arguments."""
    return InvalidSQLError(
        f"{function}() is not allowed: SQL over snapshots reads state tables, not files or the database's own"
        " functions.\nYour own data: sql(…, frames={'name': frame_or_path}); to let SQL read files: allow_files=True."
    )
