"""The file system that a checkpoint is on, and the paths of its files."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol, TypeAlias, TypeVar
from urllib.parse import quote, unquote

from streamstate.errors import UntrustedCheckpointError
from streamstate.snapshots.checkpoint.hadoop_files import HadoopFiles
from streamstate.snapshots.checkpoint.local_files import LocalFiles
from streamstate.snapshots.store.names import is_base_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Not urlsplit: it takes "#" and "?" for the ends of paths, and drops tabs and line breaks.
_FILE_URI = re.compile(r"file:(//[^/]*)?(?P<path>.*)", re.IGNORECASE | re.DOTALL)
# A single letter is a Windows drive, not a scheme.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")

_T = TypeVar("_T")
_U = TypeVar("_U")


class ReadableFiles(Protocol):
    """A file system that a checkpoint can be read from; paths are whole paths or URIs."""

    def names(self, path: str) -> list[str]:
        """Return the names in a folder; none if it does not exist."""

    def entries(self, path: str) -> dict[str, bool]:
        """Return the names in a folder, each with whether it is a folder; none if it does not exist."""

    def text(self, path: str) -> str | None:
        """Return a file's text; None if it does not exist."""

    def content(self, path: str) -> bytes | None:
        """Return a file's bytes; None if it does not exist."""

    def open(self, path: str) -> IO[bytes]:
        """Return a file, open for reading."""

    def tail(self, path: str, size: int) -> str | None:
        """Return the whole lines among a text file's last ``size`` bytes; None if it does not exist."""

    def modified(self, path: str) -> datetime | None:
        """Return the time at which a file was last written; None if it does not exist."""

    def size(self, path: str) -> int:
        """Return a file's size in bytes. Raises ``FileNotFoundError`` if it does not exist."""

    def volume(self, path: str) -> int | None:
        """Return the size of everything in a folder, in bytes; None if files came or went meanwhile."""

    def each(self, read: Callable[[_T], _U], items: Iterable[_T]) -> Iterable[_U]:
        """Apply ``read`` to each item, in order; concurrently on remote storage."""

    def read_ahead(self, contents: Iterable[str], folders: Iterable[str] = (), *, last: str | None = None) -> None:
        """Begin to read what will be asked for next, and one file after everything else, on remote storage.

        Each result goes to one call that reads it, or to as many as the path is given here; the last file's to
        :meth:`content_last`.
        """

    def forget_ahead(self) -> None:
        """Forget what was read ahead and not asked for."""

    def content_last(self, path: str) -> bytes | None:
        """Return a file's bytes, read after everything else that was read before this call; None if it is missing."""


Files: TypeAlias = LocalFiles | HadoopFiles


def files_for(spark: SparkSession | None, *paths: str | os.PathLike[str]) -> Files:
    """Return the file system of some paths: the local disk if all of them are on it, or if there is no session."""
    if spark is None or all(local_path(path) is not None for path in paths):
        return LocalFiles()
    return HadoopFiles(spark)


def inside(root: str, name: str) -> str:
    """Return the path of a checkpoint's file; its name may come from another file and must not lead out."""
    if not all(is_base_name(part) for part in name.split("/")):
        raise UntrustedCheckpointError.file(root, f"names the file {name!r}, which is not inside it")
    return f"{root}/{name}"


def refuse_links_out(root: str) -> None:
    """Raise if a symbolic link in a checkpoint leads out of it; only the local disk has such links."""
    if (local := local_path(root)) is None:
        return
    real = local.resolve()
    for link in _links(str(real)):
        if not Path(link).resolve().is_relative_to(real):
            raise UntrustedCheckpointError.file(link, f"is a link that leads out of the checkpoint {root}")


def _links(folder: str) -> Iterator[str]:
    """Return the symbolic links below a folder; listing is enough to find them, no file is opened."""
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                yield entry.path
            elif entry.is_dir():
                yield from _links(entry.path)


def local_path(path: str | os.PathLike[str]) -> Path | None:
    """Return the local path of a path or ``file:`` URI; None for another file system.

    Only ``file:`` URIs are percent-encoded: paths, and URIs of other file systems, name files as they are written.
    """
    path = os.fspath(path)
    if (uri := _FILE_URI.match(path)) is not None:
        return Path(unquote(uri["path"]))
    if _SCHEME.match(path) is not None:
        return None
    # Not expanduser() for all: a folder may be called ~name.
    return Path(path).expanduser() if path == "~" or path.startswith("~/") else Path(path)


def quoted_uri(uri: str) -> str:
    """Quote the URI of an object store for clients that decode percent signs and end paths at ``#`` and ``?``."""
    scheme, _, rest = uri.partition("://")
    bucket, slash, path = rest.partition("/")
    return f"{scheme}://{bucket}{slash}{quote(path)}"


def location(path: str | os.PathLike[str]) -> str:
    """Return a path made absolute; the URI of another file system is unchanged."""
    local = local_path(path)
    return os.fspath(path).rstrip("/") if local is None else str(local.absolute())
