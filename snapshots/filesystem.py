"""Reading a checkpoint's files, on the local disk or on any file system that Spark can read."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Files(Protocol):
    """The questions that reading a checkpoint asks of a file system."""

    def names(self, path: str) -> list[str]:
        """Names in a folder, none where there is no such folder."""

    def text(self, path: str) -> str | None:
        """A file's text, or None where there is no such file."""

    def tail(self, path: str, size: int) -> str | None:
        """The whole lines among a text file's last ``size`` bytes, or None where there is no such file."""

    def modified(self, path: str) -> datetime | None:
        """When a file was last written, or None where there is no such file."""


class LocalFiles:
    """The local disk, read without Java."""

    def names(self, path: str) -> list[str]:
        """Names in a folder, none where there is no such folder."""
        try:
            return [entry.name for entry in Path(path).iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def text(self, path: str) -> str | None:
        """A file's text, or None where there is no such file."""
        try:
            return Path(path).read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            return None

    def tail(self, path: str, size: int) -> str | None:
        """The whole lines among a text file's last ``size`` bytes, or None where there is no such file."""
        try:
            with Path(path).open("rb") as file:
                start = max(file.seek(0, os.SEEK_END) - size, 0)
                file.seek(start)
                return _whole_lines(file.read(), start)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def modified(self, path: str) -> datetime | None:
        """When a file was last written, or None where there is no such file."""
        try:
            return datetime.fromtimestamp(Path(path).stat().st_mtime, tz=UTC)
        except FileNotFoundError:
            return None


class HadoopFiles:
    """Any file system that Spark is set up for, through Hadoop's own client."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        self._conf: Any = spark.sparkContext._jsc.hadoopConfiguration()

    def _at(self, path: str) -> tuple[Any, Any]:
        where = self._jvm.org.apache.hadoop.fs.Path(path)
        return where.getFileSystem(self._conf), where

    def names(self, path: str) -> list[str]:
        """Names in a folder, none where there is no such folder."""
        system, where = self._at(path)
        # Listing a file gives the file itself.
        if not system.exists(where) or not system.getFileStatus(where).isDirectory():
            return []
        return [status.getPath().getName() for status in system.listStatus(where)]

    def text(self, path: str) -> str | None:
        """A file's text, or None where there is no such file."""
        system, where = self._at(path)
        if not system.exists(where):
            return None
        stream = system.open(where)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def tail(self, path: str, size: int) -> str | None:
        """The whole lines among a text file's last ``size`` bytes, or None where there is no such file."""
        system, where = self._at(path)
        if not system.exists(where):
            return None
        start = max(system.getFileStatus(where).getLen() - size, 0)
        stream = system.open(where)
        try:
            stream.seek(start)
            return _whole_lines(bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)), start)
        finally:
            stream.close()

    def modified(self, path: str) -> datetime | None:
        """When a file was last written, or None where there is no such file."""
        system, where = self._at(path)
        if not system.exists(where):
            return None
        return datetime.fromtimestamp(system.getFileStatus(where).getModificationTime() / 1000, tz=UTC)


def _whole_lines(end: bytes, start: int) -> str:
    """The end of a file as text, from the first whole line in it on."""
    return (end if start == 0 else end.partition(b"\n")[2]).decode()


def local_path(path: str | os.PathLike[str]) -> Path | None:
    """The path on the local disk that a path or ``file:`` URI means, None for another file system."""
    path = os.fspath(path)
    parts = urlsplit(path)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    # A single letter is a Windows drive, not a scheme.
    return Path(path).expanduser() if len(parts.scheme) <= 1 else None


def location(path: str | os.PathLike[str]) -> str:
    """A path made absolute; the URI of another file system stays as it is."""
    local = local_path(path)
    return os.fspath(path).rstrip("/") if local is None else str(local.absolute())
