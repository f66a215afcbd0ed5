"""What the names in a statement mean, and the statement with sources in their place."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sqlglot import exp

from streamstate.snapshots.errors import InvalidArgumentError, InvalidSQLError, UnknownNameError
from streamstate.state_inspect.moments import FromLive, Moment, epoch_named
from streamstate.state_inspect.snapshot import choose_table
from streamstate.state_inspect.sql.files import READERS, check_paths, read_call, read_file
from streamstate.state_inspect.sql.relations import (
    CHANGES,
    HISTORY,
    ChangesRelation,
    HistoryRelation,
    SparkRelation,
    StateRelation,
)
from streamstate.state_inspect.sql.safety import ROWS_FROM_ARGUMENTS, not_allowed
from streamstate.state_inspect.sql.scopes import definition, relations
from streamstate.state_inspect.sql.statement import Statement
from streamstate.state_inspect.sql.user_data import ArrowData, DuckDBSource, SparkSource, UserSource
from streamstate.state_inspect.timestamps import aware

if TYPE_CHECKING:
    from streamstate.state_inspect.recorded import Recorded
    from streamstate.state_inspect.snapshot import Snapshot

Travel = Callable[[str, "int | datetime | None"], "Snapshot"]
"""Gives a query's snapshot at an epoch or moment, None meaning the newest."""

S = TypeVar("S")
"""What an engine reads."""

Reading = Callable[["Recorded", "Snapshot", str, str | None], S]
"""Gives the source for a state table of a snapshot, or for its ``history`` or ``changes``."""


@dataclass(frozen=True)
class Names:
    """What a statement can name.

    Args:
        queries: the store's queries.
        travel: gives its snapshot at an epoch.
        data: the user's own tables, by their names in lower case.
        at: the epoch of relations that do not say.
        allow_files: whether the statement itself may read files.
    """

    queries: list[str]
    travel: Travel
    data: dict[str, UserSource] = field(default_factory=dict)
    at: Moment | None = None
    allow_files: bool = False


@dataclass
class Bound(Generic[S]):
    """A statement whose relations have names of their own, and what those stand for."""

    statement: Statement
    sources: dict[str, S] = field(default_factory=dict)
    epochs: dict[str, list[int]] = field(default_factory=dict)
    """The epochs that each relation is read at, by the relation's name."""
    said: dict[str, str] = field(default_factory=dict)
    """What the statement called each source, and each definition of its WITH, whose names are new as well."""

    def in_users_words(self, text: str) -> str:
        """A message with the names that the user knows."""
        for name, said in self.said.items():
            text = text.replace(name, said)
        return text


def bind(statement: Statement, names: Names, reading: Reading[S]) -> Bound[S]:
    """Put sources in the place of the statement's relations; the statement's tree is changed.

    Raises:
        UnknownNameError: where a relation or an epoch does not exist.
        InvalidSQLError: where a name means what may not be read.
    """
    binder = _Binder(names, reading, Bound(statement))
    outside = relations(statement.tree)
    binder.rename_definitions(statement.tree)
    for table in outside:
        binder.replace(table)
    return binder.bound


_HOW = "Write VERSION AS OF 12, VERSION AS OF 'live - 10', or TIMESTAMP AS OF '2026-03-01T12:00:00+00:00'."


def _travels(table: exp.Table) -> exp.Expr | None:
    return table.args.get("version") or table.args.get("when")


class _Binder(Generic[S]):
    def __init__(self, names: Names, reading: Reading[S], bound: Bound[S]) -> None:
        self.bound = bound
        self._names = names
        self._reading = reading
        self._prefix = f"streamstate_{uuid.uuid4().hex}"
        # One of each, so that an epoch that arrives meanwhile is seen by all relations or by none.
        self._snapshots: dict[tuple[str, object], Snapshot] = {}
        self._definitions: dict[int, str] = {}

    def rename_definitions(self, tree: exp.Query) -> None:
        """Names of their own for what WITH defines: DuckDB must not look for one of them elsewhere."""
        uses = [(table, meant) for table in tree.find_all(exp.Table) if (meant := definition(table)) is not None]
        for table, meant in uses:
            if _travels(table):
                raise InvalidSQLError(f"{table.name} has no epochs: what WITH defines cannot be travelled in. {_HOW}")
            if not table.alias:
                table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name, quoted=True)))
            table.set("this", exp.to_identifier(self._name_of(meant)))
        for one in tree.find_all(exp.CTE):
            one.args["alias"].set("this", exp.to_identifier(self._name_of(one)))

    def _name_of(self, defined: exp.CTE) -> str:
        if id(defined) not in self._definitions:
            self._definitions[id(defined)] = self._new_name(defined.alias)
        return self._definitions[id(defined)]

    def _new_name(self, said: str) -> str:
        name = f"{self._prefix}_{len(self.bound.said)}_"
        self.bound.said[name] = said
        return name

    def replace(self, table: exp.Table) -> None:
        """Put a source in the place of a relation.

        Raises:
            UnknownNameError, InvalidSQLError: as :func:`bind`.
        """
        if isinstance(table.this, exp.Func):
            source = self._function(table)
            if source is not None:
                self._put(table, source, None)
            return
        data = None if table.db else self._names.data.get(table.name.casefold())
        if data is not None and _travels(table):
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
        """What a table function that reads files gives; None for one that makes rows of its arguments."""
        function = table.this
        name = (function.name if isinstance(function, exp.Anonymous) else function.sql_name()).casefold()
        if name in ROWS_FROM_ARGUMENTS:
            return None
        if name not in READERS or not self._names.allow_files:
            raise not_allowed(name)
        if function.find(exp.Query):
            raise InvalidSQLError(f"{name}() takes paths and options here, no statements.")
        values = {one.name: self.bound.statement.values[one.name] for one in function.find_all(exp.Placeholder)}
        texts = [one.name for one in function.find_all(exp.Literal) if one.is_string]
        check_paths(iter([*texts, *_texts(list(values.values()))]))
        return ArrowData(read_call(function.sql(dialect="duckdb"), values))

    def _file(self, table: exp.Table) -> ArrowData | None:
        """The file that a name in quotes means; None where it is no path."""
        path = table.name
        known = {one.casefold() for one in self._names.queries}
        quoted = isinstance(table.this, exp.Identifier) and table.this.quoted
        if not self._names.allow_files or table.db or not quoted or path.casefold() in known:
            return None
        return ArrowData(read_file(path)) if "." in path or "/" in path else None

    def _state(self, table: exp.Table) -> S:
        query, chosen, kind = self._meant(table)
        snapshot = self._snapshot(query, self._moment(table))
        history = snapshot.history  # a fork's early epochs are its parent's
        tables = history.tables() if kind else snapshot.tables()
        chosen = None if chosen is None else {one.casefold(): one for one in tables}.get(chosen.casefold(), chosen)
        said = ".".join(part for part in (query, chosen, kind) if part)
        epochs = self.bound.epochs.setdefault(said, [])
        self.bound.epochs[said] = sorted({*epochs, snapshot.epoch})
        return self._reading(history, snapshot, choose_table(chosen, tables, query), kind)

    def _meant(self, table: exp.Table) -> tuple[str, str | None, str | None]:
        """The query, the table (None: its only one), and ``history`` or ``changes`` where that is meant."""
        parts = [part.name for part in table.parts]
        known = {name.casefold(): name for name in self._names.queries}
        query = known.get(parts[0].casefold())
        kind = parts.pop().casefold() if parts[-1].casefold() in (HISTORY, CHANGES) and len(parts) > 1 else None
        if query is None or len(parts) > 2 or not isinstance(table.this, exp.Identifier):
            names = [*self._names.queries, *self._names.data]
            raise UnknownNameError.among("relation", ".".join(part.name for part in table.parts), names)
        return query, parts[1] if len(parts) == 2 else None, kind

    def _snapshot(self, query: str, to: Moment | None) -> Snapshot:
        if isinstance(to, FromLive):
            to = to.epoch(self._snapshot(query, None).epoch) if to.back else None
        if (query, to) not in self._snapshots:
            self._snapshots[query, to] = self._names.travel(query, to)
        return self._snapshots[query, to]

    def _moment(self, table: exp.Table) -> Moment | None:
        asked = _travels(table)
        if asked is None:
            return self._names.at
        kind = asked.name if isinstance(asked, exp.Version) else str(asked.args.get("kind"))
        value = self.bound.statement.value(asked.expression) if _as_of(asked) else None
        if value is None:
            raise InvalidSQLError(f"{asked.sql(dialect='duckdb')} cannot be meant. {_HOW}")
        return _time(value) if kind.upper() == "TIMESTAMP" else _epoch(value)


def _as_of(asked: exp.Expr) -> bool:
    """Whether it is ``VERSION AS OF``, ``TIMESTAMP AS OF``, or DuckDB's ``AT (VERSION => 12)``."""
    if isinstance(asked, exp.Version):
        return asked.args.get("kind") == "AS OF"
    return asked.name == "AT" and str(asked.args.get("kind")) in ("VERSION", "TIMESTAMP")


def _time(value: object) -> datetime:
    if not isinstance(value, (str, datetime)):
        raise InvalidArgumentError(f"{value!r} is no timestamp. {_HOW}")
    return aware(value)


def _epoch(value: object) -> Moment:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    found = epoch_named(value) if isinstance(value, str) else None
    if found is None:
        raise InvalidArgumentError(f"An epoch is a whole number, not {value!r}. {_HOW}")
    return found


def _texts(values: list[Any]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _texts(list(value))


def read_in_duckdb(history: Recorded, snapshot: Snapshot, table: str, kind: str | None) -> DuckDBSource:
    """A state table of a snapshot, its history or its changes, for DuckDB."""
    if kind == CHANGES:
        return ChangesRelation.of(history.change_log(table), snapshot.epoch)
    if kind == HISTORY:
        return HistoryRelation(history.interval_table(table, -1), snapshot.epoch)
    return StateRelation(snapshot.table(table))


def read_in_spark(history: Recorded, snapshot: Snapshot, table: str, kind: str | None) -> SparkSource:
    """The same for Spark, which reads the change log itself."""
    return SparkRelation(history.change_log(table), snapshot.epoch, kind)
