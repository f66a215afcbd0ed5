"""The sizes of tables, for readers that look at many."""

from __future__ import annotations

import threading

from streamstate.snapshots.store.delta.commits import required
from streamstate.snapshots.store.delta.log_end import UNREADABLE, LogEnd
from streamstate.snapshots.store.delta.place import Place
from streamstate.snapshots.store.delta.size import SIZE, Size


class TableSize:
    """The size of one table, computed once per version. Any thread may use it."""

    def __init__(self, place: Place) -> None:
        self._end = LogEnd(place)
        self._size: Size | None = None
        self._lock = threading.Lock()

    def now(self) -> Size:
        """Return the size of the newest version: as its commit says or, if that says nothing, by its files.

        Raises:
            DamagedStoreError, StoreError: the table does not exist, or its log cannot be read.

        Example:
            >>> TableSize(store.layout.changelog("delays", "op0")).now()
            Size(bytes=..., files=...)
        """
        with self._lock:
            if self._end.has_changed() or self._size is None:
                self._size = size_at(self._end)
            return self._size


def size_at(end: LogEnd) -> Size:
    """Return the size of the newest version that has been seen of a table.

    Raises:
        DamagedStoreError, StoreError: as :meth:`TableSize.now`.
    """
    return _kept(end) or required(end.place).size()


def _kept(end: LogEnd) -> Size | None:
    """Return the size that the newest commit of files keeps; None if it keeps none."""
    try:
        changed = next((entry for entry in end.entries() if entry.changes_files), None)
        kept = None if changed is None else changed.fact(SIZE)
        return None if kept is None else Size.from_json(kept)
    except UNREADABLE:
        return None
