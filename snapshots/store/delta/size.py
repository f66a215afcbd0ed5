"""The size of a table's version, which each commit keeps in the log for readers that do not open the table."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.transaction import RemoveAction

from streamstate.snapshots.store.delta.data_files import DataFile

SIZE = "streamstate/size"
"""The name under which a commit keeps the size that the table has after it."""


@dataclass(frozen=True)
class Size:
    """The size of the data files of a table's newest version.

    Delta's own log, and files that only older versions have and that will be swept, are not counted.
    """

    bytes: int = 0
    files: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(self.bytes + other.bytes, self.files + other.files)

    def after(self, added: Iterable[DataFile], removed: Iterable[RemoveAction]) -> Size:
        """Return the size after a commit that adds and removes files."""
        sizes = [*(file.size for file in added), *(-(file.size or 0) for file in removed)]
        return Size(self.bytes + sum(sizes), self.files + sum(1 if size > 0 else -1 for size in sizes))

    def to_json(self) -> str:
        """Return the size as text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Size:
        """Return a size from its text.

        Raises:
            ValueError: the text is not that of a size.
        """
        match json.loads(text):
            case {"bytes": int(size), "files": int(files)} if 0 <= files <= size < 1 << 63:
                return cls(size, files)
        raise ValueError("no size of a table")


def size_of(table: DeltaTable) -> Size:
    """Return the size of a handle's version."""
    actions = pa.table(table.get_add_actions())
    return Size(pc.sum(actions["size_bytes"]).as_py() or 0, actions.num_rows)
