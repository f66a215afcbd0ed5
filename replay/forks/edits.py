"""Edits of a fork's state, in Python or in SQL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from streamstate.errors import InvalidArgumentError, InvalidSQLError

_EXAMPLES = (
    "UPDATE op0 SET n = 0 WHERE k = 'a'\nDELETE FROM op0 WHERE k = 'a'\nINSERT INTO op0 (k, n) VALUES ('a', 0)\n"
    "Or in Python: ss.Edit('op0', key={'k': 'a'}, set={'n': 0})."
)


@dataclass(frozen=True)
class Edit:
    """A change to one key of a state table, or to all keys with the same values in some key columns.

    Attributes:
        table: the state table: ``op0``, ``op0_total``, …
        key: values of key columns. All of them identify one row; some of them, all rows with these values.
        set: new values of value columns, by name. If all columns are given and the key does not exist yet, the row is
            added.
        delete: delete the rows.

    Raises:
        InvalidArgumentError: neither ``set`` nor ``delete`` is given, or both are.

    Example:
        >>> Edit("op0", key={"carrier": "HA"}, set={"max": 0})
        Edit(table='op0', key={'carrier': 'HA'}, set={'max': 0}, delete=False)
    """

    table: str
    key: Mapping[str, Any] = field(default_factory=dict)
    set: Mapping[str, Any] | None = None
    delete: bool = False

    def __post_init__(self) -> None:
        """Raise if the edit is invalid."""
        if self.delete == bool(self.set):
            raise InvalidArgumentError(
                f"Invalid edit of {self.table}: expected either set={{...}} or delete=True, and not both."
            )
        if not self.key:
            raise InvalidArgumentError(
                f"Invalid edit of {self.table}: expected a key, such as key={{'carrier': 'HA'}}.\n"
                f"To change every row, use SQL: 'UPDATE {self.table} SET …'."
            )

    def __str__(self) -> str:
        """Return the edit in one line."""
        key = ", ".join(f"{name} = {value!r}" for name, value in self.key.items())
        new = ", ".join(f"{name} = {value!r}" for name, value in (self.set or {}).items())
        return f"{self.table}: delete {key}" if self.delete else f"{self.table}: set {new} where {key}"


EditInput = str | Edit | Sequence[str | Edit]
"""SQL statements, edits, or a sequence of these: what ``fork(edit=…)`` accepts."""


@dataclass(frozen=True)
class SqlEdit:
    """One SQL statement that changes rows; its expressions are in Spark's SQL."""

    table: str
    kind: str
    """``UPDATE``, ``DELETE`` or ``INSERT``."""
    text: str
    where: exp.Expr | None = None
    set: tuple[tuple[str, exp.Expr], ...] = ()
    columns: tuple[str, ...] = ()
    """The columns that an INSERT names; empty: all of them, in their order."""
    rows: tuple[tuple[exp.Expr, ...], ...] = ()
    alias: str = ""

    def __str__(self) -> str:
        return self.text


ParsedEdit = Edit | SqlEdit


def parse_edits(edits: EditInput) -> list[ParsedEdit]:
    """Return the single edits, in their order; at least one."""
    parsed: list[ParsedEdit] = []
    for edit in [edits] if isinstance(edits, (str, Edit)) else edits:
        if isinstance(edit, Edit):
            parsed.append(edit)
        elif isinstance(edit, str):
            parsed += _parse_sql(edit)
        else:
            raise InvalidArgumentError(f"Invalid edit {edit!r}: expected SQL or an Edit, such as:\n{_EXAMPLES}")
    if not parsed:
        raise InvalidArgumentError(f"edit={edits!r} contains no edit. Edits look like this:\n{_EXAMPLES}")
    return parsed


def _parse_sql(text: str) -> Iterator[SqlEdit]:
    try:
        nodes = [node for node in sqlglot.parse(text, read="spark") if node is not None]
    except SqlglotError as error:
        raise InvalidSQLError(
            f"The edit does not parse: {str(error).splitlines()[0]}\nEdits look like this:\n{_EXAMPLES}"
        ) from error
    yield from map(_sql_edit, nodes)


def _sql_edit(node: exp.Expr) -> SqlEdit:
    text = node.sql(dialect="spark")
    if next(node.find_all(exp.Select, exp.Subquery, exp.With), None) is not None:
        raise InvalidSQLError(
            f"An edit cannot query other tables: {text}\nWrite the values as literals, or one edit per row."
        )
    if isinstance(node, exp.Update) and node.expressions and not _other_clauses(node, "this", "expressions", "where"):
        table, alias = _table(node.this, text)
        return SqlEdit(table, "UPDATE", text, _where(node), tuple(_assignments(node, text)), alias=alias)
    if isinstance(node, exp.Delete) and not _other_clauses(node, "this", "where"):
        table, alias = _table(node.this, text)
        return SqlEdit(table, "DELETE", text, _where(node), alias=alias)
    plain_insert = isinstance(node, exp.Insert) and not _other_clauses(node, "this", "expression")
    if plain_insert and isinstance(node.args.get("expression"), exp.Values):
        return _insert(node, text)
    raise InvalidSQLError(f"This statement does not edit a state table: {text}\nEdits look like this:\n{_EXAMPLES}")


def _insert(node: exp.Expr, text: str) -> SqlEdit:
    into, columns = node.this, ()
    if isinstance(into, exp.Schema):
        columns = tuple(column.name for column in into.expressions)
        into = into.this
    table, _ = _table(into, text)
    rows = tuple(
        tuple(row.expressions) if isinstance(row, exp.Tuple) else (row,) for row in node.expression.expressions
    )
    return SqlEdit(table, "INSERT", text, columns=columns, rows=rows)


def _assignments(node: exp.Update, text: str) -> Iterator[tuple[str, exp.Expr]]:
    for assignment in node.expressions:
        if not isinstance(assignment, exp.EQ) or not isinstance(assignment.this, exp.Column):
            raise InvalidSQLError(f"Invalid SET clause: expected column = value, as in SET n = 0: {text}")
        yield assignment.this.name, assignment.expression


def _table(node: exp.Expr, text: str) -> tuple[str, str]:
    if not isinstance(node, exp.Table) or not node.name:
        raise InvalidSQLError(f"The edit names no state table: {text}\nEdits look like this:\n{_EXAMPLES}")
    return node.name, node.alias or node.name


def _where(node: exp.Expr) -> exp.Expr | None:
    where = node.args.get("where")
    return None if where is None else where.this


def _other_clauses(node: exp.Expr, *known: str) -> list[str]:
    """Return the clauses of a statement that are not supported."""
    return [name for name, value in node.args.items() if value and name not in known]
