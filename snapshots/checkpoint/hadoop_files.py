"""A checkpoint's files on any file system that Spark is set up for, through Hadoop's client."""

from __future__ import annotations

import contextlib
import errno
import io
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any, TypeVar

from streamstate.snapshots.checkpoint.local_files import Volume, already_exists, whole_lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COPIES_AT_ONCE = 8

_T = TypeVar("_T")
_U = TypeVar("_U")


class HadoopFiles:
    """Any file system that Spark is set up for; the methods are those of ``LocalFiles``."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        self._conf: Any = spark.sparkContext._jsc.hadoopConfiguration()

    def each(self, read: Callable[[_T], _U], items: Iterable[_T]) -> Iterable[_U]:
        """Apply ``read`` to each item, in order."""
        return map(read, items)

    def _at(self, path: str) -> tuple[Any, Any]:
        where = self._jvm.org.apache.hadoop.fs.Path(path)
        return where.getFileSystem(self._conf), where

    def names(self, path: str) -> list[str]:
        """Return the names in a folder."""
        return [*self.entries(path)]

    def entries(self, path: str) -> dict[str, bool]:
        """Return the names in a folder, each with whether it is a folder."""
        system, where = self._at(path)
        # Listing a file gives the file itself.
        if not system.exists(where) or not system.getFileStatus(where).isDirectory():
            return {}
        return {status.getPath().getName(): status.isDirectory() for status in system.listStatus(where)}

    def tree(self, path: str) -> set[str]:
        """Return the paths of all files below a folder."""
        system, where = self._at(path)
        root = system.getFileStatus(where).getPath().toString()
        files, found = system.listFiles(where, True), set()  # noqa: FBT003 (a Java method)
        while files.hasNext():
            found.add(files.next().getPath().toString().removeprefix(root).lstrip("/"))
        return found

    def text(self, path: str) -> str | None:
        """Return a file's text."""
        system, where = self._at(path)
        if not system.exists(where):
            return None
        with contextlib.closing(system.open(where)) as stream:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))

    def content(self, path: str) -> bytes | None:
        """Return a small file's bytes."""
        system, where = self._at(path)
        return self._bytes(system.open(where)) if system.exists(where) else None

    def open(self, path: str) -> IO[bytes]:
        """Return a file's bytes, all of them in memory."""
        system, where = self._at(path)
        return io.BytesIO(self._bytes(system.open(where)))

    def tail(self, path: str, size: int) -> str | None:
        """Return the whole lines at a text file's end."""
        system, where = self._at(path)
        if not system.exists(where):
            return None
        start = max(system.getFileStatus(where).getLen() - size, 0)
        stream = system.open(where)
        stream.seek(start)
        return whole_lines(self._bytes(stream), start, path)

    def _bytes(self, stream: Any) -> bytes:
        with contextlib.closing(stream):
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))

    def modified(self, path: str) -> datetime | None:
        """Return the time at which a file was last written."""
        system, where = self._at(path)
        if not system.exists(where):
            return None
        return datetime.fromtimestamp(system.getFileStatus(where).getModificationTime() / 1000, tz=UTC)

    def size(self, path: str) -> int:
        """Return a file's size in bytes."""
        system, where = self._at(path)
        if not system.exists(where):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return int(system.getFileStatus(where).getLen())

    def volume(self, path: str) -> int | None:
        """Return the size of everything in a folder."""
        from py4j.protocol import Py4JError

        try:
            system, where = self._at(path)
            return int(system.getContentSummary(where).getLength())
        except Py4JError:
            return None

    def same(self, path: str, other_path: str) -> bool:
        """Return whether two files have the same size and, if the file system has checksums, the same checksum."""
        places = (self._at(path), self._at(other_path))
        if not all(system.exists(where) for system, where in places):
            return False
        sums = [system.getFileChecksum(where) for system, where in places]
        known = all(checksum is not None for checksum in sums)
        return self.size(path) == self.size(other_path) and (not known or bool(sums[0].equals(sums[1])))

    def make_folder(self, path: str) -> bool:
        """Create a folder and its parents."""
        system, where = self._at(path)
        if system.exists(where):
            return bool(system.getFileStatus(where).isDirectory()) and not self.names(path)
        return bool(system.mkdirs(where))

    def write(self, path: str, text: str, *, replace: bool = False) -> int:
        """Write a small file."""
        system, where = self._at(path)
        content = text.encode()
        if not replace and system.exists(where):
            raise already_exists(path)
        with contextlib.closing(system.create(where, replace)) as stream:
            stream.write(content)
        return len(content)

    def copy(self, pairs: Iterable[tuple[str, str]]) -> Volume:
        """Copy files, several at once; no bytes pass through Python."""
        with ThreadPoolExecutor(_COPIES_AT_ONCE) as pool:
            return sum(pool.map(lambda pair: self._copy(*pair), list(pairs)), Volume())

    def _copy(self, source: str, target: str) -> Volume:
        system, where = self._at(source)
        if not system.exists(where):
            raise FileNotFoundError(source)
        self._copy_over(source, target)
        return Volume(copied=self.size(target))

    def copy_tree(self, source: str, target: str) -> None:
        """Copy a folder of small files."""
        (system, where), (target_system, target_path) = self._at(source), self._at(target)
        if system.exists(where):
            target_system.mkdirs(target_path.getParent())
            self._copy_over(source, target)

    def _copy_over(self, source: str, target: str) -> None:
        (system, where), (target_system, target_path) = self._at(source), self._at(target)
        if target_system.exists(target_path):
            raise already_exists(target)
        util = self._jvm.org.apache.hadoop.fs.FileUtil
        util.copy(system, where, target_system, target_path, False, False, self._conf)  # noqa: FBT003 (a Java method)

    def rename_folder(self, source: str, target: str) -> None:
        """Give a folder another path; in an object store, file by file."""
        (system, where), (_, target_path) = self._at(source), self._at(target)
        if system.exists(target_path) and (self.names(target) or not system.delete(target_path, False)):  # noqa: FBT003 (a Java method)
            raise already_exists(target)
        if not system.rename(where, target_path):
            raise already_exists(target)

    def remove(self, path: str) -> None:
        """Delete a file or a folder."""
        self.remove_tree(path)

    def remove_tree(self, path: str) -> None:
        """Delete a folder and everything in it."""
        system, where = self._at(path)
        system.delete(where, True)  # noqa: FBT003 (a Java method)
