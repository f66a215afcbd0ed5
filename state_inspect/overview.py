"""The facts about each query of a store, read from manifests and Delta's file lists.

State is read only to count the rows of the queries that are shown, where capture did not, and where that is soon done.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from streamstate.errors import StreamStateError
from streamstate.snapshots.store.delta.commits import Handle
from streamstate.snapshots.store.delta.place import Place
from streamstate.snapshots.store.entries import Entry, TableEntry
from streamstate.snapshots.store.registry import flow_versions
from streamstate.state_inspect.advice.advise import advice_on, local_checkpoint
from streamstate.state_inspect.unix_time import begun

if TYPE_CHECKING:
    from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
    from streamstate.snapshots.store.layout import Layout
    from streamstate.snapshots.store.registry import Branch, CapturedVersion
    from streamstate.state_inspect.history import History

_AT_ONCE = 4
"""Manifests that are read at the same time."""
_FEW = 50
"""Of so many queries state is read to count rows and to find advice; of more that would take long."""
_NEWEST = 10
"""The newest epochs whose changes are counted."""
_COLUMNS = {
    "query": "object",
    "parent": "object",
    "version": "Int64",
    "replaced_by": "object",
    "state": "object",
    "captured": "int64",
    "gaps": "int64",
    "epoch": "Int64",
    "committed_at": "datetime64[us, UTC]",
    "watermark": "datetime64[us, UTC]",
    "watermark_lag": "timedelta64[us]",
    "lag": "timedelta64[us]",
    "backlog": "Int64",
    "rows": "Int64",
    "changes": "Int64",
    "bytes": "int64",
    "advice": "object",
}


@dataclass(frozen=True)
class Size:
    """The size of the data files of a table's newest version.

    Delta's own log, and files that only older versions have and that will be swept, are not counted.
    """

    bytes: int = 0
    files: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(self.bytes + other.bytes, self.files + other.files)


class TableSize:
    """The size of one table, computed once per version. Any thread may use it."""

    def __init__(self, place: Place) -> None:
        self._handle = Handle(place)
        self._version = -1
        self._size = Size()
        self._lock = threading.Lock()

    def now(self) -> Size:
        """Return the size of the newest version.

        Raises:
            DamagedStoreError, StoreError: the table does not exist, or its log cannot be read.

        Example:
            >>> TableSize(store.layout.changelog("delays", "op0")).now()
            Size(bytes=..., files=...)
        """
        with self._lock:
            table = self._handle.newest()
            if table.version() != self._version:
                actions = pa.table(table.get_add_actions(flatten=True))
                self._size = Size(pc.sum(actions["size_bytes"]).as_py() or 0, actions.num_rows)
                self._version = table.version()
            return self._size


@dataclass(frozen=True)
class TableFacts:
    """A state table: its rows in the newest epoch (None: not counted), and the size of its changelog on disk."""

    name: str
    rows: int | None = 0
    bytes: int = 0
    files: int = 0


@dataclass(frozen=True)
class QueryFacts:
    """A query: how many epochs and gaps it has, its newest captured epoch with its commit time, and its tables."""

    branch: Branch
    depth: int = 0
    """Its depth in the tree of forks; 0 for a query that is not a fork."""
    version: CapturedVersion | None = None
    """The version of a pipeline's flow that it is."""
    captured: int = 0
    gaps: int = 0
    epoch: int | None = None
    committed: datetime | None = None
    watermark: datetime | None = None
    """The watermark of the newest epoch."""
    lag: float | None = None
    """Seconds from the commit of the newest epoch to its capture."""
    changes: int | None = None
    """Rows of state that an epoch changed, the mean of the newest ten."""
    backlog: int | None = None
    """Committed epochs that are not captured; None if the checkpoint is not on this machine."""
    advice: Sequence[str] = ()
    """What will grow, waits or is stuck, where that has been looked at."""
    tables: Sequence[TableFacts] = ()
    bytes: int = 0
    """The size of its tables on disk, including the manifest."""
    problem: str = ""
    """Why the query cannot be read; the other fields then hold what could be read."""

    @property
    def name(self) -> str:
        """Its name."""
        return self.branch.name

    @property
    def watermark_lag(self) -> timedelta | None:
        """The time from the watermark of the newest epoch to its commit; None if there is no watermark."""
        return None if self.committed is None or begun(self.watermark) is None else self.committed - self.watermark  # type: ignore[operator]  # begun() has seen it

    @property
    def trouble(self) -> tuple[bool, int, bool]:
        """How much the query needs a look: it cannot be read, its capture is behind, there is advice."""
        return bool(self.problem), self.backlog or 0, bool(self.advice)

    @property
    def rows(self) -> int | None:
        """The rows of all state tables in the newest epoch; None if those of a table are not counted."""
        known = [table.rows for table in self.tables if table.rows is not None]
        return sum(known) if len(known) == len(self.tables) else None


class Histories(Protocol):
    """The part of :class:`Store` that is read here."""

    @property
    def layout(self) -> Layout:
        """The location of its tables."""

    def __getitem__(self, name: str, /) -> History:
        """One query's history."""


@dataclass
class KnownFacts:
    """What has been read of a store's queries, to be read again only where it has changed."""

    queries: dict[str, tuple[object, QueryFacts]] = field(default_factory=dict)
    sizes: dict[tuple[str, str | None], TableSize] = field(default_factory=dict)
    advice: dict[str, tuple[object, Sequence[str]]] = field(default_factory=dict)
    checkpoints: dict[Branch, CheckpointFiles | None] = field(default_factory=dict)


class StoreFacts:
    """Reads the facts of a store; those of a query only when its manifest has changed. Not thread-safe."""

    def __init__(self, store: Histories, known: KnownFacts | None = None) -> None:
        from streamstate.snapshots.store.registry import Lineage

        self._store = store
        self._lineage = Lineage(store.layout)
        self._known = KnownFacts() if known is None else known

    def state(self) -> object:
        """Return a value that stays equal until there are new queries, epochs or errors."""
        branches = self._lineage.branches()
        self._read_manifests(branches)
        entries = [(branch, self._entries(branch.name)) for branch in branches]
        return branches, tuple((_state(found), self._backlog(branch, found)) for branch, found in entries)

    def queries(self) -> list[QueryFacts]:
        """Return all queries, those that need a look first, each fork below its parent."""
        branches = self._lineage.branches()
        self._read_manifests(branches)
        versions = flow_versions(branches)
        facts = {branch.name: replace(self._query(branch), version=versions.get(branch.name)) for branch in branches}
        return _ordered(facts)

    def listed(self, *, advised: bool = False) -> list[QueryFacts]:
        """Return all queries as :meth:`queries`; if they are few, with the rows of their state."""
        queries = self.queries()
        few = len(queries) <= _FEW
        found = {query.name: self.counted(query) if few else query for query in queries}
        if advised:
            found = {name: self.advised(query, reads_state=few) for name, query in found.items()}
        return _ordered(found)

    def advised(self, query: QueryFacts, *, reads_state: bool = True) -> QueryFacts:
        """Return a query with the advice on it, all of it or that for which no state has to be read."""
        if query.epoch is None or query.problem:
            return query
        state = (_state(self._entries(query.name)), reads_state)
        known = self._known.advice.get(query.name)
        if known is None or known[0] != state:
            history = self._store[query.name]
            advice = history.advise() if reads_state else advice_on(history.recorded, lambda _table: False)
            found = [f"{one}" for one in advice]
            self._known.advice[query.name] = known = state, found
        return replace(query, advice=known[1])

    def _read_manifests(self, branches: Sequence[Branch]) -> None:
        """Read the manifests that have not been read yet, several at a time."""
        new = [branch.name for branch in branches if branch.name not in self._known.queries]
        if len(new) > _AT_ONCE:
            with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="streamstate-overview") as threads:
                list(threads.map(self._entries, new))

    def _backlog(self, branch: Branch, entries: Sequence[Entry] | str) -> int | None:
        """Return how many committed epochs a query's checkpoint has after the newest one in the store."""
        known = self._known.checkpoints
        if branch not in known:
            known[branch] = local_checkpoint(branch)
        checkpoint = known[branch]
        if checkpoint is None or isinstance(entries, str):
            return None
        newest = entries[-1].epoch if entries else -1
        try:
            return sum(epoch > newest for epoch in checkpoint.committed())
        except OSError:
            return None

    def counted(self, query: QueryFacts) -> QueryFacts:
        """Return a query with the rows of its state, if they are quick to count."""
        if query.rows is not None or query.problem or query.epoch is None:
            return query
        rows = self._store[query.name].recorded.newest_rows()
        tables = [replace(table, rows=rows.get(table.name, table.rows)) for table in query.tables]
        return replace(query, tables=tables)

    def _query(self, branch: Branch) -> QueryFacts:
        entries = self._entries(branch.name)
        state = (branch, _state(entries))
        known = self._known.queries.get(branch.name)
        if known is None or known[0] != state or known[1].problem:
            self._known.queries[branch.name] = known = state, self._read(branch, entries)
        facts = known[1]
        if facts.rows is None:  # they may have been counted since
            rows = {name: table.rows for name, table in self._newest(branch.name, entries).items()}
            facts = replace(facts, tables=[replace(table, rows=rows.get(table.name, 0)) for table in facts.tables])
        return replace(facts, backlog=self._backlog(branch, entries))

    def _newest(self, query: str, entries: Sequence[Entry] | str) -> Mapping[str, TableEntry]:
        """Return the state tables at the newest captured epoch, with their rows if they are counted."""
        captured = (entry for entry in reversed(entries) if isinstance(entry, Entry) and entry.captured)
        newest = next(captured, None)
        return {} if newest is None else self._store[query].recorded.with_counts([newest])[0].tables

    def _entries(self, name: str) -> Sequence[Entry] | str:
        """Return a query's manifest, or the reason why it cannot be read."""
        try:
            return self._store[name].recorded.entries()
        except (StreamStateError, OSError) as problem:
            return f"{problem}"

    def _read(self, branch: Branch, entries: Sequence[Entry] | str) -> QueryFacts:
        if isinstance(entries, str):
            return QueryFacts(branch, problem=entries)
        newest = next((entry for entry in reversed(entries) if entry.captured), None)
        captured = sum(entry.captured for entry in entries)
        tables, more, problem = self._tables(branch.name, entries)
        lag = (newest.captured_at - newest.committed_at).total_seconds() if newest and newest.committed_at else None
        return QueryFacts(
            branch,
            captured=captured,
            gaps=len(entries) - captured,
            epoch=newest.epoch if newest else None,
            committed=newest.committed_at if newest else None,
            watermark=newest.watermark if newest else None,
            lag=lag,
            changes=_mean_changes(entries),
            tables=tables,
            bytes=sum(table.bytes for table in tables) + more,
            problem=problem,
        )

    def _tables(self, query: str, entries: Sequence[Entry]) -> tuple[list[TableFacts], int, str]:
        """Return the state tables, the manifest's size, and the reason if something cannot be read."""
        live = self._newest(query, entries)
        found = []
        more, _, problem = self._size(query, None) if entries else (0, 0, "")
        for name in dict.fromkeys(name for entry in entries for name in entry.tables):
            size, files, failed = self._size(query, name)
            found.append(TableFacts(name, live[name].rows if name in live else 0, size, files))
            problem = problem or failed
        return found, more, problem

    def _size(self, query: str, table: str | None) -> tuple[int, int, str]:
        """Bytes and files of a state table, or of the manifest if ``table`` is None; and why they cannot be read."""
        layout = self._store.layout
        try:
            known = self._known.sizes.get((query, table))
            if known is None:
                place = layout.changelog(query, table) if table else layout.manifest(query)
                self._known.sizes[query, table] = known = TableSize(place)
            size = known.now()
        except (StreamStateError, OSError) as failed:
            return 0, 0, f"{failed}"
        return size.bytes, size.files, ""


def overview_frame(store: Histories, known: KnownFacts) -> pd.DataFrame:
    """Return one row per query; see :meth:`Store.overview`."""
    facts = StoreFacts(store, known)
    rows = [_overview_row(query) for query in facts.listed(advised=True)]
    return pd.DataFrame(rows, columns=pd.Index(list(_COLUMNS))).astype(_COLUMNS)


def _overview_row(query: QueryFacts) -> tuple[object, ...]:
    readable = query.epoch is not None and not query.problem
    return (
        query.name,
        query.branch.parent,
        None if query.version is None else query.version.number,
        None if query.version is None else query.version.after,
        query.problem or ("captured" if readable else "empty"),
        query.captured,
        query.gaps,
        query.epoch,
        query.committed,
        query.watermark,
        query.watermark_lag,
        None if query.lag is None else timedelta(seconds=query.lag),
        query.backlog,
        query.rows,
        query.changes,
        query.bytes,
        [*query.advice],
    )


def _mean_changes(entries: Sequence[Entry]) -> int | None:
    """Return how many rows of state the newest epochs changed, on average."""
    changes = [sum(table.changes for table in entry.tables.values()) for entry in entries[-_NEWEST:] if entry.captured]
    return round(sum(changes) / len(changes)) if changes else None


def _ordered(facts: Mapping[str, QueryFacts]) -> list[QueryFacts]:
    """Return queries, those that need a look first, each fork below its parent."""
    tree = as_tree([query.branch for query in facts.values()])
    whole: list[list[QueryFacts]] = []
    for branch, depth in tree:
        if not depth:
            whole.append([])
        whole[-1].append(replace(facts[branch.name], depth=depth))
    # A fork in trouble takes its parent with it.
    whole.sort(key=lambda queries: max(query.trouble for query in queries), reverse=True)
    return [query for queries in whole for query in queries]


def as_tree(found: Sequence[Branch]) -> list[tuple[Branch, int]]:
    """Queries by name, each fork below its parent in the order of the epochs, with their depths.

    A query whose parent is missing, or is one of its own forks, counts as not forked.
    """
    below: dict[str | None, list[Branch]] = {}
    names = {branch.name for branch in found}
    for branch in sorted(found, key=lambda branch: (branch.parent_epoch or 0, branch.name)):
        below.setdefault(branch.parent if branch.parent in names else None, []).append(branch)
    tree: list[tuple[Branch, int]] = []
    placed: set[str] = set()

    def place(branch: Branch, depth: int) -> None:
        if branch.name in placed:
            return
        placed.add(branch.name)
        tree.append((branch, depth))
        for fork in below.get(branch.name, []):
            place(fork, depth + 1)

    for branch in sorted(below.get(None, []), key=lambda branch: branch.name):
        place(branch, 0)
    for branch in found:
        place(branch, 0)
    return tree


def _state(entries: Sequence[Entry] | str) -> object:
    if isinstance(entries, str) or not entries:
        return entries if isinstance(entries, str) else None
    return len(entries), entries[0].epoch, entries[-1].epoch, entries[-1].generation
