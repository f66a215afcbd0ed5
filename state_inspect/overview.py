"""The facts about each query of a store, read from manifests and Delta's file lists.

State is read only to count the rows of the queries that are shown, where capture did not, and where that is soon done.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from streamstate.errors import StreamStateError
from streamstate.snapshots.store.delta.commits import Handle
from streamstate.snapshots.store.delta.place import Place

if TYPE_CHECKING:
    from streamstate.snapshots.store.entries import Entry
    from streamstate.snapshots.store.layout import Layout
    from streamstate.snapshots.store.registry import Branch
    from streamstate.state_inspect.history import History

_COLUMNS = {
    "query": "object",
    "parent": "object",
    "state": "object",
    "captured": "int64",
    "gaps": "int64",
    "epoch": "Int64",
    "committed_at": "datetime64[us, UTC]",
    "watermark": "datetime64[us, UTC]",
    "lag": "timedelta64[us]",
    "rows": "Int64",
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
    captured: int = 0
    gaps: int = 0
    epoch: int | None = None
    committed: datetime | None = None
    watermark: datetime | None = None
    """The watermark of the newest epoch."""
    lag: float | None = None
    """Seconds from the commit of the newest epoch to its capture."""
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


class StoreFacts:
    """Reads the facts of a store; those of a query only when its manifest has changed. Not thread-safe."""

    def __init__(self, store: Histories) -> None:
        from streamstate.snapshots.store.registry import Lineage

        self._store = store
        self._lineage = Lineage(store.layout)
        self._known: dict[str, tuple[object, QueryFacts]] = {}
        self._sizes: dict[tuple[str, str | None], TableSize] = {}

    def state(self) -> object:
        """Return a value that stays equal until there are new queries, epochs or errors."""
        branches = self._lineage.branches()
        return branches, tuple(_state(self._entries(branch.name)) for branch in branches)

    def queries(self) -> list[QueryFacts]:
        """Return all queries, each fork below its parent."""
        return [self._query(branch, depth) for branch, depth in as_tree(self._lineage.branches())]

    def counted(self, query: QueryFacts) -> QueryFacts:
        """Return a query with the rows of its state, if they are quick to count."""
        if query.rows is not None or query.problem or query.epoch is None:
            return query
        rows = self._store[query.name].recorded.newest_rows()
        tables = [replace(table, rows=rows.get(table.name, table.rows)) for table in query.tables]
        return replace(query, tables=tables)

    def _query(self, branch: Branch, depth: int) -> QueryFacts:
        entries = self._entries(branch.name)
        state = (branch, depth, _state(entries))
        known = self._known.get(branch.name)
        if known is None or known[0] != state or known[1].problem or known[1].rows is None:
            self._known[branch.name] = known = state, self._read(branch, depth, entries)
        return known[1]

    def _entries(self, name: str) -> Sequence[Entry] | str:
        """Return a query's manifest, or the reason why it cannot be read."""
        try:
            return self._store[name].recorded.entries()
        except (StreamStateError, OSError) as problem:
            return f"{problem}"

    def _read(self, branch: Branch, depth: int, entries: Sequence[Entry] | str) -> QueryFacts:
        if isinstance(entries, str):
            return QueryFacts(branch, depth, problem=entries)
        newest = next((entry for entry in reversed(entries) if entry.captured), None)
        captured = sum(entry.captured for entry in entries)
        tables, more, problem = self._tables(branch.name, entries, newest)
        return QueryFacts(
            branch,
            depth,
            captured,
            len(entries) - captured,
            newest.epoch if newest else None,
            newest.committed_at if newest else None,
            newest.watermark if newest else None,
            (newest.captured_at - newest.committed_at).total_seconds() if newest and newest.committed_at else None,
            tables,
            sum(table.bytes for table in tables) + more,
            problem,
        )

    def _tables(self, query: str, entries: Sequence[Entry], newest: Entry | None) -> tuple[list[TableFacts], int, str]:
        """Return the state tables, the manifest's size, and the reason if something cannot be read."""
        live = self._store[query].recorded.with_counts([newest])[0].tables if newest else {}
        found = []
        more, _, problem = self._size(query, None) if entries else (0, 0, "")
        for name in dict.fromkeys(name for entry in entries for name in entry.tables):
            size, files, failed = self._size(query, name)
            found.append(TableFacts(name, live[name].rows if name in live else 0, size, files))
            problem = problem or failed
        return found, more, problem

    def _size(self, query: str, table: str | None) -> tuple[int, int, str]:
        """Bytes and files of a state table, or of the manifest if ``table`` is None; and why they cannot be read."""
        from streamstate.state_inspect.overview import TableSize

        layout = self._store.layout
        try:
            known = self._sizes.get((query, table))
            if known is None:
                place = layout.changelog(query, table) if table else layout.manifest(query)
                self._sizes[query, table] = known = TableSize(place)
            size = known.now()
        except (StreamStateError, OSError) as failed:
            return 0, 0, f"{failed}"
        return size.bytes, size.files, ""


def overview_frame(store: Histories) -> pd.DataFrame:
    """Return one row per query; see :meth:`Store.overview`."""
    facts = StoreFacts(store)
    rows = [_overview_row(store, facts.counted(query)) for query in facts.queries()]
    return pd.DataFrame(rows, columns=pd.Index(list(_COLUMNS))).astype(_COLUMNS)


def _overview_row(store: Histories, query: QueryFacts) -> tuple[object, ...]:
    readable = query.epoch is not None and not query.problem
    return (
        query.name,
        query.branch.parent,
        query.problem or ("captured" if readable else "empty"),
        query.captured,
        query.gaps,
        query.epoch,
        query.committed,
        query.watermark,
        None if query.lag is None else timedelta(seconds=query.lag),
        query.rows,
        query.bytes,
        [str(advice) for advice in store[query.name].advise()] if readable else [],
    )


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
