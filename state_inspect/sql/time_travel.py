"""Time travel: each relation of a statement, such as ``delays VERSION AS OF 12``, becomes a source at one epoch.

``VERSION AS OF`` and ``TIMESTAMP AS OF`` are the spellings of Delta and Iceberg, ``AT (VERSION => 12)`` is DuckDB's.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

from sqlglot import exp

from streamstate.errors import InvalidArgumentError, InvalidSQLError, UnknownNameError
from streamstate.state_inspect.captured_query import CapturedQuery
from streamstate.state_inspect.epoch_names import FromLive, Moment, aware, epoch_named
from streamstate.state_inspect.results.results import RESULT, table_of_result
from streamstate.state_inspect.snapshot import Snapshot, choose_table
from streamstate.state_inspect.sql.allowed_functions import ROWS_FROM_ARGUMENTS
from streamstate.state_inspect.sql.statement import Statement, definition, relations
from streamstate.state_inspect.sql.statement_policy import function_not_allowed
from streamstate.state_inspect.sql.user_data import READERS, ArrowData, UserSource, check_paths, read_call, read_file

HISTORY, CHANGES, INPUTS = "history", "changes", "inputs"
KINDS = HISTORY, CHANGES, RESULT, INPUTS
"""What may follow a table's name in a statement: ``delays.history``, ``delays.op0_left.changes``.

``inputs`` follows a query's name: ``delays.inputs`` if it has one source, else ``delays.inputs_0`` or, by a source's
name, ``delays.inputs_clicks``.
"""

Travel = Callable[[str, "int | datetime | None"], Snapshot]
"""Returns a query's snapshot at an epoch or time; None means the newest."""

S = TypeVar("S")
"""What an engine reads."""

Reading = Callable[[CapturedQuery, Snapshot, str, str | None], S]
"""Returns the source for a state table of a snapshot, or for its ``history`` or ``changes``.

The inputs of a query have no table.
"""

_SPELLINGS = "Write VERSION AS OF 12, VERSION AS OF 'live - 10', or TIMESTAMP AS OF '2026-03-01T12:00:00+00:00'."


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


def _travel_clause(table: exp.Table) -> exp.Expr | None:
    return table.args.get("version") or table.args.get("when")


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
            if _travel_clause(table):
                raise InvalidSQLError(f"{table.name} is defined by WITH and has no epochs to travel to.\n{_SPELLINGS}")
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
            source = self._function(table)
            if source is not None:
                self._put(table, source, None)
            return
        data = None if table.db else self._catalog.data.get(table.name.casefold())
        if data is not None and _travel_clause(table):
            raise InvalidSQLError(f"{table.name} is your own data and has no epochs.")
        self._put(table, data or self._file(table) or self._state(table), table.alias or table.name)

    def _put(self, table: exp.Table, source: Any, alias: str | None) -> None:
        name = self._new_name(alias or "file")
        self.bound.sources[name] = source
        table.set("this", exp.to_identifier(name))
        for part in ("db", "catalog", "version", "when"):
            table.set(part, None)
        if alias is not None and not table.alias:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))

    def _function(self, table: exp.Table) -> ArrowData | None:
        """Return the rows of a table function that reads files; None for one that makes rows from its arguments."""
        function = table.this
        name = (function.name if isinstance(function, exp.Anonymous) else function.sql_name()).casefold()
        if name in ROWS_FROM_ARGUMENTS:
            return None
        if name not in READERS or not self._catalog.allow_files:
            raise function_not_allowed(name, ROWS_FROM_ARGUMENTS)
        if function.find(exp.Query):
            raise InvalidSQLError(f"{name}() takes paths and options here, no statements.")
        values = {mark.name: self.bound.statement.values[mark.name] for mark in function.find_all(exp.Placeholder)}
        texts = [literal.name for literal in function.find_all(exp.Literal) if literal.is_string]
        check_paths(iter([*texts, *_texts(list(values.values()))]))
        return ArrowData(read_call(function.sql(dialect="duckdb"), values))

    def _file(self, table: exp.Table) -> ArrowData | None:
        """Return the file that a quoted name refers to; None if it is not a path."""
        path = table.name
        queries = {query.casefold() for query in self._catalog.queries}
        quoted = isinstance(table.this, exp.Identifier) and table.this.quoted
        if not self._catalog.allow_files or table.db or not quoted or path.casefold() in queries:
            return None
        return ArrowData(read_file(path)) if "." in path or "/" in path else None

    def _state(self, table: exp.Table) -> S:
        query, chosen, kind = self._parts(table)
        snapshot = self._snapshot(query, self._moment(table))
        recorded = snapshot.history.recorded  # a fork's early epochs are its parent's
        if kind is not None and kind.startswith(INPUTS):
            if chosen is not None:
                raise InvalidSQLError(f"An input is one of the query, not of a state table.\nName it {query}.{kind}.")
            self._read(f"{query}.{kind}", snapshot.epoch)
            return self._reading(recorded, snapshot, "", kind)
        tables = recorded.tables() if kind else snapshot.tables()
        chosen = None if chosen is None else {name.casefold(): name for name in tables}.get(chosen.casefold(), chosen)
        relation = ".".join(part for part in (query, chosen, kind) if part)
        self._read(relation, snapshot.epoch)
        if kind == RESULT:
            chosen = table_of_result(recorded, chosen, tables, snapshot.epoch)
        return self._reading(recorded, snapshot, choose_table(chosen, tables, query), kind)

    def _read(self, relation: str, epoch: int) -> None:
        self.bound.epochs[relation] = sorted({*self.bound.epochs.get(relation, []), epoch})

    def _parts(self, table: exp.Table) -> tuple[str, str | None, str | None]:
        """Return the query, the table (None: its only one), and what the name ends with, if it is one of ``KINDS``."""
        parts = _with_variable([part.name for part in table.parts], self._catalog.queries)
        known = {name.casefold(): name for name in self._catalog.queries}
        query = known.get(parts[0].casefold())
        kind = _kind(parts[-1]) if len(parts) > 1 else None
        parts = parts[:-1] if kind else parts
        if query is None or len(parts) > 2 or not isinstance(table.this, exp.Identifier):
            names = [*self._catalog.queries, *self._catalog.data]
            raise UnknownNameError.among("relation", ".".join(part.name for part in table.parts), names)
        return query, parts[1] if len(parts) == 2 else None, kind

    def _snapshot(self, query: str, to: Moment | None) -> Snapshot:
        if isinstance(to, FromLive):
            to = to.epoch(self._snapshot(query, None).epoch) if to.back else None
        if (query, to) not in self._snapshots:
            self._snapshots[query, to] = self._catalog.travel(query, to)
        return self._snapshots[query, to]

    def _moment(self, table: exp.Table) -> Moment | None:
        clause = _travel_clause(table)
        if clause is None:
            return self._catalog.at
        kind = clause.name if isinstance(clause, exp.Version) else str(clause.args.get("kind"))
        value = self.bound.statement.value(clause.expression) if _is_as_of(clause) else None
        if value is None:
            raise InvalidSQLError(f"Invalid time travel {clause.sql(dialect='duckdb')}.\n{_SPELLINGS}")
        return _time(value) if kind.upper() == "TIMESTAMP" else _epoch(value)


def _with_variable(parts: list[str], queries: list[str]) -> list[str]:
    """Return the parts of a name, of which ``shared`` and a variable's name are one, as in the catalog."""
    known = {query.casefold() for query in queries}
    together = ".".join(parts[:2])
    return [together, *parts[2:]] if len(parts) > 1 and together.casefold() in known else parts


def _kind(name: str) -> str | None:
    """Return a name as one of ``KINDS``, or as an input with its source; None if it is neither."""
    folded = name.casefold()
    if folded.startswith(f"{INPUTS}_"):
        return INPUTS + name[len(INPUTS) :]
    return folded if folded in KINDS else None


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


def _texts(values: list[Any]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _texts(list(value))
