"""What is to be changed in the state of a fork: edits of rows, in Python or in SQL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.errors import InvalidArgumentError, InvalidSQLError

if TYPE_CHECKING:
    from sqlglot import exp

__all__ = ["Edit", "Edits", "Statement", "statements"]

_EXAMPLES = (
    "UPDATE op0 SET n = 0 WHERE k = 'a'\nDELETE FROM op0 WHERE k = 'a'\nINSERT INTO op0 (k, n) VALUES ('a', 0)\n"
    "Or: ss.Edit('op0', key={'k': 'a'}, set={'n': 0})."
)


@dataclass(frozen=True)
class Edit:
    """A change of one key of a state table, or of all keys that agree in some columns.

    Attributes:
        table: the state table: ``op0``, ``op0_total``, …
        key: values of key columns. With all of them it names one row; with some, all rows that have these values.
        set: new values of value columns, with their names. Where all columns are given and the key is not there yet,
            it is added.
        delete: take the rows away.

    Raises:
        InvalidArgumentError: where there is neither ``set`` nor ``delete``, or both.

    Example:
        >>> Edit("op0", key={"carrier": "HA"}, set={"max_delay": 0})
        Edit(table='op0', key={'carrier': 'HA'}, set={'max_delay': 0}, delete=False)
    """

    table: str
    key: Mapping[str, Any] = field(default_factory=dict)
    set: Mapping[str, Any] | None = None
    delete: bool = False

    def __post_init__(self) -> None:
        """Raise where it cannot be meant."""
        if self.delete == bool(self.set):
            raise InvalidArgumentError(
                f"An edit of {self.table} either sets columns or deletes rows.\nGive set={{...}} or delete=True."
            )
        if not self.key:
            raise InvalidArgumentError(
                f"An edit of {self.table} needs a key, such as key={{'carrier': 'HA'}}.\n"
                f"To change every row, say so in SQL: 'UPDATE {self.table} SET …'."
            )

    def __str__(self) -> str:
        """The edit in a line."""
        key = ", ".join(f"{name} = {value!r}" for name, value in self.key.items())
        new = ", ".join(f"{name} = {value!r}" for name, value in (self.set or {}).items())
        return f"{self.table}: delete {key}" if self.delete else f"{self.table}: set {new} where {key}"


Edits = str | Edit | Sequence[str | Edit]
"""SQL statements, edits, or several of these."""


@dataclass(frozen=True)
class Statement:
    """One SQL statement that changes rows; its expressions are Spark's SQL."""

    table: str
    kind: str
    """``UPDATE``, ``DELETE`` or ``INSERT``."""
    text: str
    where: exp.Expr | None = None
    set: tuple[tuple[str, exp.Expr], ...] = ()
    columns: tuple[str, ...] = ()
    """The columns that an INSERT names; none: all, in their order."""
    rows: tuple[tuple[exp.Expr, ...], ...] = ()
    alias: str = ""

    def __str__(self) -> str:
        return self.text


def statements(edits: Edits) -> list[Edit | Statement]:
    """The single edits of what was given, in their order.

    Raises:
        InvalidSQLError: where a text is no UPDATE, DELETE or INSERT … VALUES.
        InvalidArgumentError: where something is neither an edit nor text, or nothing was given.
    """
    given = [edits] if isinstance(edits, (str, Edit)) else [*edits]
    found: list[Edit | Statement] = []
    for one in given:
        if isinstance(one, Edit):
            found.append(one)
        elif isinstance(one, str):
            found += _parsed(one)
        else:
            raise InvalidArgumentError(f"{one!r} is no edit. An edit is SQL or an Edit:\n{_EXAMPLES}")
    if not found:
        raise InvalidArgumentError(f"There is no edit in edit={edits!r}. An edit is SQL or an Edit:\n{_EXAMPLES}")
    return found


def _parsed(text: str) -> Iterator[Statement]:
    import sqlglot
    from sqlglot.errors import SqlglotError

    try:
        parsed = [one for one in sqlglot.parse(text, read="spark") if one is not None]
    except SqlglotError as error:
        raise InvalidSQLError(
            f"The edit does not parse: {str(error).splitlines()[0]}\nEdits are:\n{_EXAMPLES}"
        ) from error
    yield from (_statement(one) for one in parsed)


def _statement(node: exp.Expr) -> Statement:
    from sqlglot import exp

    text = node.sql(dialect="spark")
    if next(node.find_all(exp.Select, exp.Subquery, exp.With), None) is not None:
        raise InvalidSQLError(
            f"An edit cannot ask other tables: {text}\nWrite the values themselves, or one edit a row."
        )
    if isinstance(node, exp.Update) and node.expressions and not _more_than(node, "this", "expressions", "where"):
        table, alias = _table(node.this, text)
        return Statement(table, "UPDATE", text, _where(node), tuple(_assignments(node, text)), alias=alias)
    if isinstance(node, exp.Delete) and not _more_than(node, "this", "where"):
        table, alias = _table(node.this, text)
        return Statement(table, "DELETE", text, _where(node), alias=alias)
    if isinstance(node, exp.Insert) and _is_plain_insert(node):
        return _insert(node, text)
    raise InvalidSQLError(f"This is no edit of a state: {text}\nEdits are such as:\n{_EXAMPLES}")


def _is_plain_insert(node: exp.Insert) -> bool:
    from sqlglot import exp

    return isinstance(node.expression, exp.Values) and not _more_than(node, "this", "expression")


def _insert(node: exp.Insert, text: str) -> Statement:
    from sqlglot import exp

    into, columns = node.this, ()
    if isinstance(into, exp.Schema):
        columns = tuple(one.name for one in into.expressions)
        into = into.this
    table, _ = _table(into, text)
    rows = tuple(
        tuple(one.expressions) if isinstance(one, exp.Tuple) else (one,) for one in node.expression.expressions
    )
    return Statement(table, "INSERT", text, columns=columns, rows=rows)


def _assignments(node: exp.Update, text: str) -> Iterator[tuple[str, exp.Expr]]:
    from sqlglot import exp

    for one in node.expressions:
        if not isinstance(one, exp.EQ) or not isinstance(one.this, exp.Column):
            raise InvalidSQLError(f"SET gives columns new values, as in SET n = 0: {text}")
        yield one.this.name, one.expression


def _table(node: exp.Expr, text: str) -> tuple[str, str]:
    from sqlglot import exp

    if not isinstance(node, exp.Table) or not node.name:
        raise InvalidSQLError(f"The edit names no state table: {text}\nEdits are:\n{_EXAMPLES}")
    return node.name, node.alias or node.name


def _where(node: exp.Expr) -> exp.Expr | None:
    where = node.args.get("where")
    return None if where is None else where.this


def _more_than(node: exp.Expr, *known: str) -> list[str]:
    """Clauses of a statement beside those that are understood."""
    return [name for name, value in node.args.items() if value and name not in known]
