"""Time travel: each relation of a statement, such as ``delays VERSION AS OF 12``, gets a source at one epoch.

``VERSION AS OF`` and ``TIMESTAMP AS OF`` are the spellings of Delta and Iceberg, ``AT (VERSION => 12)`` is DuckDB's. A
source gets a name that nothing else can have.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

from sqlglot import exp

from streamstate.errors import InvalidArgumentError, InvalidSQLError, UnknownNameError
from streamstate.state_inspect.captured_query import CapturedQuery
from streamstate.state_inspect.epoch_names import FromLive, Moment, aware, epoch_named
from streamstate.state_inspect.results.results import RESULT, table_of_result
from streamstate.state_inspect.snapshot import Snapshot, choose_table
from streamstate.state_inspect.sql.statement import Statement, definition, relations
from streamstate.state_inspect.sql.user_data import UserSource, quoted_file, rows_of_function

HISTORY, CHANGES, INPUTS = "history", "changes", "inputs"
KINDS = HISTORY, CHANGES, RESULT, INPUTS
"""Names that may follow a table's in a statement: ``delays.history``, ``delays.op0_left.changes``.

``inputs`` follows a query's name: ``delays.inputs`` if it has one source, else ``delays.inputs_0`` or, by a source's
name, ``delays.inputs_clicks``.
"""

_SPELLINGS = "Write VERSION AS OF 12, VERSION AS OF 'live - 10', or TIMESTAMP AS OF '2026-03-01T12:00:00+00:00'."
Travel = Callable[[str, "int | datetime | None"], Snapshot]
"""Returns a query's snapshot at an epoch or time; None means the newest."""

S = TypeVar("S")
"""A source of an engine."""

Reading = Callable[[CapturedQuery, Snapshot, str, str | None], S]
"""Returns the source for a state table of a snapshot, or for its ``history`` or ``changes``.

The inputs of a query have no table.
"""


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


@dataclass(frozen=True)
class Catalog:
    """The names that a statement can use: queries, and the user's own tables in lower case."""

    queries: list[str]
    travel: Travel
    data: dict[str, UserSource] = field(default_factory=dict)
    at: Moment | None = None
    """The epoch of relations that do not name one."""
    allow_files: bool = False


@dataclass
class Bound(Generic[S]):
    """A statement whose relations have new names, and the sources that those stand for."""

    statement: Statement
    sources: dict[str, S] = field(default_factory=dict)
    epochs: dict[str, list[int]] = field(default_factory=dict)
    """The epochs that each relation is read at, by the relation's name."""
    original_names: dict[str, str] = field(default_factory=dict)
    """The user's name for each source and for each definition of WITH, by its new name."""

    def in_users_words(self, text: str) -> str:
        """Return a message with the user's own names."""
        for name, original in self.original_names.items():
            text = text.replace(name, original)
        return text


def bind(statement: Statement, catalog: Catalog, reading: Reading[S]) -> Bound[S]:
    """Replace the statement's relations with sources; changes the statement's tree."""
    binder = _Binder(catalog, reading, Bound(statement))
    outside = relations(statement.tree)
    binder.rename_definitions(statement.tree)
    for table in outside:
        binder.replace(table)
    return binder.bound


class _Binder(Generic[S]):
    def __init__(self, catalog: Catalog, reading: Reading[S], bound: Bound[S]) -> None:
        self.bound = bound
        self._catalog = catalog
        self._reading = reading
        self._prefix = f"streamstate_{uuid.uuid4().hex}"
        # One snapshot per query and epoch, so that all relations see an epoch that arrives meanwhile, or none does.
        self._snapshots: dict[tuple[str, object], Snapshot] = {}
        self._definitions: dict[int, str] = {}

    def rename_definitions(self, tree: exp.Query) -> None:
        """Give new names to what WITH defines, so that DuckDB cannot resolve them elsewhere."""
        uses = [(table, defined) for table in tree.find_all(exp.Table) if (defined := definition(table)) is not None]
        for table, defined in uses:
            check_stays(table, "defined by WITH")
            if not table.alias:
                table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name, quoted=True)))
            table.set("this", exp.to_identifier(self._name_of(defined)))
        for defined in tree.find_all(exp.CTE):
            defined.args["alias"].set("this", exp.to_identifier(self._name_of(defined)))

    def _name_of(self, defined: exp.CTE) -> str:
        if id(defined) not in self._definitions:
            self._definitions[id(defined)] = self._new_name(defined.alias)
        return self._definitions[id(defined)]

    def _new_name(self, original: str) -> str:
        name = f"{self._prefix}_{len(self.bound.original_names)}_"
        self.bound.original_names[name] = original
        return name

    def replace(self, table: exp.Table) -> None:
        """Replace a relation with a source."""
        if isinstance(table.this, exp.Func):
            rows = rows_of_function(table.this, self.bound.statement.values, allow_files=self._catalog.allow_files)
            if rows is not None:
                self._put(table, rows, None)
            return
        own = self._users_own(table)
        self._put(table, self._state(table) if own is None else own, table.alias or table.name)

    def _users_own(self, table: exp.Table) -> UserSource | None:
        """Return the user's own table or file of a name; None if it is neither."""
        if table.db:
            return None
        name = table.name.casefold()
        if name in self._catalog.data:
            check_stays(table, "your own data")
            return self._catalog.data[name]
        is_query = name in {query.casefold() for query in self._catalog.queries}
        return quoted_file(table) if self._catalog.allow_files and not is_query else None

    def _put(self, table: exp.Table, source: Any, alias: str | None) -> None:
        name = self._new_name(alias or "file")
        self.bound.sources[name] = source
        table.set("this", exp.to_identifier(name))
        for part in ("db", "catalog", "version", "when"):
            table.set(part, None)
        if alias is not None and not table.alias:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))

    def _state(self, table: exp.Table) -> S:
        """Return the source of a state table, or of what is made from one."""
        named = named_relation(table, self.bound.statement, self._catalog.queries)
        if named is None:
            names = [*self._catalog.queries, *self._catalog.data]
            raise UnknownNameError.among("relation", ".".join(part.name for part in table.parts), names)
        snapshot = self._snapshot(named.query, self._catalog.at if named.moment is None else named.moment)
        captured = snapshot.history.recorded  # a fork's early epochs are its parent's
        if named.is_input:
            if named.table is not None:
                raise InvalidSQLError(
                    f"An input is one of the query, not of a state table.\nName it {named.query}.{named.kind}."
                )
            self._read(f"{named.query}.{named.kind}", snapshot.epoch)
            return self._reading(captured, snapshot, "", named.kind)
        chosen = self._table(named, captured, snapshot)
        return self._reading(captured, snapshot, chosen, named.kind)

    def _table(self, named: Relation, captured: CapturedQuery, snapshot: Snapshot) -> str:
        tables = captured.tables() if named.kind else snapshot.tables()
        chosen = {name.casefold(): name for name in tables}.get((named.table or "").casefold(), named.table)
        self._read(".".join(part for part in (named.query, chosen, named.kind) if part), snapshot.epoch)
        if named.kind == RESULT:
            chosen = table_of_result(captured, chosen, tables, snapshot.epoch)
        return choose_table(chosen, tables, named.query)

    def _read(self, relation: str, epoch: int) -> None:
        self.bound.epochs[relation] = sorted({*self.bound.epochs.get(relation, []), epoch})

    def _snapshot(self, query: str, to: Moment | None) -> Snapshot:
        if isinstance(to, FromLive):
            to = to.epoch(self._snapshot(query, None).epoch) if to.back else None
        if (query, to) not in self._snapshots:
            self._snapshots[query, to] = self._catalog.travel(query, to)
        return self._snapshots[query, to]
