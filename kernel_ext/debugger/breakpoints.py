"""Breakpoints: what to stop at, looked at after each epoch, in the rows that the epoch changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from streamstate.snapshots.change_log import listed
from streamstate.snapshots.errors import InvalidArgumentError, InvalidSQLError, UnknownColumnError, choices
from streamstate.state_inspect.conditions.when import Condition, key_condition
from streamstate.state_inspect.expressions import first_error
from streamstate.state_inspect.state_table import bad_key

if TYPE_CHECKING:
    from streamstate.debugger.report import StepReport
    from streamstate.state_inspect import History

__all__ = ["ERROR", "Breakpoint", "Until", "breakpoint_at", "table_and_condition"]

ERROR = "error"
"""The breakpoint at an error in the query's own code."""

Until: TypeAlias = "str | Mapping[str, Any] | Callable[[StepReport], object] | None"
"""A breakpoint: an SQL condition on rows that changed, a key, ``"error"``, or a function of the report."""

_NAMED = 3


class Breakpoint(Protocol):
    """Something to stop at."""

    reads_state: bool
    """Whether it looks at captured state."""

    def check(self, history: History) -> None:
        """Raise where it cannot be meant of these tables."""

    def hit(self, report: StepReport) -> str | None:
        """Why to stop after the report's last epoch; None: go on."""


def breakpoint_at(until: Until) -> Breakpoint | None:
    """The breakpoint that ``until`` means.

    Raises:
        InvalidArgumentError: where it means none.
    """
    if until is None or until == ERROR:
        return None
    if isinstance(until, str) and until.strip():
        return _OnCondition(until)
    if isinstance(until, Mapping) and until:
        return _OnKey(dict(until))
    if callable(until):
        return _OnFunction(until)
    raise InvalidArgumentError(
        f"until={until!r} cannot be meant.\nGive an SQL condition such as 'max_delay > 300', a key such as"
        " {'carrier': 'HA'}, 'error', or a function of the report."
    )


def table_and_condition(text: str, tables: Mapping[str, list[str]]) -> tuple[str, str]:
    """The state table that a condition is about, and the condition without the table's name.

    Args:
        text: the condition; its columns may carry the table's name.
        tables: the columns of each state table.

    Raises:
        InvalidSQLError: it does not parse, or is about several tables.
        UnknownColumnError: no table has its columns.
    """
    try:
        parsed = sqlglot.parse_one(text, read="duckdb")
    except SqlglotError as error:
        raise InvalidSQLError(
            f"The condition {text!r} does not parse: {first_error(error)}\nWrite it as after WHERE."
        ) from error
    known = {name.casefold(): name for name in tables}
    named: dict[str, str] = {}
    for column in list(parsed.find_all(exp.Column)):
        parts = column.parts
        # window.end is a field of a column, op0_left.v a column of a table.
        if len(parts) > 1 and (table := known.get(parts[0].name.casefold())) is not None:
            named[table] = parts[0].name
            outermost = next(part for part in ("catalog", "db", "table") if column.args.get(part))
            column.set(outermost, None)
    if len(named) > 1:
        raise InvalidSQLError(
            f"{text!r} is about the tables {choices(named)}.\nA breakpoint looks at one table's rows."
        )
    condition = parsed.sql(dialect="duckdb")
    if named:
        return next(iter(named)), condition
    return _table_with([column.parts[0].name for column in parsed.find_all(exp.Column)], tables, text), condition


def _table_with(columns: list[str], tables: Mapping[str, list[str]], text: str) -> str:
    """The one table that has all the columns."""
    wanted = {name.casefold() for name in columns}
    having = [name for name, known in tables.items() if wanted <= {one.casefold() for one in known}]
    if len(having) == 1 or len(tables) == 1:
        return (having or [*tables])[0]
    if having:
        raise InvalidSQLError(
            f"Several tables have the columns of {text!r}: {choices(having)}.\n"
            f"Say which one: {having[0]}.{columns[0] if columns else 'column'}."
        )
    listed_ = "; ".join(f"{name}: {', '.join(known)}" for name, known in tables.items())
    raise UnknownColumnError(f"No state table has all the columns of {text!r}.\nTables: {listed_}.")


@dataclass
class _OnCondition:
    """An SQL condition on the rows that an epoch changed."""

    text: str
    reads_state: bool = True

    def check(self, history: History) -> None:
        """Raise what a mistake in it raises."""
        self._condition(history, history.live().epoch).query(history.index, "SELECT 1")

    def hit(self, report: StepReport) -> str | None:
        """The rows that the last epoch wrote and that meet it."""
        history, epoch = report.history, report.epoch
        condition = self._condition(history, epoch)
        table = condition.table
        found = condition.query(
            history.index,
            f"SELECT {listed(table.key_columns)}, count(*) OVER () AS _n FROM {table.relation}"
            f" WHERE _valid_from = {epoch} AND {condition.sql} ORDER BY {listed(table.key_columns)} LIMIT {_NAMED}",
        )
        if not found.num_rows:
            return None
        count = int(found["_n"][0].as_py())
        keys = "; ".join(_key_text(row) for row in found.drop_columns(["_n"]).to_pylist())
        more = f" and {count - found.num_rows:,} more" if count > found.num_rows else ""
        return f"{self.text} in epoch {epoch}: {keys}{more}"

    def _condition(self, history: History, epoch: int) -> Condition:
        snapshot = history.at(epoch)
        tables = {
            name: [*snapshot.table(name).key_columns, *snapshot.table(name).value_columns] for name in snapshot.tables()
        }
        chosen, text = table_and_condition(self.text, tables)
        return Condition(text, chosen, history.interval_table(chosen, _first(history, epoch)), {})


@dataclass
class _OnKey:
    """A key whose row changed, came or went."""

    key: dict[str, Any]
    reads_state: bool = True

    def check(self, history: History) -> None:
        """Raise where no table has the columns, or a value does not fit."""
        epoch = history.live().epoch
        tables = self._tables(history, epoch)
        if not tables:
            snapshot = history.at(epoch)
            known = "; ".join(f"{name}: {', '.join(snapshot.table(name).key_columns)}" for name in snapshot.tables())
            raise UnknownColumnError(
                f"No state table has the key columns {', '.join(self.key)}.\nKey columns: {known or 'none'}."
            )
        for name in tables:
            self._changed(history, name, epoch)

    def hit(self, report: StepReport) -> str | None:
        """Whether the last epoch changed it, in any table that has such a key."""
        tables = self._tables(report.history, report.epoch)
        changed = [name for name in tables if self._changed(report.history, name, report.epoch)]
        if not changed:
            return None
        return f"{_key_text(self.key)} changed in epoch {report.epoch} ({', '.join(changed)})"

    def _tables(self, history: History, epoch: int) -> list[str]:
        snapshot = history.at(epoch)
        return [name for name in snapshot.tables() if {*self.key} <= {*snapshot.table(name).key_columns}]

    def _changed(self, history: History, name: str, epoch: int) -> bool:
        import duckdb

        table = history.interval_table(name, _first(history, epoch))
        condition, values = key_condition(table, self.key)
        sql = f"SELECT count(*) AS n FROM {table.relation} WHERE {epoch} IN (_valid_from, _valid_to) AND {condition}"
        try:
            return bool(history.index.query(sql, values)["n"][0].as_py())
        except duckdb.Error as error:
            raise bad_key(self.key, table, error) from error


@dataclass
class _OnFunction:
    """A function of the report."""

    function: Callable[[StepReport], object]
    reads_state: bool = False

    def check(self, history: History) -> None:
        """Nothing can be known of it."""

    def hit(self, report: StepReport) -> str | None:
        """What it says of the report so far."""
        name = getattr(self.function, "__name__", repr(self.function))
        return f"{name} in epoch {report.epoch}" if self.function(report) else None


def _first(history: History, epoch: int) -> int:
    """The epoch before, so that what the epoch itself changed can be told from what was there."""
    return epoch - 1 if epoch - 1 in history.captured() else epoch


def _key_text(key: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in key.items())
