"""The store's table of queries: which names exist, which query each belongs to, and which was forked from which."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable

from streamstate.errors import (
    NameTakenError,
    NewerStoreError,
    NotAStoreError,
    UnknownQueryError,
    UntrustedStoreError,
    choices,
    worded,
)
from streamstate.snapshots.checkpoint.bindings import SHARED
from streamstate.snapshots.checkpoint.default_names import flow_version
from streamstate.snapshots.checkpoint.filesystem import local_path
from streamstate.snapshots.checkpoint.outside_checkpoints import check_outside
from streamstate.snapshots.store.consistent_read import read_once
from streamstate.snapshots.store.delta import commit_once, open_or_create, open_table
from streamstate.snapshots.store.delta.commits import update, version_of
from streamstate.snapshots.store.delta.data_files import DataFile, write_file
from streamstate.snapshots.store.delta.reading import TableVersion
from streamstate.snapshots.store.layout import FORMAT, QUERIES, Layout
from streamstate.snapshots.store.names import is_name

if TYPE_CHECKING:
    from streamstate.snapshots.checkpoint.fork_record import ForkRecord


@dataclass(frozen=True)
class Branch:
    """A query of a store and, if it is a fork, where it comes from."""

    name: str
    query_id: str
    checkpoint: str
    parent: str | None = None
    """The query that it was forked from: its name if the store has that query, else the recorded id."""
    parent_epoch: int | None = None
    """The last epoch that it shares with its parent."""


@dataclass(frozen=True)
class CapturedVersion:
    """A version of a pipeline's flow, among all versions of it that the store has."""

    number: int
    name: str
    names: tuple[str, ...]
    """The histories of all versions, the oldest first."""

    @property
    def before(self) -> str | None:
        """The history of the version before; None for the oldest one."""
        at = self.names.index(self.name)
        return self.names[at - 1] if at else None

    @property
    def after(self) -> str | None:
        """The history of the version that a full refresh has started; None for the newest one."""
        return next(iter(self.names[self.names.index(self.name) + 1 :]), None)

    def __str__(self) -> str:
        """Return the version and those beside it in words; empty if it is the only one.

        Example:
            >>> str(CapturedVersion(1, "seen_v1", ("seen", "seen_v1", "seen_v2")))
            'version 1, after seen, replaced by seen_v2'
        """
        if len(self.names) == 1:
            return ""
        beside = [self.before and f"after {self.before}", self.after and f"replaced by {self.after}"]
        return ", ".join([f"version {self.number}", *filter(None, beside)])


@dataclass(frozen=True)
class NewQuery:
    """A query that is to be registered."""

    name: str
    query_id: str
    checkpoint: str
    forked_from: ForkRecord | None = None

    @property
    def application(self) -> str:
        """The transaction identifier of its name.

        Names that differ only in case share it: they would share a folder on some disks, and an SQL name.
        """
        return f"name/{self.name.casefold()}"

    def row(self) -> dict[str, object]:
        """Return its row of the table."""
        return {
            "name": self.name,
            "query_id": self.query_id,
            "checkpoint": self.checkpoint,
            "parent": self.forked_from.parent_id if self.forked_from else None,
            "parent_epoch": self.forked_from.epoch if self.forked_from else None,
            "created_at": datetime.now(UTC),
            "format": FORMAT,
        }


def registered(layout: Layout) -> dict[str, Branch]:
    """Return the store's queries by name; empty if the store does not exist yet."""
    table = open_table(layout.queries)
    return {} if table is None else read_queries(table, layout)


def require_store(layout: Layout) -> DeltaTable:
    """Return the table of queries of a store, which has to exist."""
    table = open_table(layout.queries)
    if table is None:
        local = local_path(layout.root)
        found = "the path does not exist" if local is not None and not local.exists() else "it has no _queries table"
        raise NotAStoreError(
            f"{layout.root} is not a store: {found}.\n"
            "A store is the folder given to "
            + worded("Checkpoint.capture, Checkpoint.follow or %%stream --store.", command="streamstate capture.")
        )
    read_queries(table, layout)
    return table


def required_query(layout: Layout, name: str) -> Branch:
    """Return a query of a store; both have to exist."""
    known = read_queries(require_store(layout), layout)
    kind, _, variable = name.partition(".")
    if kind == SHARED and is_name(variable) and open_table(layout.manifest(name)) is not None:
        return Branch(name, f"variable/{variable}", "")
    if name not in known:
        raise UnknownQueryError.among("query", name, known, where=f"in {layout.root}")
    return known[name]


def register(layout: Layout, name: str, query_id: str, checkpoint: str, forked_from: ForkRecord | None = None) -> None:
    """Register a name for a query. Registering it again for the same query changes nothing."""
    refused = register_all(layout, [NewQuery(name, query_id, checkpoint, forked_from)])
    if refused:
        raise refused[query_id]


def register_all(layout: Layout, queries: Sequence[NewQuery]) -> dict[str, NameTakenError]:
    """Register names for several queries, in one commit. Returns by query id the errors of those that are refused."""
    known, refused = check_store(layout), dict[str, NameTakenError]()
    for query in queries:
        if (clash := _clash(layout, known, query)) is not None:
            refused[query.query_id] = clash
        else:
            known[query.name] = Branch(query.name, query.query_id, query.checkpoint)
    free = [query for query in queries if query.query_id not in refused]
    _create(layout)
    while free:
        free = _committed(layout, free)
    registered_now = registered(layout)
    clashes = {query.query_id: _clash(layout, registered_now, query) for query in queries}
    return refused | {query_id: clash for query_id, clash in clashes.items() if clash is not None}


def _committed(layout: Layout, queries: Sequence[NewQuery]) -> list[NewQuery]:
    """Commit the first of some queries and as many others as lack a name; return those that another process named."""
    marks: dict[str, int] = {}

    def rows(table: DeltaTable) -> pa.Table:
        new = [query for query in queries if version_of(table, query.application) < 1]
        marks.update({query.application: 1 for query in new[1:]})
        return pa.Table.from_pylist([query.row() for query in new], schema=QUERIES)

    def write(table: DeltaTable, _version: int) -> list[DataFile]:
        marks.clear()
        return write_file(layout.queries, pa.schema(table.schema().to_arrow()), rows(table))

    commit_once(layout.queries, queries[0].application, 1, write, marks=marks)
    return [query for query in queries[1:] if query.application not in marks]


def make_store(layout: Layout) -> None:
    """Create a store without queries, unless there is one.

    Raises:
        NotAStoreError: there is none, and the place is that of a checkpoint.
    """
    check_store(layout)
    _create(layout)


def _create(layout: Layout) -> None:
    open_or_create(layout.queries, QUERIES, "streamstate: the queries of this store")


def check_store(layout: Layout) -> dict[str, Branch]:
    """Return the queries of a store, or of a path that can become one. Writes nothing.

    Raises:
        NotAStoreError: the path is a file; or there is no store yet, and it is at, in or above a query's checkpoint.
    """
    local = local_path(layout.root)
    if local is not None and local.is_file():
        raise NotAStoreError(f"{layout.root} is a file. A store is a folder: pass a new folder, or an existing store.")
    table = open_table(layout.queries)
    if table is None:
        check_outside(layout.root, layout.options)
        return {}
    return read_queries(table, layout)


def check_name_free(layout: Layout, name: str, query_id: str | None, checkpoint: str) -> None:
    """Raise if a query (without an id if it was never started) cannot be registered under a name. Writes nothing."""
    clash = _clash(layout, check_store(layout), NewQuery(name, query_id or "", checkpoint))
    if clash is not None:
        raise clash


def _clash(layout: Layout, known: Mapping[str, Branch], new: NewQuery) -> NameTakenError | None:
    """Return an error if another query has the name of a new one."""
    for query in known.values():
        if query.name.casefold() != new.name.casefold() or (query.name == new.name and query.query_id == new.query_id):
            continue
        whose = f"whose checkpoint is {query.checkpoint}"
        if query.checkpoint == new.checkpoint:
            whose = f"whose checkpoint, {new.checkpoint}, was deleted or replaced"
        return NameTakenError(
            f"The name {query.name!r} belongs to another query in {layout.root}, {whose}.\n"
            f"Give this query another name (taken: {choices(known)}), or use another store."
        )
    return None


def name_of(layout: Layout, query_id: str) -> str | None:
    """Return the name under which the store already has a query, if any."""
    return next((query.name for query in registered(layout).values() if query.query_id == query_id), None)


def read_queries(table: DeltaTable, layout: Layout) -> dict[str, Branch]:
    """Return the queries of a version of the table, by name and sorted."""
    fields = ["name", "query_id", "checkpoint", "parent", "parent_epoch"]
    rows = TableVersion(layout.queries, table).read("format", columns=[*fields, "format"]).to_pylist()
    newest = max((row["format"] for row in rows), default=FORMAT)
    if newest > FORMAT:
        raise NewerStoreError(
            f"{layout.root} was written by a newer version of streamstate (store format {newest}; this one reads up to "
            f"{FORMAT}).\nUpgrade streamstate."
        )
    for row in rows:
        # It will be joined to the store's path.
        if not is_name(row["name"]):
            raise UntrustedStoreError.name(layout.queries, "query", row["name"])
    names = {row["query_id"]: row["name"] for row in rows}
    branches = (Branch(**{name: row[name] for name in fields}) for row in sorted(rows, key=lambda row: row["name"]))
    return {branch.name: replace(branch, parent=names.get(branch.parent, branch.parent)) for branch in branches}


def flow_versions(branches: Iterable[Branch]) -> dict[str, CapturedVersion]:
    """Return, by name, the queries that are versions of a pipeline's flow."""
    flows: dict[str, dict[int, str]] = {}
    for branch in branches:
        if (flow := flow_version(branch.checkpoint)) is not None:
            flows.setdefault(flow.folder, {})[flow.version] = branch.name
    return {
        name: CapturedVersion(number, name, tuple(versions[each] for each in sorted(versions)))
        for versions in flows.values()
        for number, name in versions.items()
    }


@dataclass(frozen=True)
class ForkPoint:
    """The point at which a fork leaves its parent.

    Attributes:
        name: the fork.
        parent: the query it was forked from.
        epoch: the last epoch that both share.
    """

    name: str
    parent: str
    epoch: int


class Lineage:
    """A store's table of queries, read again only after it has changed. Safe from any thread."""

    def __init__(self, layout: Layout, table: DeltaTable | None = None) -> None:
        self._layout = layout
        self._table = table
        self._known: tuple[Branch, ...] | None = None
        self._lock = threading.Lock()

    def branches(self) -> tuple[Branch, ...]:
        """Return all queries, sorted by name. Returns the same object until something changes."""
        return read_once(self, self._read)

    def branch(self, name: str) -> Branch | None:
        """One query; None if the store has no query of that name."""
        return next((branch for branch in self.branches() if branch.name == name), None)

    def forks(self, name: str) -> list[ForkPoint]:
        """Return the forks of a query and, if it is a fork itself, its own fork point; sorted by the fork's name."""
        return [
            ForkPoint(branch.name, branch.parent, branch.parent_epoch)
            for branch in self.branches()
            if branch.parent is not None and branch.parent_epoch is not None and name in (branch.name, branch.parent)
        ]

    def versions(self, name: str) -> list[str]:
        """Return the names of all versions of a pipeline's flow, the oldest first; just the name of any other query."""
        version = self.version(name)
        return [name] if version is None else [*version.names]

    def version(self, name: str) -> CapturedVersion | None:
        """Return the version of a pipeline's flow that a query is; None for any other query."""
        return flow_versions(self.branches()).get(name)

    def _read(self) -> tuple[Branch, ...]:
        with self._lock:
            if self._table is None:
                self._table = open_table(self._layout.queries)
                changed = True
            else:
                changed = update(self._layout.queries, self._table)
            if self._known is None or changed:
                self._known = () if self._table is None else tuple(read_queries(self._table, self._layout).values())
            return self._known
