"""The place of a Delta table: a folder on the local disk, or a prefix in an object store."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from streamstate.errors import InvalidArgumentError
from streamstate.snapshots.checkpoint.filesystem import local_path, quoted_uri

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

LOG = "_delta_log"

# deltalake decodes percent signs twice, and object_store refuses control characters and empty names.
_NOWHERE = re.compile(r"%[0-9A-Fa-f]{2}|[\x00-\x1f\x7f\ud800-\udfff]")
_NOWHERE_ON_DISK = re.compile(rf"{_NOWHERE.pattern}|\\")
_NOWHERE_IN_STORE = re.compile(rf"{_NOWHERE.pattern}|(?<=/)(?:\.\.?)?(?=/|$)")


@dataclass(frozen=True)
class Place:
    """A table's URI, and deltalake's ``storage_options`` for reaching it."""

    uri: str
    options: Mapping[str, str] | None = field(default=None, hash=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse a path at which the table would be mistaken for another, before anything is written there."""
        folder = self.folder
        # Links are followed, as by deltalake.
        path = self.uri.partition("://")[2] if folder is None else os.path.realpath(folder)
        if (found := (_NOWHERE_IN_STORE if folder is None else _NOWHERE_ON_DISK).search(path)) is not None:
            raise InvalidArgumentError(
                f"No table can be kept at {self.uri!r}: deltalake takes {found[0]!r} in a path for something else.\n"
                "Use a path without '%' before two hexadecimal digits, without backslashes, control characters, and"
                " folders that are called '', '.' or '..'."
            )

    @property
    def client_uri(self) -> str:
        """The URI as deltalake takes it."""
        return self.uri if self.folder is not None else quoted_uri(self.uri)

    @cached_property
    def folder(self) -> Path | None:
        """The table's folder; None if it is not on the local disk."""
        return local_path(self.uri)

    @property
    def storage_options(self) -> dict[str, str] | None:
        """The options in deltalake's form."""
        if self.folder is not None:
            return dict(self.options) if self.options else None
        from streamstate.snapshots.store.delta.object_store import patient

        return patient(self.options)

    def filesystem(self, sizes: Mapping[str, int] | None = None) -> FileSystem:
        """Return the table's files by their paths in the table; known sizes save requests to an object store."""
        from streamstate.snapshots.store.delta.object_store import files_of

        return files_of(self.client_uri, self.storage_options, sizes)

    def __str__(self) -> str:
        """Return the URI."""
        return self.uri


def synced(path: Path) -> None:
    """Sync a file, or a folder's list of files, so that it survives a power loss."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
