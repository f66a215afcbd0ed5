"""Keeping a table small: merging its small files, and removing files that no version holds.

Each capture adds a small file, and opening thousands would make every reader slow.

A sweep also completes what a failed commit or a killed process left behind: it seals log entries that were never
synced. A data file that no version holds may belong to a commit that is still under way, in this process or another.
So before anything is removed, the sweep makes a fence: an empty commit. A writer whose commit has to follow the version
it looked at (see ``commits``) fails if the fence took that version, and writes its files again; a writer that committed
first has its files in the log. Either way, a file that existed before the fence and is not in the log after it will
never be in it. This does not rely on clocks.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.transaction import RemoveAction

from streamstate.snapshots.store.delta.commits import (
    FENCE,
    Handle,
    commit_once,
    empty_commit,
    open_table,
    remembered,
    required,
)
from streamstate.snapshots.store.delta.data_files import DataFile, DataFileWriter, delete_files, is_ours
from streamstate.snapshots.store.delta.log_checks import seal_missing, shorten
from streamstate.snapshots.store.delta.place import LOG, Place
from streamstate.snapshots.store.delta.reading import Committed, TableVersion

_APPLICATION = "streamstate/compaction"

# Fewer files than these cost readers less than merging them costs, unless they have enough rows.
_MANY = 64
# A file with so many values (rows times columns) or bytes is not merged again: what reads one epoch of it has to pass
# over all others. It is sorted in memory, where it takes some hundred MB at most.
_ENOUGH_VALUES = 8 << 20
_ENOUGH_BYTES = 16 << 20
# A file is merged with smaller ones only if those are together at least a quarter of its size. So the number of times
# that a row is rewritten grows with the logarithm of that limit, not with the size of the table.
_SHARE = 4
_SMALL = 1 << 20
# What a reader of one key reads of each sorted file.
_SORTED_ROW_GROUP = 16 * 1024
# Files that compaction or retention took out of the table, for readers that still look at an older version.
GRACE = timedelta(hours=1)


@dataclass(frozen=True)
class Merging:
    """The rules for merging a table's files."""

    order: Callable[[pa.Schema, pa.Table], pa.Table] | None = None
    """The columns that the rows of merged files are sorted by, given the table's columns and the rows; None: none."""
    apart: Callable[[Committed], bool] = lambda _: False
    """True if a file is never merged with others."""


Choice = Callable[[TableVersion, str, Merging], list[Committed]]
"""Chooses the files of a table, ordered by a column, that are to be merged."""


def merge_small_files(place: Place, by: str, merging: Merging = Merging(), choice: Choice | None = None) -> int:
    """Merge the newest small files of a table if there are many; returns how many there were.

    The rows do not change, and readers of older versions keep their files for the grace period. If rows are appended
    meanwhile, only the commit is repeated: the merged file stays valid as long as the files it replaces are there. So a
    table that is written all the time is merged too.

    Args:
        place: the table; if it does not exist, nothing is done.
        by: the integer column by which its files are ordered.
        merging: how they are merged; by default in the order of the files, and all alike.
        choice: which files are merged; by default the newest small ones.

    Raises:
        StoreError: the merged file could not be committed; the table is unchanged.
    """
    table = open_table(place)
    choice = choice or _worth_merging
    if table is None or not choice(TableVersion(place, table), by, merging):
        return 0
    merge = _Merge(place, by, merging, choice)
    commit_once(
        place,
        _APPLICATION,
        table.version() + 1,
        merge.write,
        removes=lambda _: removals(merge.files),
        data_change=False,
        keeps_files=True,
    )
    return len(merge.files)


class _Merge:
    """The files to merge, and the files that they were merged into: one, unless it would be too large to sort."""

    def __init__(self, place: Place, by: str, merging: Merging, choice: Choice) -> None:
        self.files: list[Committed] = []
        self._place = place
        self._by = by
        self._merging = merging
        self._choice = choice
        self._written: list[DataFile] = []

    def write(self, table: DeltaTable, _committed: int) -> list[DataFile]:
        """Return the merged files, written again only if another commit removed one of the files that they replace."""
        version = TableVersion(self._place, table)
        current = {file.path for file in version.files(self._by)}
        if not self._written or not {file.path for file in self.files} <= current:
            delete_files(self._place, [file.path for file in self._written])
            self._written = []
            self.files = self._choice(version, self._by, self._merging)
            self._written = rewritten(version, self.files) if self._merging.order is None else self._sorted(version)
        return self._written

    def _sorted(self, version: TableVersion) -> list[DataFile]:
        """Return the rows of the files, in their order, in files that are sorted one by one."""
        written: list[DataFile] = []
        pending: list[pa.RecordBatch] = []
        for batch in version.scan_files(self.files):
            pending.append(batch)
            if sum(part.num_rows for part in pending) * len(version.schema) >= _ENOUGH_VALUES:
                written += self._sorted_file(version, pa.Table.from_batches(pending))
                pending.clear()
        return written + (self._sorted_file(version, pa.Table.from_batches(pending)) if pending else [])

    def _sorted_file(self, version: TableVersion, rows: pa.Table) -> list[DataFile]:
        if self._merging.order is not None and rows.num_rows:
            keys = self._merging.order(version.schema, rows)
            rows = rows.take(pc.sort_indices(keys, [(name, "ascending") for name in keys.column_names]))
        with DataFileWriter(self._place, version.schema, _SORTED_ROW_GROUP) as writer:
            writer.write(rows)
        return [] if writer.file is None else [writer.file]


def rewritten(version: TableVersion, files: Sequence[Committed]) -> list[DataFile]:
    """Return the rows of some files as one file."""
    if not files:
        return []
    with DataFileWriter(version.place, version.schema) as writer:
        for batch in version.scan_files(files):
            writer.write(batch)
    return [] if writer.file is None else [writer.file]


def removals(files: Sequence[Committed], *, data_change: bool = False) -> list[RemoveAction]:
    """Return the actions that remove files from a table."""
    now = int(time.time() * 1000)
    return [RemoveAction(file.path, data_change, now, file.size, {}) for file in files]


def _worth_merging(version: TableVersion, by: str, merging: Merging) -> list[Committed]:
    """Return the newest consecutive files that are worth merging; none if they are too few."""
    columns = len(version.schema)

    def enough(rows: int | None, size: int) -> bool:
        return (rows or 0) * columns >= _ENOUGH_VALUES or size >= _ENOUGH_BYTES

    chosen: list[Committed] = []
    rows = size = 0
    for file in reversed(version.files(by)):
        if merging.apart(file):
            continue
        if enough(file.rows, file.size) or (chosen and file.size > max(_SMALL, _SHARE * size)):
            break
        chosen.append(file)
        rows += file.rows or 0
        size += file.size
    return chosen[::-1] if len(chosen) >= _MANY or (len(chosen) > 1 and enough(rows, size)) else []


def sweep(where: Place | Handle, grace: timedelta | None = None) -> list[str]:
    """Remove files that no version holds, files that left the table before the grace period, and old log entries.

    Opening a table lists its log. So entries are kept only as long as the log names the files that left the table: what
    an older version was read from is gone by then.

    Args:
        where: the table; if it does not exist, nothing is done.
        grace: how long a file that left the table is kept for its readers, in whole hours; by default an hour, or as
            long as retention asked for.

    Returns:
        The removed data files.
    """
    handle = where if isinstance(where, Handle) else Handle(where)
    place, table = handle.place, handle.if_exists()
    if table is None:
        return []
    seal_missing(place)
    _sweep_log(place)
    shorten(place, remembered(table), table.version())
    grace = remembered(table) - timedelta(hours=1) if grace is None else grace
    found = _files(place)
    if not found - _current(table) or not found - _held(table, grace) or not empty_commit(place, table, FENCE):
        return []
    removed = sorted(found - _held(required(place), grace))
    delete_files(place, removed)
    return removed


def _sweep_log(place: Place) -> None:
    """Remove half-written files that killed processes left in the log's folder; no commit takes an hour."""
    if place.folder is None:
        return
    before = time.time() - GRACE.total_seconds()
    for entry in (place.folder / LOG).iterdir():
        # object_store writes to "<name>#<number>" first, a checksum file is first a ".tmp".
        if "#" in entry.name or entry.suffix == ".tmp":
            with contextlib.suppress(FileNotFoundError):  # its writer is alive and has finished
                if entry.stat().st_mtime < before:
                    entry.unlink()


def _files(place: Place) -> set[str]:
    if place.folder is not None:
        return {entry.name for entry in place.folder.iterdir() if is_ours(entry.name)}
    from pyarrow.fs import FileSelector

    found = place.filesystem().get_file_info(FileSelector("", recursive=False))
    return {entry.base_name for entry in found if is_ours(entry.base_name)}


def _held(table: DeltaTable, grace: timedelta) -> set[str]:
    """Return files of the newest version, and those that left it within the grace period."""
    return _current(table) | (_left(table, timedelta(0)) - _left(table, grace))


def _current(table: DeltaTable) -> set[str]:
    return {uri.rsplit("/", 1)[-1] for uri in table.file_uris()}


def _left(table: DeltaTable, ago: timedelta) -> set[str]:
    hours = int(ago.total_seconds() // 3600)
    paths = table.vacuum(retention_hours=hours, dry_run=True, enforce_retention_duration=False)
    return {path.rsplit("/", 1)[-1] for path in paths}
