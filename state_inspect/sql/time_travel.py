"""Time travel: the query, the table and the epoch that a relation names, such as ``delays VERSION AS OF 12``.

``VERSION AS OF`` and ``TIMESTAMP AS OF`` are the spellings of Delta and Iceberg, ``AT (VERSION => 12)`` is DuckDB's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlglot import exp

from streamstate.errors import InvalidArgumentError, InvalidSQLError
from streamstate.state_inspect.epoch_names import Moment, aware, epoch_named
from streamstate.state_inspect.results.results import RESULT
from streamstate.state_inspect.sql.statement import Statement

HISTORY, CHANGES, INPUTS = "history", "changes", "inputs"
KINDS = HISTORY, CHANGES, RESULT, INPUTS
"""Names that may follow a table's in a statement: ``delays.history``, ``delays.op0_left.changes``.

``inputs`` follows a query's name: ``delays.inputs`` if it has one source, else ``delays.inputs_0`` or, by a source's
name, ``delays.inputs_clicks``.
"""

_SPELLINGS = "Write VERSION AS OF 12, VERSION AS OF 'live - 10', or TIMESTAMP AS OF '2026-03-01T12:00:00+00:00'."


@dataclass(frozen=True)
class Relation:
    """The parts of a relation's name, and its epoch."""

    query: str
    table: str | None
    """As written; None if the name has no table."""
    kind: str | None
    """One of :data:`KINDS`, with the source of an input; None for the rows at the epoch."""
    moment: Moment | None
    """The epoch or the time after the name; None if there is none."""

    @property
    def is_input(self) -> bool:
        """True if it is an input of the query."""
        return self.kind is not None and self.kind.startswith(INPUTS)


def named_relation(table: exp.Table, statement: Statement, queries: Sequence[str]) -> Relation | None:
    """Return the relation that a table of a statement names; None if it names none of the queries."""
    known = {name.casefold(): name for name in queries}
    parts = _with_variable([part.name for part in table.parts], known)
    query = known.get(parts[0].casefold())
    kind = _kind(parts[-1]) if len(parts) > 1 else None
    parts = parts[:-1] if kind else parts
    if query is None or len(parts) > 2 or not isinstance(table.this, exp.Identifier):
        return None
    return Relation(query, parts[1] if len(parts) == 2 else None, kind, _moment(table, statement))


def _with_variable(parts: list[str], queries: dict[str, str]) -> list[str]:
    """Return the parts of a name, of which ``shared`` and a variable's name are one, as in the catalog."""
    together = ".".join(parts[:2])
    return [together, *parts[2:]] if len(parts) > 1 and together.casefold() in queries else parts


def _kind(name: str) -> str | None:
    """Return a name as one of ``KINDS``, or as an input with its source; None if it is neither."""
    folded = name.casefold()
    if folded.startswith(f"{INPUTS}_"):
        return INPUTS + name[len(INPUTS) :]
    return folded if folded in KINDS else None


def check_stays(table: exp.Table, what: str) -> None:
    """Raise if a table without epochs names one; ``what`` says what the table is."""
    if _clause(table):
        raise InvalidSQLError(f"{table.name} is {what} and has no epochs to travel to.\n{_SPELLINGS}")


def _clause(table: exp.Table) -> exp.Expr | None:
    return table.args.get("version") or table.args.get("when")


def _moment(table: exp.Table, statement: Statement) -> Moment | None:
    clause = _clause(table)
    if clause is None:
        return None
    kind = clause.name if isinstance(clause, exp.Version) else str(clause.args.get("kind"))
    value = statement.value(clause.expression) if _is_as_of(clause) else None
    if value is None:
        raise InvalidSQLError(f"Invalid time travel {clause.sql(dialect='duckdb')}.\n{_SPELLINGS}")
    return _time(value) if kind.upper() == "TIMESTAMP" else _epoch(value)


def _is_as_of(clause: exp.Expr) -> bool:
    """Return whether a clause is ``VERSION AS OF``, ``TIMESTAMP AS OF``, or DuckDB's ``AT (VERSION => 12)``."""
    if isinstance(clause, exp.Version):
        return clause.args.get("kind") == "AS OF"
    return clause.name == "AT" and str(clause.args.get("kind")) in ("VERSION", "TIMESTAMP")


def _time(value: object) -> datetime:
    if not isinstance(value, (str, datetime)):
        raise InvalidArgumentError(f"Invalid timestamp {value!r}.\n{_SPELLINGS}")
    return aware(value)


def _epoch(value: object) -> Moment:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    epoch = epoch_named(value) if isinstance(value, str) else None
    if epoch is None:
        raise InvalidArgumentError(f"Invalid epoch {value!r}: expected an integer or 'live - 10'.\n{_SPELLINGS}")
    return epoch
