"""What a statement over snapshots may do, judged by the engine's own parse of the text that it will run.

The rewriting of a statement relies on sqlglot's parse. If DuckDB or Spark parsed the text differently, the difference
would show here: relations that the rewriting did not put there, functions that are not allowed, and statements that do
more than read are refused. For DuckDB this is the second line of defense: the index's DuckDB has no access to files or
the network, and its settings are locked. Spark has no such first line.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

import duckdb

from streamstate.errors import InvalidSQLError, worded
from streamstate.state_inspect.sql.allowed_functions import (
    DUCKDB_FUNCTIONS,
    ROWS_FROM_ARGUMENTS,
    SPARK_FUNCTIONS,
    SPARK_ROWS_FROM_ARGUMENTS,
)
from streamstate.state_inspect.sql.parse_tree import nodes, serialized, syntax_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STATEMENTS = {"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"}
_SOURCES = {"BASE_TABLE", "SUBQUERY", "JOIN", "TABLE_FUNCTION", "EXPRESSION_LIST", "EMPTY", "EMPTY_FROM", "PIVOT"}

# Spark resolves these as functions if there is no such column.
_SPARK_VALUES = {
    *("[user]", "[session_user]", "[current_user]"),
    *("[current_catalog]", "[current_database]", "[current_schema]", "[current_path]"),
}
# They run programs, and look up names that are known only when the statement runs.
_SPARK_REFUSED = ("ScriptTransformation", "PlanWithUnresolvedIdentifier", "ExpressionWithUnresolvedIdentifier")


def check_for_duckdb(
    cursor: duckdb.DuckDBPyConnection, sql: str, known: Iterable[str], functions: Collection[str] = DUCKDB_FUNCTIONS
) -> None:
    """Raise unless a statement only reads from known relations, with allowed functions.

    Args:
        cursor: a connection to the database that will run it.
        sql: the text that will run.
        known: all names that may stand for relations in it, including those that it defines with WITH.
        functions: the functions that it may call, in lower case; operators are always allowed.
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


def check_for_spark(spark: SparkSession, sql: str, known: Iterable[str], columns: Iterable[str]) -> None:
    """Raise unless a statement in Spark's SQL only reads from known relations, with allowed functions.

    Args:
        spark: the session that will run it.
        sql: the text that will run.
        known: all names that may stand for relations in it.
        columns: the columns of those relations.
    """
    if "${" in sql:
        raise InvalidSQLError(
            "A statement for Spark cannot contain ${: Spark would substitute settings and environment variables.\n"
            "Pass the text as a parameter: store.sql('… WHERE key = ?', params=['${…}'], engine='spark')."
        )
    parser: Any = spark._jsparkSession.sessionState().sqlParser()
    plan = [node for node in nodes(json.loads(parser.parsePlan(sql).toJSON())) if "class" in node]
    named = {f"[{name}]" for name in {*columns, *(node["name"] for node in plan if _kind(node) == "Alias")}}
    relations = {f"[{name}]".casefold() for name in known}
    for node in plan:
        _check_spark_node(node, relations, {name.casefold() for name in named})


def _kind(node: dict[str, Any]) -> str:
    return str(node["class"]).rpartition(".")[2]


def _check_spark_node(node: dict[str, Any], relations: set[str], named: set[str]) -> None:
    kind = _kind(node)
    # The parts of a name, as Scala writes a sequence: [upper].
    parts = str(node.get("nameParts", "")).casefold()
    name = parts[1:-1]
    sources = SPARK_ROWS_FROM_ARGUMENTS
    if kind == "UnresolvedFunction" and name not in SPARK_FUNCTIONS and re.search(r"\w", name):
        raise function_not_allowed(name, SPARK_FUNCTIONS)
    if kind == "UnresolvedAttribute" and parts in _SPARK_VALUES - named:
        raise function_not_allowed(name, SPARK_FUNCTIONS)
    if kind == "UnresolvedTableValuedFunction" and (name := str(node["name"]).casefold()[1:-1]) not in sources:
        raise function_not_allowed(name, sources)
    if kind == "UnresolvedGenerator" and (name := str(node["name"]["funcName"]).casefold()) not in sources:
        raise function_not_allowed(name, sources)
    if kind == "UnresolvedRelation" and str(node["multipartIdentifier"]).casefold() not in relations:
        raise InvalidSQLError(f"{node['multipartIdentifier']} is not a relation of the store.")
    if kind in _SPARK_REFUSED:
        raise InvalidSQLError(f"{kind} is not allowed: snapshots are read-only, and names must be written out.")


def function_not_allowed(function: str, allowed: Collection[str]) -> InvalidSQLError:
    """The error for a function that a statement may not call."""
    near = difflib.get_close_matches(function, allowed, n=1)
    hint = f" Did you mean {near[0]}()?" if near and near[0] != function else ""
    return InvalidSQLError(
        f"{function}() is not allowed: only functions that depend on their arguments alone are.{hint}\n"
        "SQL over snapshots reads state tables, not files or settings. "
        + worded(
            "Pass your own data as sql(…, frames={'name': frame_or_path}); allow SQL to read files with"
            " allow_files=True.",
            magic="Name a variable that holds your own data or its path with --frame.",
            command="Allow it to read files with --files.",
        )
    )
