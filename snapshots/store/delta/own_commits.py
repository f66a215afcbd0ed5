"""Commits that are written without deltalake, and a handle that they bring up to date without reading them back.

deltalake takes some milliseconds of the processor for a commit, and as many to read it back. A log entry that only adds
files is a few lines of JSON, and it is committed once a file of its name exists (Delta protocol, "Delta Log Entries").
So on the local disk, an entry is written and synced under another name and then linked to its own, which fails if
another writer has taken the version.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.store.delta.data_files import DataFile, new_file
from streamstate.snapshots.store.delta.log_checks import entry_name
from streamstate.snapshots.store.delta.place import LOG, Place
from streamstate.snapshots.store.delta.table import Table

if TYPE_CHECKING:
    from deltalake import Schema, Transaction

# What a writer of these tables has to know beyond version 2 of the protocol, which appending files satisfies.
_WRITER_FEATURES = frozenset({"timestampNtz", "appendOnly", "invariants"})
_WRITER_VERSIONS = (2, 7)


class WriterTable(Table):
    """A table of which a writer knows the versions that it has committed itself.

    deltalake reads them when it is asked for more than the version, the columns and the versions of applications.
    """

    def __init__(self, place: Place) -> None:
        self._committed_here = -1
        super().__init__(place)
        self._plain = self._is_plain()

    def _is_plain(self) -> bool:
        protocol = self.protocol()
        known = _WRITER_FEATURES.issuperset(protocol.writer_features or ())
        return known and protocol.min_writer_version in _WRITER_VERSIONS

    @property
    def _table(self) -> Any:
        """The handle of deltalake itself, at this version: all methods of ``DeltaTable`` go through it."""
        if self._read.version() < self._committed_here:
            self._read.update_incremental()
            if self._read.version() != self._committed_here:
                self._read.load_version(self._committed_here)
        return self._read

    @_table.setter
    def _table(self, handle: Any) -> None:
        self._read = handle

    def version(self) -> int:
        """Return the version."""
        return max(int(self._read.version()), self._committed_here)

    def schema(self) -> Schema:
        """Return the columns, which files do not change."""
        found: Schema = self._read.schema
        return found

    def update_incremental(self) -> None:
        """Update to the newest version."""
        super().update_incremental()
        self._plain = self._is_plain()

    @property
    def takes_entries(self) -> bool:
        """True if :meth:`add_files` can commit to the table."""
        return self._plain and self._place.folder is not None

    def add_files(
        self, files: Sequence[DataFile], marks: Sequence[Transaction], metadata: Mapping[str, str], *, data_change: bool
    ) -> bytes:
        """Commit files as the next version, in an entry that is synced; returns the entry.

        Raises:
            FileExistsError: another writer has committed that version.
            OSError: the entry could not be written.
        """
        assert self._place.folder is not None
        version = self.version() + 1
        entry = _entry(files, marks, metadata, data_change=data_change)
        _put_if_absent(self._place.folder / LOG, entry_name(version), entry)
        if self._versions_at == version - 1:
            self._versions |= {mark.app_id: mark.version for mark in marks}
            self._versions_at = version
        self._committed_here = version
        return entry


def _entry(
    files: Sequence[DataFile], marks: Sequence[Transaction], metadata: Mapping[str, str], *, data_change: bool
) -> bytes:
    """Return the log entry of a commit: a line for each action, as deltalake writes them."""
    described = {
        "timestamp": time.time_ns() // 1_000_000,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append", "partitionBy": "[]"},
        "engineInfo": "streamstate",
        **metadata,
    }
    actions: list[dict[str, Any]] = [{"commitInfo": described}]
    actions += [{"add": file.as_entry(data_change=data_change)} for file in files]
    actions += [{"txn": {"appId": mark.app_id, "version": mark.version}} for mark in marks]
    return "\n".join(json.dumps(action, separators=(",", ":")) for action in actions).encode()


def _put_if_absent(log: Path, name: str, content: bytes) -> None:
    writing = f"{log}/.{name}.{uuid.uuid4().hex}.tmp"
    try:
        with new_file(writing, content) as file:
            os.fsync(file)
        os.link(writing, f"{log}/{name}")
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(writing)  # noqa: PTH108
