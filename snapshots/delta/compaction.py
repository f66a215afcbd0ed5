"""Merging of small files: each capture adds one, and opening thousands would make every reader slow."""

from __future__ import annotations

import time
from collections.abc import Sequence

from deltalake import DeltaTable
from deltalake.transaction import RemoveAction

from streamstate.snapshots.delta.commits import commit_once, open_table
from streamstate.snapshots.delta.data_files import DataFile, DataFileWriter, delete_files
from streamstate.snapshots.delta.place import Place
from streamstate.snapshots.delta.reading import Committed, TableVersion

_APPLICATION = "streamstate/compaction"

# Fewer files than these cost a reader less than merging them does.
_MANY, _VERY_MANY = 64, 256
_SMALL_IN_ALL = 4 << 20
# A file joins a merge whose other files together are at least a quarter of it: then each row is rewritten a number of
# times that grows with the logarithm of the table, not with the table.
_SHARE = 4
_SMALL = 1 << 20


def compact(place: Place, by: str) -> int:
    """Merge the newest small files of a table into one, where there are many; returns how many there were.

    The rows stay what they are, and readers of older versions keep their files for the grace period. What is appended
    meanwhile only makes the commit be tried again: the merged file is written once while the files that it replaces
    are there, so a table that is written all the time gets merged too.

    Args:
        place: the table; where there is none, nothing is done.
        by: the whole-number column by which its files follow each other.

    Raises:
        StoreError: where the merged file could not be committed; the table is as it was then.
    """
    table = open_table(place)
    if table is None or not _worth_merging(TableVersion(place, table).files(by)):
        return 0
    merge = _Merge(place, by)
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
    """The files that are merged, and the one that they became."""

    def __init__(self, place: Place, by: str) -> None:
        self.files: list[Committed] = []
        self._place = place
        self._by = by
        self._written: list[DataFile] = []

    def write(self, table: DeltaTable, _stands: int) -> list[DataFile]:
        """The merged file, written again only where another commit removed one that it replaces."""
        version = TableVersion(self._place, table)
        there = version.files(self._by)
        if not self._written or not {one.path for one in self.files} <= {one.path for one in there}:
            delete_files(self._place, [one.path for one in self._written])
            self._written = []
            self.files = _worth_merging(there)
            self._written = rewritten(version, self.files)
        return self._written


def rewritten(version: TableVersion, files: Sequence[Committed]) -> list[DataFile]:
    """The rows of some files as one file."""
    if not files:
        return []
    with DataFileWriter(version.place, version.schema) as writer:
        for batch in version.scan_files(files):
            writer.write(batch)
    return [] if writer.file is None else [writer.file]


def removals(files: Sequence[Committed], *, data_change: bool = False) -> list[RemoveAction]:
    """What takes files out of a table."""
    now = int(time.time() * 1000)
    return [RemoveAction(one.path, data_change, now, one.size, {}) for one in files]


def _worth_merging(files: Sequence[Committed]) -> list[Committed]:
    """The newest files that follow each other and are worth merging; none where they are too few."""
    chosen: list[Committed] = []
    total = 0
    for file in reversed(files):
        if chosen and file.size > max(_SMALL, _SHARE * total):
            break
        chosen.append(file)
        total += file.size
    many = _MANY if total <= _SMALL_IN_ALL else _VERY_MANY
    return chosen[::-1] if len(chosen) >= many else []
