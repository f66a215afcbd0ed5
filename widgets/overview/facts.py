"""What an overview says of each query of a store: read from manifests and Delta's file lists, never from state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from streamstate.snapshots.errors import StreamStateError

if TYPE_CHECKING:
    from streamstate.snapshots.delta.sizes import TableSize
    from streamstate.snapshots.lineage import Kin
    from streamstate.snapshots.manifest import Entry
    from streamstate.state_inspect import Store

__all__ = ["QueryFacts", "StoreFacts", "TableFacts"]


@dataclass(frozen=True)
class TableFacts:
    """One state table: its rows in the newest epoch, and what its change log takes on disk."""

    name: str
    rows: int = 0
    bytes: int = 0
    files: int = 0


@dataclass(frozen=True)
class QueryFacts:
    """One query.

    Attributes:
        name: its name.
        checkpoint: where it keeps its state.
        parent: the query that it was forked from.
        parent_epoch: the last epoch that both share.
        depth: how many forks lie between it and a query that is none.
        captured: epochs captured.
        gaps: epochs that Spark had purged before.
        epoch: the newest captured epoch.
        committed: when that was.
        lag: seconds from there to when it was captured.
        tables: its state tables.
        bytes: what its tables take on disk, the manifest among them.
        problem: why it cannot be read; all else is then as far as it could be.
    """

    name: str
    checkpoint: str = ""
    parent: str | None = None
    parent_epoch: int | None = None
    depth: int = 0
    captured: int = 0
    gaps: int = 0
    epoch: int | None = None
    committed: datetime | None = None
    lag: float | None = None
    tables: Sequence[TableFacts] = field(default_factory=tuple)
    bytes: int = 0
    problem: str = ""

    @property
    def rows(self) -> int:
        """Rows of state in the newest epoch, of all tables."""
        return sum(table.rows for table in self.tables)


class StoreFacts:
    """Reads the facts of a store, each query's again only when its manifest has changed. One thread at a time."""

    def __init__(self, store: Store) -> None:
        from streamstate.snapshots.lineage import Lineage

        self._store = store
        self._lineage = Lineage(store.layout)
        self._known: dict[str, tuple[object, QueryFacts]] = {}
        self._sizes: dict[tuple[str, str], TableSize] = {}

    def state(self) -> object:
        """Equal as long as no query has new epochs and there are the same queries; errors are part of it."""
        kin = self._lineage.queries()
        return kin, tuple(_state(self._entries(one.name)) for one in kin)

    def queries(self) -> list[QueryFacts]:
        """All queries, forks below what they were forked from.

        Raises:
            DamagedStoreError, StoreError: where the table of queries itself cannot be read.
        """
        return [self._query(kin, depth) for kin, depth in as_tree(self._lineage.queries())]

    def _query(self, kin: Kin, depth: int) -> QueryFacts:
        entries = self._entries(kin.name)
        state = (kin, depth, _state(entries))
        known = self._known.get(kin.name)
        if known is None or known[0] != state or known[1].problem:
            self._known[kin.name] = known = state, self._read(kin, depth, entries)
        return known[1]

    def _entries(self, name: str) -> Sequence[Entry] | str:
        """A query's manifest, or why it cannot be read."""
        try:
            return self._store[name].entries()
        except (StreamStateError, OSError) as problem:
            return f"{problem}"

    def _read(self, kin: Kin, depth: int, entries: Sequence[Entry] | str) -> QueryFacts:
        if isinstance(entries, str):
            return QueryFacts(kin.name, kin.checkpoint, kin.parent, kin.parent_epoch, depth, problem=entries)
        newest = next((entry for entry in reversed(entries) if entry.captured), None)
        captured = sum(entry.captured for entry in entries)
        tables, more, problem = self._tables(kin.name, entries, newest)
        return QueryFacts(
            kin.name,
            kin.checkpoint,
            kin.parent,
            kin.parent_epoch,
            depth,
            captured,
            len(entries) - captured,
            newest.epoch if newest else None,
            newest.committed_at if newest else None,
            (newest.captured_at - newest.committed_at).total_seconds() if newest and newest.committed_at else None,
            tables,
            sum(table.bytes for table in tables) + more,
            problem,
        )

    def _tables(self, query: str, entries: Sequence[Entry], newest: Entry | None) -> tuple[list[TableFacts], int, str]:
        """The state tables, the manifest's bytes, and what could not be read."""
        names = list(dict.fromkeys(name for entry in entries for name in entry.tables))
        live = newest.tables if newest else {}
        found, problem, more = [], "", 0
        try:
            more = self._size(query, None)[0] if entries else 0
        except (StreamStateError, OSError) as failed:
            problem = f"{failed}"
        for name in names:
            size = (0, 0)
            try:
                size = self._size(query, name)
            except (StreamStateError, OSError) as failed:
                problem = problem or f"{failed}"
            found.append(TableFacts(name, live[name].rows if name in live else 0, *size))
        return found, more, problem

    def _size(self, query: str, table: str | None) -> tuple[int, int]:
        """Bytes and files of a state table, or of the manifest."""
        from streamstate.snapshots.delta.sizes import TableSize

        layout = self._store.layout
        known = self._sizes.get((query, table or ""))
        if known is None:
            place = layout.change_log(query, table) if table else layout.manifest(query)
            self._sizes[query, table or ""] = known = TableSize(place)
        size = known.now()
        return size.bytes, size.files


def as_tree(found: Sequence[Kin]) -> list[tuple[Kin, int]]:
    """Queries by name, each fork below its parent by the epoch it was forked at, with how deep it lies.

    A parent that is not in the store, or that is among its own forks, makes a query one that stands alone.
    """
    below: dict[str | None, list[Kin]] = {}
    names = {kin.name for kin in found}
    for kin in sorted(found, key=lambda one: (one.parent_epoch or 0, one.name)):
        below.setdefault(kin.parent if kin.parent in names else None, []).append(kin)
    tree: list[tuple[Kin, int]] = []
    placed: set[str] = set()

    def place(kin: Kin, depth: int) -> None:
        if kin.name in placed:
            return
        placed.add(kin.name)
        tree.append((kin, depth))
        for fork in below.get(kin.name, []):
            place(fork, depth + 1)

    for kin in sorted(below.get(None, []), key=lambda one: one.name):
        place(kin, 0)
    for kin in found:
        place(kin, 0)
    return tree


def _state(entries: Sequence[Entry] | str) -> object:
    if isinstance(entries, str) or not entries:
        return entries if isinstance(entries, str) else None
    return len(entries), entries[0].epoch, entries[-1].epoch, entries[-1].generation
