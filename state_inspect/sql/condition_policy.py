"""Policy for conditions, checked before one becomes part of a statement.

DuckDB's own parser reads the text, the tree is checked against what conditions may contain, and the SQL that runs is
generated from that tree. So nothing runs that was not checked, and no bracket in the text can close one of ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import duckdb

from streamstate.errors import InvalidSQLError, UnknownColumnError
from streamstate.state_inspect.sql.allowed_functions import (
    CONCATENATING,
    CONDITION_FUNCTIONS,
    CONDITION_TYPES,
    CONDITION_VALUES,
    CONSTRUCTING,
    MATCHING,
    READ_AT_PATH,
    SPLITTING,
)
from streamstate.state_inspect.sql.statement_policy import nodes, parser, serialized, syntax_error

_LONGEST = 4_000
"""Characters of a condition."""
_DEEPEST = 40
"""Nested brackets: more make parsers slow, and no person writes them."""
_MOST_CONCATENATED = 20
"""Concatenated texts or lists: each may be as long as a value of the state."""
_MOST_CONSTRUCTED = 200
"""Elements of lists, structs and maps."""
_MOST_SPLIT = 4
"""Texts that are split."""
_LARGEST_PATTERN = 300
"""Steps of all regular expressions, with their counted repetitions written out."""
_SPLIT_WORK, _CONCATENATED_WORK, _CLASS_STEPS = 100, 4, 20
_SMALL, _WORK_OF_A_PART, _MOST_PARTS = 8, 100_000_000, 200
_PATH = "path without *"
_EXAMPLES = {_PATH: "'$.name'", "pattern": "'^a'"}
_PARTS = re.compile(
    r"(?P<unicode>\\[pP](?:\{[^}]*\}|.))|\\.|\[\]?(?:\\.|\[:\w+:\]|[^\]])*\]|(?P<times>\{\d+(?:,\d*)?\})|.", re.DOTALL
)
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


@dataclass(frozen=True)
class CheckedCondition:
    """A condition that may run.

    Attributes:
        sql: it, as SQL that reads nothing but the table's own columns.
        columns: those that it uses, or some of them under another case.
        work: about how many bytes it reads or makes for each byte of these columns.
    """

    sql: str
    columns: frozenset[str]
    work: int

    def parts(self, size: int) -> int:
        """In how many parts to try rows with so many bytes in the columns that it uses.

        DuckDB looks for interrupts between batches of 2,048 rows, and holds what a condition makes of a batch in
        memory. So a part has only as many rows of each batch as take a fraction of a second.
        """
        return min(_MOST_PARTS, 1 + self.work * size // _WORK_OF_A_PART)

    @property
    def is_small(self) -> bool:
        """True if it need not run in parts, however long the rows."""
        return self.work <= _SMALL


def predicate_sql(text: str, columns: Sequence[str], table: str) -> str:
    r"""Return the condition as SQL that reads nothing but the table's own columns.

    Example:
        >>> predicate_sql("upper(key) = 'A' AND value > 1", ["key", "value"], "op0")
        '((upper("key") = \'A\') AND ("value" > 1))'
    """
    return checked_condition(text, columns, table).sql


def checked_condition(text: str, columns: Sequence[str], table: str) -> CheckedCondition:
    """Return a condition, if it contains only what conditions may contain."""
    _check_size(text)
    cursor = parser().cursor()
    try:
        tree = _serialized(cursor, f"SELECT (\n{text}\n)")
        used, work = _check(_expression(_parsed(tree, text, columns), text, table), columns, table)
        found = cursor.execute("SELECT json_deserialize_sql(?)", [tree]).fetchone()
    finally:
        cursor.close()
    return CheckedCondition(str(found[0] if found else "").removeprefix("SELECT "), used, work)


def condition_failed(error: Exception) -> InvalidSQLError:
    """Return the error for a statement with a user's condition that failed."""
    return InvalidSQLError(f"The condition failed: {str(error).splitlines()[0]}")


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
    """Return the single expression of the text. Brackets that close ours would make more of the statement than that."""
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


def _check(expression: dict[str, Any], columns: Sequence[str], table: str) -> tuple[frozenset[str], int]:
    """Raise for the first part that a condition may not contain; returns the columns that it uses, and its work."""
    known = {name.casefold() for name in columns}
    used: set[str] = set()
    amounts = _Amounts()
    for node in nodes(expression):
        kind = node.get("class")
        if kind == "COLUMN_REF":
            _check_column(node["column_names"], known, columns, table)
            used.add(node["column_names"][0])
        elif kind == "FUNCTION":
            _check_function(node)
            amounts.add(str(node["function_name"]).casefold(), node["arguments"])
        elif kind == "TYPE":
            _check_type(node)
        elif kind == "WINDOW":
            raise _many_rows(node["function_name"])
        elif kind is not None and (kind not in _CLASSES or node["type"] == "GROUPING_FUNCTION"):
            raise InvalidSQLError(
                f"{_REFUSED.get(kind, kind)} is not allowed in a condition over the columns of {table}.\n"
                "Compare the columns with values; use store.sql for everything else."
            )
    return frozenset(used), amounts.checked()


@dataclass
class _Amounts:
    """The amount of work that a condition does with a row's values, which may be long."""

    functions: int = 0
    concatenated: int = 0
    constructed: int = 0
    split: int = 0
    patterns: int = 0

    def add(self, function: str, arguments: Sequence[dict[str, Any]]) -> None:
        """Count a call."""
        self.functions += 1
        self.concatenated += len(arguments) * (function in CONCATENATING)
        self.constructed += len(arguments) * (function in CONSTRUCTING)
        self.split += function in SPLITTING
        if function in MATCHING:
            self.patterns += steps(_constant_text(function, arguments, "pattern"))

    def checked(self) -> int:
        """Return the condition's work, if no amount exceeds its limit."""
        for amount, most, what in (
            (self.concatenated, _MOST_CONCATENATED, "concatenates {} values"),
            (self.constructed, _MOST_CONSTRUCTED, "makes lists, structs or maps of {} values"),
            (self.split, _MOST_SPLIT, "splits {} texts"),
            (self.patterns, _LARGEST_PATTERN, "has regular expressions of {} steps, with repetitions written out"),
        ):
            if amount > most:
                raise InvalidSQLError(f"The condition {what.format(amount)}; at most {most} are allowed.")
        made = _CONCATENATED_WORK * self.concatenated + self.constructed + _SPLIT_WORK * self.split
        return self.functions + self.patterns + made


def steps(pattern: str) -> int:
    """Return the size of a regular expression with its counted repetitions written out.

    Example:
        >>> steps("([a-z]{3}x){2}")
        8
    """
    sizes, last = [0], 0
    for part in _PARTS.finditer(pattern):
        text = part[0]
        if part["times"]:
            times = max(int(number) for number in re.findall(r"\d+", text))
            sizes[-1] += last * (times - 1)
            last *= times
        elif text == "(":
            sizes.append(0)
        elif text == ")" and len(sizes) > 1:
            last = sizes.pop()
            sizes[-1] += last
        elif text not in "*+?|":
            last = _CLASS_STEPS if part["unicode"] else 1
            sizes[-1] += last
    return sum(sizes)


def _constant_text(function: str, arguments: Sequence[dict[str, Any]], what: str) -> str:
    literal = (arguments[1]["expression"].get("literal") or {}) if len(arguments) > 1 else {}
    if "text" not in literal:
        raise InvalidSQLError(f"{function} needs a constant {what} in a condition, such as {_EXAMPLES[what]}.")
    return str(literal["text"])


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
    if name in READ_AT_PATH and len(node["arguments"]) > 1 and "*" in _constant_text(name, node["arguments"], _PATH):
        raise InvalidSQLError(f"{name} needs a constant {_PATH} in a condition, such as {_EXAMPLES[_PATH]}.")


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
