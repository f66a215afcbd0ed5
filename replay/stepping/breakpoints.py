"""Breakpoints: where to stop, evaluated after each epoch on the rows that the epoch changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from streamstate.errors import InvalidArgumentError, InvalidSQLError, UnknownColumnError, choices
from streamstate.replay.stepping.step_report import StepReport
from streamstate.snapshots.store.duckdb_sql import listed
from streamstate.state_inspect import History
from streamstate.state_inspect.conditions.condition import Condition
from streamstate.state_inspect.keys.key_rows import key_condition
from streamstate.state_inspect.keys.key_text import arguments
from streamstate.state_inspect.keys.table_key import TableKey
from streamstate.state_inspect.python_rows import records
from streamstate.state_inspect.sql.statement_policy import first_error

ERROR = "error"
"""The breakpoint for an error in the query's own code."""

Until: TypeAlias = "str | Mapping[str, Any] | Callable[[StepReport], object] | None"
"""A breakpoint: an SQL condition on the rows that changed, a key, ``"error"``, or a function of the report."""

_SHOWN_KEYS = 3


class Breakpoint:
    """A condition that stops a step."""

    reads_state = True
    """Whether it reads captured state."""

    def check(self, history: History) -> None:
        """Raise if it does not fit these tables."""

    def hit(self, report: StepReport) -> str | None:
        """Return the reason to stop after the report's last epoch; None: continue."""
        raise NotImplementedError


def breakpoint_at(until: Until) -> Breakpoint | None:
    """Return the breakpoint for ``until``."""
    if until is None or until == ERROR:
        return None
    if isinstance(until, str) and until.strip():
        return _OnCondition(until)
    if isinstance(until, Mapping) and until:
        return _OnKey(dict(until))
    if callable(until):
        return _OnFunction(until)
    raise InvalidArgumentError(
        f"Invalid until={until!r}: expected an SQL condition such as 'max > 300', a key such as"
        " {'carrier': 'HA'}, 'error', or a function of the report."
    )


def table_and_condition(text: str, tables: Mapping[str, list[str]]) -> tuple[str, str]:
    """Return the state table that a condition is about, and the condition without the table's name."""
    try:
        parsed = sqlglot.parse_one(text, read="duckdb")
    except SqlglotError as error:
        raise InvalidSQLError(
            f"The condition {text!r} does not parse: {first_error(error)}\nWrite it as you would after WHERE."
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
            f"{text!r} refers to several tables: {choices(named)}.\nA breakpoint is evaluated on the rows of one table."
        )
    condition = parsed.sql(dialect="duckdb")
    if named:
        return next(iter(named)), condition
    return _table_with([column.parts[0].name for column in parsed.find_all(exp.Column)], tables, text), condition


def _table_with(columns: list[str], tables: Mapping[str, list[str]], text: str) -> str:
    """Return the only table that has all the columns."""
    required = {name.casefold() for name in columns}
    matching = [name for name, known in tables.items() if required <= {column.casefold() for column in known}]
    if len(matching) == 1 or len(tables) == 1:
        return (matching or [*tables])[0]
    if matching:
        raise InvalidSQLError(
            f"Several tables have the columns of {text!r}: {choices(matching)}.\n"
            f"Name the table: {matching[0]}.{columns[0] if columns else 'column'}."
        )
    raise UnknownColumnError(f"No state table has all the columns of {text!r}.\nTables: {_columns_of(tables)}.")


def _columns_of(tables: Mapping[str, list[str]]) -> str:
    return "; ".join(f"{name}: {', '.join(columns)}" for name, columns in tables.items()) or "none"


@dataclass
class _OnCondition(Breakpoint):
    """An SQL condition on the rows that an epoch changed."""

    text: str

    def check(self, history: History) -> None:
        self._condition(history, history.live().epoch).query(history.recorded.index, "SELECT 1")

    def hit(self, report: StepReport) -> str | None:
        """Return the keys of the rows that the last epoch wrote and that meet the condition."""
        history, epoch = report.history, report.epoch
        condition = self._condition(history, epoch)
        table = condition.table
        found = condition.query(
            history.recorded.index,
            f"SELECT {listed(table.key_columns)}, count(*) OVER () AS _n FROM {table.relation}"
            f" WHERE _valid_from = {epoch} AND {condition.sql} ORDER BY {listed(table.key_columns)}"
            f" LIMIT {_SHOWN_KEYS}",
        )
        if not found.num_rows:
            return None
        count = int(found["_n"][0].as_py())
        keys = "; ".join(map(arguments, records(found.drop_columns(["_n"]))))
        more = f" and {count - found.num_rows:,} more" if count > found.num_rows else ""
        return f"{self.text} in epoch {epoch}: {keys}{more}"

    def _condition(self, history: History, epoch: int) -> Condition:
        snapshot = history.at(epoch)
        tables = {
            name: [*snapshot.table(name).key_columns, *snapshot.table(name).value_columns] for name in snapshot.tables()
        }
        chosen, text = table_and_condition(self.text, tables)
        return Condition(text, chosen, history.recorded.interval_table(chosen, _first(history, epoch)), {})


@dataclass
class _OnKey(Breakpoint):
    """A key whose row was changed, added or deleted."""

    key: dict[str, Any]

    def check(self, history: History) -> None:
        """Raise if no table has the columns, or a value does not fit its column."""
        epoch = history.live().epoch
        tables = self._tables(history, epoch)
        if not tables:
            snapshot = history.at(epoch)
            known = _columns_of({name: snapshot.table(name).key_columns for name in snapshot.tables()})
            raise UnknownColumnError(
                f"No state table has the key columns {', '.join(self.key)}.\nKey columns: {known}."
            )
        for name in tables:
            self._changed(history, name, epoch)

    def hit(self, report: StepReport) -> str | None:
        """Return the reason to stop if the last epoch changed the key in any table with its columns."""
        tables = self._tables(report.history, report.epoch)
        changed = [name for name in tables if self._changed(report.history, name, report.epoch)]
        if not changed:
            return None
        return f"{arguments(self.key)} changed in epoch {report.epoch} ({', '.join(changed)})"

    def _tables(self, history: History, epoch: int) -> list[str]:
        snapshot = history.at(epoch)
        return [name for name in snapshot.tables() if {*self.key} <= {*snapshot.table(name).key_columns}]

    def _changed(self, history: History, name: str, epoch: int) -> bool:
        table = history.recorded.interval_table(name, _first(history, epoch))
        key = TableKey.of(history.recorded, name).given({"key": self.key}, whole=False)
        condition, values = key_condition(table, key)
        sql = f"SELECT count(*) AS n FROM {table.relation} WHERE {epoch} IN (_valid_from, _valid_to) AND {condition}"
        return bool(history.recorded.index.query(sql, values)["n"][0].as_py())


@dataclass
class _OnFunction(Breakpoint):
    """A function of the report."""

    function: Callable[[StepReport], object]
    reads_state = False

    def hit(self, report: StepReport) -> str | None:
        """Return the reason to stop if the function returns a true value."""
        name = getattr(self.function, "__name__", repr(self.function))
        return f"{name} in epoch {report.epoch}" if self.function(report) else None


def _first(history: History, epoch: int) -> int:
    """Return the epoch before, if captured; otherwise the epoch, whose changes cannot be distinguished then."""
    return epoch - 1 if epoch - 1 in history.captured() else epoch
