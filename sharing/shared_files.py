"""The files that a server hands out: the rows and changes of granted views, made once and shared by equal grants."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from streamstate.errors import CaptureError, InvalidArgumentError
from streamstate.sharing.contract import GrantedTable, Terms
from streamstate.sharing.granted_view import CHANGE_TYPE, GrantedView
from streamstate.snapshots.checkpoint.filesystem import local_path
from streamstate.snapshots.checkpoint.object_files import ObjectFiles, in_object_store
from streamstate.snapshots.store.layout import Layout
from streamstate.state_inspect.history import History

UNUSED = 24 * 3600.0
"""Seconds after which a file that nobody has asked for is deleted; it can be made again."""
LINK = timedelta(seconds=10)
"""How long a URL of an object store gives a file."""
_SUFFIX = ".parquet"


@dataclass(frozen=True)
class SharedFile:
    """A file that can be handed out.

    Attributes:
        grant: the granted view, by the name that equal grants share.
        name: the file's name below it.
        size: its bytes.
        rows: its rows.
    """

    grant: str
    name: str
    size: int
    rows: int


class Folder(Protocol):
    """Where the files of all granted views are."""

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder; of the whole, those of its folders."""

    def size(self, path: str) -> int | None:
        """Return a file's bytes; None if it does not exist. The file counts as used now."""

    def read(self, path: str, start: int, end: int) -> bytes:
        """Return a part of a file."""

    def write(self, path: str, content: pa.Buffer) -> None:
        """Write a file; it appears whole."""

    def link(self, path: str) -> str | None:
        """Return a URL that gives a file for a few seconds; None if it has to be read and passed on."""

    def remove_unused(self, folder: str, since: float) -> None:
        """Delete the files of a folder that were last used before a moment."""


class SharedFiles:
    """The files of the granted views of one store.

    Args:
        layout: the store.
        history: returns a query's history.
    """

    def __init__(self, layout: Layout, history: Callable[[str], History]) -> None:
        self._history = history
        self.folder = _folder(layout)
        self._rows: dict[tuple[str, str], int] = {}
        self._making: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def state(self, terms: Terms, table: GrantedTable, epoch: int) -> SharedFile:
        """Return the file with the granted rows at an epoch."""
        return self._file(terms, table, f"{epoch}", lambda view: view.rows(epoch))

    def changes(self, terms: Terms, table: GrantedTable, before: int | None, epoch: int) -> SharedFile:
        """Return the file with the changes of the view from one epoch to the next granted one."""
        name = f"{'' if before is None else before}-{epoch}"
        return self._file(terms, table, name, lambda view: view.changes(before, epoch))

    def schema(self, terms: Terms, table: GrantedTable) -> pa.Schema:
        """Return the names and types of the granted columns."""
        return GrantedView(self._history(terms.query), table).schema

    def keys(self, terms: Terms, table: GrantedTable) -> list[str] | None:
        """Return the key columns; None if a part of the key is not granted."""
        return GrantedView(self._history(terms.query), table).keys

    def read(self, grant: str, name: str, start: int = 0, end: int | None = None) -> bytes | None:
        """Return a part of a file; None if it does not exist."""
        path = f"{grant}/{name}{_SUFFIX}"
        size = self.folder.size(path)
        return None if size is None else self.folder.read(path, start, size if end is None else min(end, size))

    def size(self, grant: str, name: str) -> int | None:
        """Return the bytes of a file; None if it does not exist."""
        return self.folder.size(f"{grant}/{name}{_SUFFIX}")

    def link(self, grant: str, name: str) -> str | None:
        """Return a URL of the object store's own for a file; None if there is none."""
        return self.folder.link(f"{grant}/{name}{_SUFFIX}")

    def sweep(self, granted: set[str], now: float | None = None) -> None:
        """Delete the files of views that no contract grants any more, and those that nobody has used for a day."""
        now = time.time() if now is None else now
        self._rows.clear()  # they are read again
        for grant in self.folder.names(""):
            self.folder.remove_unused(grant, now - UNUSED if grant in granted else now + 1)

    def _file(
        self, terms: Terms, table: GrantedTable, name: str, made: Callable[[GrantedView], pa.Table]
    ) -> SharedFile:
        grant = terms.grant(table)
        path, key = f"{grant}/{name}{_SUFFIX}", (grant, name)
        with self._lock:
            making = self._making.setdefault(grant, threading.Lock())
        with making:  # of two that ask, one makes it
            size, rows = self.folder.size(path), self._rows.get(key)
            if size is None:
                view = made(GrantedView(self._history(terms.query), table))
                content = parquet(view)
                self.folder.write(path, content)
                size, rows = content.size, view.num_rows
            elif rows is None:
                rows = pq.read_metadata(pa.BufferReader(self.folder.read(path, 0, size))).num_rows
            self._rows[key] = rows
        return SharedFile(grant, name, size, rows)


def parquet(rows: pa.Table) -> pa.Buffer:
    """Return rows as a Parquet file that says nothing but them."""
    sink = pa.BufferOutputStream()
    # Most columns have too many values for dictionaries, which would make the file larger and take longer to write.
    kinds = [name for name in rows.schema.names if name == CHANGE_TYPE]
    pq.write_table(
        rows.replace_schema_metadata(None),
        sink,
        compression="zstd",
        store_schema=False,
        use_dictionary=kinds,
        write_statistics=False,
    )
    return sink.getvalue()


class _OnDisk:
    """A folder on the local disk."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def names(self, folder: str) -> list[str]:
        with suppress(FileNotFoundError):
            return [path.name for path in (self._root / folder).iterdir()]
        return []

    def size(self, path: str) -> int | None:
        with suppress(FileNotFoundError):
            os.utime(self._root / path)
            return (self._root / path).stat().st_size
        return None

    def read(self, path: str, start: int, end: int) -> bytes:
        with (self._root / path).open("rb") as file:
            file.seek(start)
            return file.read(end - start)

    def write(self, path: str, content: pa.Buffer) -> None:
        target = self._root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        try:
            part.write_bytes(content)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)

    def link(self, path: str) -> str | None:
        return None

    def remove_unused(self, folder: str, since: float) -> None:
        for path in (self._root / folder).iterdir():
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < since:
                    path.unlink()
        with suppress(OSError):  # it has files
            (self._root / folder).rmdir()


class _InBucket(ObjectFiles):
    """A folder in an object store, which hands its files out itself."""

    def __init__(self, uri: str, options: Mapping[str, str] | None) -> None:
        super().__init__(uri, options)
        self._used: dict[str, float] = {}

    def names(self, folder: str) -> list[str]:
        return [*self._entries(f"{self._root}/{folder}".rstrip("/"))]

    def size(self, path: str) -> int | None:  # type: ignore[override]
        with suppress(FileNotFoundError):
            size = super().size(f"{self._root}/{path}")
            self._used[path] = time.time()
            return size
        return None

    def read(self, path: str, start: int, end: int) -> bytes:
        import obstore

        with self._errors():
            key = self._key(f"{self._root}/{path}")
            return bytes(obstore.get_range(self._store, key, start=start, end=end)) if end > start else b""

    def write(self, path: str, content: pa.Buffer) -> None:
        import obstore

        with self._errors():
            obstore.put(self._store, self._key(f"{self._root}/{path}"), content.to_pybytes())

    def link(self, path: str) -> str | None:
        import obstore

        try:
            with self._errors():
                store: Any = self._store  # of a kind that signs
                return str(obstore.sign(store, "GET", self._key(f"{self._root}/{path}"), LINK))
        except CaptureError:  # credentials that cannot sign
            return None

    def remove_unused(self, folder: str, since: float) -> None:
        import obstore

        for name in self.names(folder):
            path = f"{folder}/{name}"
            with self._errors(), suppress(FileNotFoundError):
                key = self._key(f"{self._root}/{path}")
                written = obstore.head(self._store, key)["last_modified"].timestamp()
                if max(written, self._used.get(path, 0.0)) < since:
                    obstore.delete(self._store, key)


def _folder(layout: Layout) -> Folder:
    """Return the folder of a store.

    Raises:
        InvalidArgumentError: the store is neither on disk nor in an object store.
        MissingDependencyError: it is in an object store, and obstore is not installed.
    """
    uri = layout.sharing("files").uri
    if (root := local_path(uri)) is not None:
        return _OnDisk(root)
    if in_object_store(uri):
        return _InBucket(uri, layout.options)
    raise InvalidArgumentError(f"{layout.root} cannot be shared: it is neither on disk nor in an object store.")
