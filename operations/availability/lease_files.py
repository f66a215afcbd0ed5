"""The files of a lease, on disk or in an object store."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from streamstate.errors import InvalidArgumentError
from streamstate.snapshots.checkpoint.filesystem import local_path
from streamstate.snapshots.checkpoint.local_files import LocalFiles
from streamstate.snapshots.checkpoint.object_files import ObjectFiles, in_object_store
from streamstate.snapshots.store.delta.place import synced
from streamstate.snapshots.store.layout import Layout


class LeaseFiles(Protocol):
    """Small files that are there whole or not at all. A write that has ended is seen by every later read."""

    def names(self, path: str) -> list[str]:
        """Return the names in a folder; none if it does not exist."""

    def text(self, path: str) -> str | None:
        """Return a file's text; None if it does not exist."""

    def create(self, path: str, text: str) -> None:
        """Create a file; of several processes that try, exactly one succeeds.

        Raises:
            FileExistsError: it exists.
        """

    def replace(self, path: str, text: str) -> None:
        """Write a file, which may exist."""


class _OnDisk(LocalFiles):
    """Files that are created by a hard link, which fails if the name is taken."""

    def create(self, path: str, text: str) -> None:
        file = Path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
        draft.write_text(text, encoding="utf-8")
        try:
            synced(draft)
            self.copy([(str(draft), path)])
        finally:
            draft.unlink()
        if os.name == "posix":
            synced(file.parent)

    def replace(self, path: str, text: str) -> None:
        self.write(path, text, replace=True)


class _InObjectStore(ObjectFiles):
    """Objects that are created by a conditional put (``If-None-Match``)."""

    def create(self, path: str, text: str) -> None:
        self.put(path, text, replace=False)

    def replace(self, path: str, text: str) -> None:
        self.put(path, text, replace=True)


def lease_files(layout: Layout) -> LeaseFiles:
    """Return the files of a store.

    Raises:
        InvalidArgumentError: it is neither on disk nor in an object store.
        MissingDependencyError: it is in an object store, and obstore is not installed.
    """
    if local_path(layout.root) is not None:
        return _OnDisk()
    if in_object_store(layout.root):
        options: Mapping[str, str] | None = layout.options
        return _InObjectStore(layout.root, options)
    raise InvalidArgumentError(
        f"A lease cannot be kept in {layout.root}.\nUse a store on disk or in an object store: s3://, gs:// or az://."
    )
