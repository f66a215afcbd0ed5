"""Policy for SQL in Spark, judged by Spark's own parse of the text that it will run.

The policy is the same wherever a user's SQL reaches Spark: statements over snapshots, mappings of a migration, and
edits of a fork. They are queries, over known relations, with allowed functions. Spark itself has no such limits: it
would read files that are named like tables, write to folders, run programs, and call any method of Java.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from streamstate.errors import InvalidSQLError
from streamstate.snapshots.spark.connect import errors_of_spark
from streamstate.snapshots.spark.worker.forwarding import classic_spark
from streamstate.state_inspect.sql.allowed_functions import SPARK_FUNCTIONS, SPARK_ROWS_FROM_ARGUMENTS
from streamstate.state_inspect.sql.statement_policy import function_not_allowed, nodes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark resolves these as functions if there is no such column.
_VALUES = {
    *("[user]", "[session_user]", "[current_user]"),
    *("[current_catalog]", "[current_database]", "[current_schema]", "[current_path]"),
}
# They run programs, and look up names that are known only when the statement runs.
_REFUSED = ("ScriptTransformation", "PlanWithUnresolvedIdentifier", "ExpressionWithUnresolvedIdentifier")
_PARAMETER = "Pass the text as a parameter: store.sql('… WHERE key = ?', params=['${…}'], engine='spark')."


@classic_spark()
def check_for_spark(spark: SparkSession, sql: str, known: Iterable[str], columns: Iterable[str]) -> None:
    """Raise unless a statement over snapshots only reads from known relations, with allowed functions.

    That it is a query was checked before: it is a translation of what DuckDB has parsed. Spark Connect does not parse
    for its clients, so beside it the worker process does.
    """
    _refuse_substitution(sql, _PARAMETER)
    plan = _nodes(_parser(spark).parsePlan(sql))
    aliases = [node["name"] for node in plan if _kind(node) == "Alias"]
    _check(plan, known, [*columns, *aliases])


def check_query_for_spark(spark: SparkSession, sql: str, tables: Mapping[str, Collection[str]], instead: str) -> None:
    """Raise unless a user's text in Spark's SQL is a query that :func:`check_for_spark` would allow.

    ``tables`` has the columns of each relation that it may read; ``instead`` is the last line of an error.
    """
    _refuse_substitution(sql, instead)
    parser = _parser(spark)
    plan = _nodes(parser.parsePlan(sql))
    if any(_kind(node) == "WithWindowDefinition" for node in plan):  # its parts are not in the tree
        raise InvalidSQLError(f"A named WINDOW is not allowed: write OVER (…) out.\n{instead}")
    defined = {with_["_1"] for node in plan for with_ in node.get("cteRelations", ())}
    for name in sorted(defined):
        if spark.catalog.tableExists(name):  # outside of the WITH's scope, the name would stand for the table
            raise InvalidSQLError(f"WITH {name} has the name of a table of the session: choose another.")
    _check(plan, [*tables, *defined], [column for names in tables.values() for column in names], instead)
    try:
        parser.parseQuery(sql)
    except errors_of_spark() as error:
        raise InvalidSQLError(f"Expected a query, such as SELECT … FROM {next(iter(tables))}.\n{instead}") from error


def check_expression_for_spark(spark: SparkSession, sql: str, columns: Iterable[str], instead: str) -> None:
    """Raise unless an expression over columns calls allowed functions only, and reads no relation."""
    _refuse_substitution(sql, instead)
    _check(_nodes(_parser(spark).parseExpression(sql)), (), columns, instead)


def _refuse_substitution(sql: str, instead: str) -> None:
    if "${" in sql:
        raise InvalidSQLError(
            f"SQL for Spark cannot contain ${{: Spark would substitute settings and environment variables.\n{instead}"
        )


def _parser(spark: SparkSession) -> Any:
    return spark._jsparkSession.sessionState().sqlParser()


def _nodes(tree: Any) -> list[dict[str, Any]]:
    """Return the plans and expressions of a tree of Spark's, wherever they are in it."""
    return [node for node in nodes(json.loads(tree.toJSON())) if "class" in node]


def _kind(node: dict[str, Any]) -> str:
    return str(node["class"]).rpartition(".")[2]


def _check(
    plan: Iterable[dict[str, Any]], known: Iterable[str], columns: Iterable[str], instead: str | None = None
) -> None:
    named = {f"[{name}]".casefold() for name in columns}
    relations = {f"[{name}]".casefold() for name in known}
    for node in plan:
        _check_node(node, relations, named, instead)


def _check_node(node: dict[str, Any], relations: set[str], named: set[str], instead: str | None) -> None:
    kind = _kind(node)
    # The parts of a name, as Scala writes a sequence: [upper].
    parts = str(node.get("nameParts", "")).casefold()
    name = parts[1:-1]
    sources = SPARK_ROWS_FROM_ARGUMENTS
    if kind == "UnresolvedFunction" and name not in SPARK_FUNCTIONS and re.search(r"\w", name):
        raise function_not_allowed(name, SPARK_FUNCTIONS, instead)
    if kind == "UnresolvedAttribute" and parts in _VALUES - named:
        raise function_not_allowed(name, SPARK_FUNCTIONS, instead)
    if kind == "UnresolvedTableValuedFunction" and (name := str(node["name"]).casefold()[1:-1]) not in sources:
        raise function_not_allowed(name, sources, instead)
    if kind == "UnresolvedGenerator" and (name := str(node["name"]["funcName"]).casefold()) not in sources:
        raise function_not_allowed(name, sources, instead)
    if kind == "UnresolvedRelation" and str(node["multipartIdentifier"]).casefold() not in relations:
        known = "of the store" if instead is None else "that this SQL may read"
        raise InvalidSQLError(f"{node['multipartIdentifier']} is not a relation {known}.")
    if kind in _REFUSED:
        raise InvalidSQLError(f"{kind} is not allowed: snapshots are read-only, and names must be written out.")
