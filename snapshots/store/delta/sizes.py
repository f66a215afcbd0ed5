"""The size of a table, from its log alone: no file is opened, and an unchanged table costs nothing."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from streamstate.snapshots.store.delta.commits import Handle
from streamstate.snapshots.store.delta.place import Place


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
