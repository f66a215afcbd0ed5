"""DuckDB's own parse of a text as a tree of JSON objects, for the policies that judge it."""

from __future__ import annotations

import atexit
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import duckdb
from sqlglot.errors import SqlglotError

from streamstate.snapshots.store.duckdb_sql import embedded


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
