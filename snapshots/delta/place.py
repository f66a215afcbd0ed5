"""Where a Delta table is: a folder on the local disk, or a prefix in an object store."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from streamstate.snapshots.filesystem import local_path

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

LOG = "_delta_log"


@dataclass(frozen=True)
class Place:
    """A table's URI, and deltalake's ``storage_options`` for reaching it."""

    uri: str
    options: Mapping[str, str] | None = field(default=None, hash=False, compare=False, repr=False)

    @property
    def folder(self) -> Path | None:
        """The folder, where the table is on the local disk."""
        return local_path(self.uri)

    @property
    def storage_options(self) -> dict[str, str] | None:
        """The options as deltalake takes them."""
        if self.folder is not None:
            return dict(self.options) if self.options else None
        from streamstate.snapshots.delta.object_store import patient

        return patient(self.options)

    def filesystem(self) -> FileSystem:
        """The table's files by their paths in the table, wherever it is."""
        from streamstate.snapshots.delta.object_store import files_of

        return files_of(self.uri, self.storage_options)

    def __str__(self) -> str:
        """For messages."""
        return self.uri


def synced(path: Path) -> None:
    """Have the disk keep a file, or what a folder lists, through a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
