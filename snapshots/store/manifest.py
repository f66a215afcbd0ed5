"""The manifest: which epochs exist. An epoch becomes visible when its row is committed here, and not before."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from streamstate.errors import DamagedStoreError, EpochDroppedError, UntrustedStoreError
from streamstate.snapshots.store.delta import commit_once, open_or_create
from streamstate.snapshots.store.delta.commits import Handle, required, version_of
from streamstate.snapshots.store.delta.data_files import DataFile, write_file
from streamstate.snapshots.store.delta.place import Place
from streamstate.snapshots.store.delta.reading import TableVersion
from streamstate.snapshots.store.entries import Entries, Entry, TableEntry, as_rows
from streamstate.snapshots.store.layout import MANIFEST, RETENTION, Layout
from streamstate.snapshots.store.manifest_summary import ManifestSummary
from streamstate.snapshots.store.names import is_base_name


class Manifest:
    """A query's manifest as of its last refresh, ascending by epoch."""

    def __init__(self, layout: Layout, query: str) -> None:
        self.query = query
        """The query's name in the store."""
        self.entries = Entries(MANIFEST.empty_table())
        self._place = layout.manifest(query)
        self._handle = Handle(self._place)
        self._version = -1
        self._exists = False
        self._lock = threading.RLock()  # a handle belongs to one thread

    def refresh(self) -> None:
        """Read what was added since. Any thread may call it, such as a cell's and a view's."""
        with self._lock:
            table = self._handle.if_exists()
            if table is None or table.version() == self._version:
                return
            generation = generation_of(table)
            # Retention rewrites the rows that stay, so everything is read again after it.
            known = self.entries if generation == self.generation else ()
            added = read_entries(TableVersion(self._place, table), known[-1].epoch + 1 if known else 0)
            self.entries, self._version = known.followed_by(added) if known else added, table.version()

    @property
    def generation(self) -> int:
        """The number of runs of retention that the entries have been through."""
        return self.entries.generation

    @property
    def newest(self) -> Entry | None:
        """The newest captured epoch's row."""
        return self.entries.newest

    def append(self, entries: list[Entry], application: str) -> None:
        """Commit epochs, which makes them visible; epochs that another capture has committed since are left out."""
        after: Entries | None = None
        metadata: dict[str, str] = {}

        def write(table: DeltaTable, newest: int) -> list[DataFile]:
            nonlocal after
            if generation_of(table) != self.generation:
                self.refresh()
            added = [entry for entry in entries if entry.epoch > newest]
            rows = as_rows(with_kept_keyframes(added, self.entries))
            after = self._at(table).followed_by(Entries(rows, generation_of(table)))
            metadata.clear()
            if added:
                metadata.update(ManifestSummary.of(after).kept())
            return write_file(self._place, MANIFEST, rows)

        with self._lock:
            self._make()
            stood = commit_once(self._handle, application, entries[-1].epoch, write, metadata=metadata)
            written = after if stood < entries[-1].epoch else None
            if written is not None and self._handle.newest().version() == self._version + 1:
                # Nothing was committed in between, so that the rows need not be read back.
                self.entries = written.unmade()
                self._version += 1
            else:
                self.refresh()

    def _at(self, table: DeltaTable) -> Entries:
        """Return the entries of a version of the manifest, read again if another capture has added some."""
        return self.entries if table.version() == self._version else read_entries(TableVersion(self._place, table))

    def _make(self) -> None:
        """Create the table, or give one that an older version wrote the columns that it lacks."""
        table = None if self._exists else self._handle.if_exists()
        if not self._exists and (table is None or not {*MANIFEST.names} <= {*_columns(table)}):
            make_manifest(self._handle)
        self._exists = True


def make_manifest(where: Place | Handle) -> None:
    """Create a query's manifest, if it does not exist, or give it the columns that it lacks."""
    open_or_create(where, MANIFEST, "streamstate: the epochs of one query")


def _columns(table: DeltaTable) -> list[str]:
    return [field.name for field in table.schema().fields]


def generation_of(table: DeltaTable) -> int:
    """Return the number of runs of retention that a manifest or a log has been through."""
    return max(version_of(table, RETENTION), 0)


@contextlib.contextmanager
def log_version_of(place: Place, entry: Entry, query: str) -> Iterator[TableVersion]:
    """The version of a log that a manifest's entry describes: before any run of retention that came after it.

    Raises:
        EpochDroppedError: its files are gone, also if that shows within the block.
    """
    try:
        table: DeltaTable = (newest := required(place))
        later = [record["version"] for record in newest.records() if int(record.get(RETENTION, 0)) > entry.generation]
        if later:
            table = DeltaTable(place.client_uri, version=min(later) - 1, storage_options=place.storage_options)
        yield TableVersion(place, table)
    except (DamagedStoreError, DeltaError) as error:
        raise EpochDroppedError(
            f"Epoch {entry.epoch} of {query} was dropped by retention, and its files were deleted after their grace"
            " period.\nRead from a snapshot soon after you take it, or have retention keep the epoch."
        ) from error


def with_kept_keyframes(entries: Sequence[Entry], before: Entries) -> list[Entry]:
    """New entries to append to others, changed so that none reads from a keyframe that retention has dropped.

    The capture that made them may have read the log before retention rewrote it.
    """
    last = before.newest

    if last is None:
        return list(entries)

    def kept(name: str, table: TableEntry) -> TableEntry:
        known, keyframe = last.tables.get(name), table.keyframe
        is_kept = keyframe is not None and (before.has_captured(keyframe) or keyframe > before.epochs[-1])
        return table if known is None or is_kept else replace(table, keyframe=known.keyframe)

    return [
        replace(entry, tables={name: kept(name, table) for name, table in entry.tables.items()}) for entry in entries
    ]


def read_entries(version: TableVersion, first: int = 0) -> Entries:
    """Return the entries of a version of the manifest from an epoch on.

    Raises:
        UntrustedStoreError: a state table's name is not that of a file.
    """
    entries = Entries(version.read("epoch", first), generation_of(version.table))
    for table in entries.tables:
        if not is_base_name(table):
            raise UntrustedStoreError.name(version.place, "state table", table)
    return entries
