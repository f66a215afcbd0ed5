"""The manifest: which epochs exist. An epoch becomes visible when its row is committed here, and not before."""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from streamstate.errors import DamagedStoreError, EpochDroppedError, UntrustedStoreError
from streamstate.snapshots.delta import commit_once, open_or_create
from streamstate.snapshots.delta.commits import Handle, required, version_of
from streamstate.snapshots.delta.data_files import DataFile, write_file
from streamstate.snapshots.delta.place import Place
from streamstate.snapshots.delta.reading import TableVersion
from streamstate.snapshots.layout import CAPTURED, GAP, MANIFEST, RETENTION, Layout
from streamstate.snapshots.names import is_base_name

_SHARED = ("status", "run_id", "time_source", "mode")


# A long history holds many of these and of the next: slots, and one copy of each name, keep them small.
@dataclass(frozen=True, slots=True)
class TableEntry:
    """What the manifest says of one state table at one epoch."""

    rows: int | None
    """Live rows at the epoch; None if capture has not counted them, because it only read what changed."""
    changes: int
    """Rows that the epoch itself added to the changelog, without keyframe rows."""
    keyframe: int | None
    """The keyframe from which reading the epoch starts; None: it starts from the log's beginning."""
    generation: int | None = field(default=None, compare=False)
    """How many runs of retention the manifest that says so had been through; a log that has been through more may
    lack the keyframe. None if this is not in a manifest yet."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the manifest."""

    epoch: int
    status: str
    run_id: str | None = None
    committed_at: datetime | None = None
    captured_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    offsets: str | None = None
    watermark: datetime | None = None
    input_rows: int | None = None
    tables: dict[str, TableEntry] = field(default_factory=dict)
    sources: str | None = None
    """What is known of each source beside its offset, as JSON (see ``sources``). None if Spark had purged it, or if
    the store is older than the column."""
    began_at: datetime | None = None
    """When Spark planned the epoch's batch, which is its processing time; None as for ``sources``."""
    time_source: str | None = None
    """Where ``committed_at`` comes from: ``commit`` or ``offsets`` (see ``commit_times``); None in older stores."""
    mode: str | None = None
    """``real-time`` if Spark ran the epoch in its real-time mode, as far as that shows; otherwise None."""
    generation: int = field(default=0, compare=False)
    """How many runs of retention the manifest had been through when it was read."""

    @property
    def captured(self) -> bool:
        """Whether the store has the epoch's state."""
        return self.status == CAPTURED

    @property
    def rows(self) -> int | None:
        """Live rows of all state tables; None if those of a table have not been counted."""
        counts = [table.rows for table in self.tables.values()]
        return sum(known) if len(known := [rows for rows in counts if rows is not None]) == len(counts) else None

    def counted(self, counts: Mapping[str, Mapping[int, int]]) -> Entry:
        """The entry, with rows that have been counted since, given by table and epoch."""
        found = {
            name: replace(table, rows=counts[name][self.epoch])
            for name, table in self.tables.items()
            if table.rows is None and self.epoch in counts.get(name, {})
        }
        return replace(self, tables=self.tables | found) if found else self

    @classmethod
    def gap(cls, epoch: int) -> Entry:
        """The row of an epoch that Spark purged before it was captured."""
        return cls(epoch, GAP)


class TableCounts:
    """What a manifest's entries, ascending by epoch, say of the rows of one state table."""

    def __init__(self, entries: Sequence[Entry], table: str) -> None:
        self._entries = entries
        self._table = table

    def changes_since(self, keyframe: int | None) -> int:
        """How many rows the epochs after a keyframe (None: after the last gap), up to the newest, added to the log."""
        return sum(facts.changes for facts in self._since(0 if keyframe is None else keyframe + 1))

    def counted_since(self, keyframe: int | None) -> int | None:
        """The live rows that were counted last, at a keyframe (None: after the last gap) or later; None if never."""
        return next((facts.rows for facts in self._since(keyframe or 0) if facts.rows is not None), None)

    def _since(self, first: int) -> Iterator[TableEntry]:
        """What the manifest says of the epochs from one on, unless there is a gap, newest first."""
        later = itertools.takewhile(lambda entry: entry.captured and entry.epoch >= first, reversed(self._entries))
        return (entry.tables[self._table] for entry in later if self._table in entry.tables)

    def rows_at(self, epoch: int) -> int | None:
        """How many rows live at an epoch; None if the manifest does not say."""
        at = bisect_left(self._entries, epoch, key=lambda entry: entry.epoch)
        entry = self._entries[at] if at < len(self._entries) else None
        known = entry.tables.get(self._table) if entry is not None and entry.epoch == epoch else None
        return None if known is None else known.rows

    def most(self) -> int:
        """The most rows that can live at the newest epoch: those counted last, and one for each change since."""
        changes = 0
        for entry in reversed(self._entries):
            known = entry.tables.get(self._table)
            if known is None or known.rows is not None:
                return changes + (known.rows or 0 if known else 0)
            changes += known.changes
        return changes


class Manifest:
    """A query's manifest as of its last refresh, ascending by epoch."""

    def __init__(self, layout: Layout, query: str) -> None:
        self.query = query
        """The query's name in the store."""
        self.entries: list[Entry] = []
        self.generation = 0
        """How many runs of retention the entries have been through."""
        self._place = layout.manifest(query)
        self._handle = Handle(self._place)
        self._version = -1
        self._has_all_columns = False
        self._lock = threading.RLock()  # a handle belongs to one thread

    def refresh(self) -> None:
        """Read what was added since. Any thread may call it, such as a cell's and a view's."""
        with self._lock:
            table = self._handle.if_exists()
            if table is None or table.version() == self._version:
                return
            generation = generation_of(table)
            # Retention rewrites the rows that stay, so everything is read again after it.
            known = self.entries if generation == self.generation else []
            added = read_entries(TableVersion(self._place, table), known[-1].epoch + 1 if known else 0)
            self.entries, self.generation, self._version = known + added, generation, table.version()

    @property
    def newest(self) -> Entry | None:
        """The newest captured epoch's row."""
        return next((entry for entry in reversed(self.entries) if entry.captured), None)

    def append(self, entries: list[Entry], application: str) -> None:
        """Commit epochs, which makes them visible; epochs that another capture has committed since are left out."""
        rows: pa.Table | None = None

        def write(table: DeltaTable, newest: int) -> list[DataFile]:
            nonlocal rows
            if generation_of(table) != self.generation:
                self.refresh()
            added = [entry for entry in entries if entry.epoch > newest]
            rows = as_rows(with_kept_keyframes(added, self.entries))
            return write_file(self._place, MANIFEST, rows)

        with self._lock:
            self._make()
            stood = commit_once(self._handle, application, entries[-1].epoch, write)
            written = rows if stood < entries[-1].epoch else None
            if written is not None and self._handle.newest().version() == self._version + 1:
                # Nothing was committed in between, so that the rows need not be read back.
                self.entries = self.entries + _entries(written, self.generation)
                self._version += 1
            self.refresh()

    def _make(self) -> None:
        """Create the manifest, or add columns that it lacks."""
        if self._has_all_columns:
            return
        table = self._handle.if_exists()
        if table is None or not {column.name for column in table.schema().fields}.issuperset(MANIFEST.names):
            make_manifest(self._place)
        self._has_all_columns = True


def make_manifest(place: Place) -> None:
    """Create a query's manifest, or add the columns that one from an earlier version of streamstate lacks."""
    open_or_create(place, MANIFEST, "streamstate: the epochs of one query")


def generation_of(table: DeltaTable) -> int:
    """How many runs of retention a manifest or a log has been through."""
    return max(version_of(table, RETENTION), 0)


@contextlib.contextmanager
def log_version_of(place: Place, entry: Entry, query: str) -> Iterator[TableVersion]:
    """The version of a log that a manifest's entry describes: before any run of retention that came after it.

    Raises:
        EpochDroppedError: its files are gone, also if that shows within the block.
    """
    try:
        table: DeltaTable = required(place)
        later = [
            int(commit["version"]) for commit in table.history() if int(commit.get(RETENTION, 0)) > entry.generation
        ]
        if later:
            table = DeltaTable(place.uri, version=min(later) - 1, storage_options=place.storage_options)
        yield TableVersion(place, table)
    except (DamagedStoreError, DeltaError) as error:
        raise EpochDroppedError(
            f"Epoch {entry.epoch} of {query} was dropped by retention, and its files were deleted after their grace"
            " period.\nRead from a snapshot soon after you take it, or have retention keep the epoch."
        ) from error


def with_kept_keyframes(entries: Sequence[Entry], before: Sequence[Entry]) -> list[Entry]:
    """New entries to append to others, changed so that none reads from a keyframe that retention has dropped.

    The capture that made them may have read the log before retention rewrote it.
    """
    captured = {entry.epoch for entry in before if entry.captured}
    newest = max((entry.epoch for entry in before), default=-1)
    last = next((entry for entry in reversed(before) if entry.captured), None)

    def kept(name: str, table: TableEntry) -> TableEntry:
        known = last.tables.get(name) if last else None
        if known is None or table.keyframe in captured or (table.keyframe is not None and table.keyframe > newest):
            return table
        return replace(table, keyframe=known.keyframe)

    return [
        replace(entry, tables={name: kept(name, table) for name, table in entry.tables.items()}) for entry in entries
    ]


def read_entries(version: TableVersion, first: int = 0) -> list[Entry]:
    """The entries of a version of the manifest from an epoch on, ascending."""
    generation = generation_of(version.table)
    entries = _entries(version.read("epoch", first), generation)
    for table in {table for entry in entries for table in entry.tables}:
        if not is_base_name(table):
            raise UntrustedStoreError.name(version.place, "state table", table)
    return entries


def _entries(rows: pa.Table, generation: int) -> list[Entry]:
    """Rows of the manifest as entries, ascending; column by column, because a long history has many."""
    columns = {name: _values(rows[name], shared=name in _SHARED) for name in rows.column_names}
    missing = [None] * rows.num_rows
    tables = [
        _tables(counts or (), dict(changes or ()), dict(keyframes or ()), generation)
        for counts, changes, keyframes in zip(*(columns[name] for name in MANIFEST.names[8:11]), strict=True)
    ]
    others = {name: columns.get(name, missing) for name in ("sources", "began_at", "time_source", "mode")}
    names = [*MANIFEST.names[:8], "tables", *others]
    facts = zip(*(columns[name] for name in MANIFEST.names[:8]), tables, *others.values(), strict=True)
    entries = [Entry(**dict(zip(names, values, strict=True)), generation=generation) for values in facts]
    return sorted(entries, key=attrgetter("epoch"))


def _values(column: pa.ChunkedArray, *, shared: bool) -> list[Any]:
    """The values of a column, with one copy of each text if it is shared; Arrow takes long to make times."""
    if pa.types.is_timestamp(column.type):
        times = column.cast(pa.timestamp("us")).to_numpy().tolist()
        return [None if time is None else time.replace(tzinfo=UTC) for time in times]
    if shared:
        return [None if text is None else sys.intern(text) for text in column.to_pylist()]
    found: list[Any] = column.to_pylist()
    return found


def _tables(
    counts: Iterable[tuple[str, int | None]],
    changes: Mapping[str, int],
    keyframes: Mapping[str, int | None],
    generation: int,
) -> dict[str, TableEntry]:
    return {sys.intern(name): TableEntry(rows, changes[name], keyframes[name], generation) for name, rows in counts}


def as_rows(entries: Sequence[Entry]) -> pa.Table:
    """Entries as rows of the manifest."""
    return pa.Table.from_pylist([_row(entry) for entry in entries], schema=MANIFEST)


def _row(entry: Entry) -> dict[str, Any]:
    row = {name: getattr(entry, name) for name in MANIFEST.names[:8]}
    return row | {
        "rows": [(name, table.rows) for name, table in entry.tables.items()],
        "changes": [(name, table.changes) for name, table in entry.tables.items()],
        "keyframes": [(name, table.keyframe) for name, table in entry.tables.items()],
        "sources": entry.sources,
        "began_at": entry.began_at,
        "time_source": entry.time_source,
        "mode": entry.mode,
    }
