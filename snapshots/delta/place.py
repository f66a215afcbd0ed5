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
        """The table's folder; None if it is not on the local disk."""
        return local_path(self.uri)

    @property
    def storage_options(self) -> dict[str, str] | None:
        """The options in deltalake's form."""
        if self.folder is not None:
            return dict(self.options) if self.options else None
        from streamstate.snapshots.delta.object_store import patient

        return patient(self.options)

    def filesystem(self, sizes: Mapping[str, int] | None = None) -> FileSystem:
        """The table's files by their paths in the table; known sizes save requests to an object store."""
        from streamstate.snapshots.delta.object_store import files_of

        return files_of(self.uri, self.storage_options, sizes)

    def __str__(self) -> str:
        """The URI."""
        return self.uri


def synced(path: Path) -> None:
    """Sync a file, or a folder's list of files, so that it survives a power loss."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
