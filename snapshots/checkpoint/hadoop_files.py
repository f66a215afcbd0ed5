"""A checkpoint's files on any file system that Spark is set up for, through Hadoop's client."""

from __future__ import annotations

import contextlib
import errno
import io
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any, TypeVar

from streamstate.errors import CaptureError, first_line
from streamstate.snapshots.checkpoint.local_files import Volume, already_exists, decode_text, whole_lines
from streamstate.snapshots.checkpoint.read_ahead import ReadAheadFiles
from streamstate.snapshots.checkpoint.server_side import copied_by_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_AT_ONCE = 8
# S3A's option for "If-None-Match", which other file systems ignore, and the exception if another object is there.
_EXCLUSIVE, _LOST_RACE = "fs.option.create.conditional.overwrite", "RemoteFileChangedException"
_REACHING = "Check the path, and the credentials and the endpoint in Spark's settings, such as spark.hadoop.fs.s3a.…."

_T = TypeVar("_T")
_U = TypeVar("_U")


class HadoopFiles(ReadAheadFiles):
    """Any file system that Spark is set up for; the methods are those of ``LocalFiles``.

    Each question is a request to an object store, and some are several: what is missing shows when it is read.
    """

    def __init__(self, spark: SparkSession) -> None:
        super().__init__()
        self._jvm: Any = spark.sparkContext._jvm
        self._conf: Any = spark.sparkContext._jsc.hadoopConfiguration()

    def each(self, read: Callable[[_T], _U], items: Iterable[_T]) -> Iterator[_U]:
        """Apply ``read`` to each item, in order; several run at once."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            yield from pool.map(read, items)

    @contextlib.contextmanager
    def _at(self, path: str) -> Iterator[tuple[Any, Any]]:
        """Provide the file system of a path, and the path; Java's errors become Python's.

        Raises:
            FileNotFoundError, FileExistsError: the path does not exist, or exists.
            CaptureError: the file system cannot be reached, or refuses.
        """
        from py4j.protocol import Py4JJavaError

        where = self._jvm.org.apache.hadoop.fs.Path(path)
        try:
            yield where.getFileSystem(self._conf), where
        except Py4JJavaError as error:
            kind = error.java_exception.getClass().getSimpleName()
            if kind == "FileNotFoundException":
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error
            if kind == "FileAlreadyExistsException":
                raise already_exists(path) from error
            raise CaptureError(f"{path} cannot be read or written: {first_line(error)}\n{_REACHING}") from error

    def names(self, path: str) -> list[str]:
        """Return the names in a folder."""
        return [*self.entries(path)]

    def _entries(self, path: str) -> dict[str, bool]:
        with contextlib.suppress(FileNotFoundError), self._at(path) as (system, where):
            found = list(system.listStatus(where))
            # Listing a file gives the file itself.
            if len(found) == 1 and found[0].getPath().equals(system.makeQualified(where)):
                return {}
            return {status.getPath().getName(): status.isDirectory() for status in found}
        return {}

    def tree(self, path: str) -> set[str]:
        """Return the paths of all files below a folder."""
        found: set[str] = set()
        with contextlib.suppress(FileNotFoundError), self._at(path) as (system, where):
            root = system.makeQualified(where).toString()
            files = system.listFiles(where, True)  # noqa: FBT003 (a Java method)
            while files.hasNext():
                found.add(files.next().getPath().toString().removeprefix(root).lstrip("/"))
        return found

    def text(self, path: str) -> str | None:
        """Return a file's text."""
        content = self.content(path)
        return None if content is None else decode_text(content, path)

    def _content(self, path: str) -> bytes | None:
        with contextlib.suppress(FileNotFoundError):
            return self._bytes(path)
        return None

    def open(self, path: str) -> IO[bytes]:
        """Return a file's bytes, all of them in memory."""
        return io.BytesIO(self._bytes(path))

    def tail(self, path: str, size: int) -> str | None:
        """Return the whole lines at a text file's end."""
        with contextlib.suppress(FileNotFoundError):
            start = max(self.size(path) - size, 0)
            return whole_lines(self._bytes(path, start), start, path)
        return None

    def _bytes(self, path: str, start: int = 0) -> bytes:
        with self._at(path) as (system, where), contextlib.closing(system.open(where)) as stream:
            if start:
                stream.seek(start)
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))

    def modified(self, path: str) -> datetime | None:
        """Return the time at which a file was last written."""
        with contextlib.suppress(FileNotFoundError), self._at(path) as (system, where):
            return datetime.fromtimestamp(system.getFileStatus(where).getModificationTime() / 1000, tz=UTC)
        return None

    def size(self, path: str) -> int:
        """Return a file's size in bytes."""
        with self._at(path) as (system, where):
            return int(system.getFileStatus(where).getLen())

    def volume(self, path: str) -> int | None:
        """Return the size of everything in a folder."""
        with contextlib.suppress(FileNotFoundError, CaptureError), self._at(path) as (system, where):
            return int(system.getContentSummary(where).getLength())
        return None

    def same(self, path: str, other_path: str) -> bool:
        """Return whether two files have the same size and, if the file system has checksums, the same checksum."""
        try:
            sizes, sums = zip(*(self._fingerprint(place) for place in (path, other_path)), strict=True)
        except FileNotFoundError:
            return False
        return sizes[0] == sizes[1] and (None in sums or bool(sums[0].equals(sums[1])))

    def _fingerprint(self, path: str) -> tuple[int, Any]:
        with self._at(path) as (system, where):
            return int(system.getFileStatus(where).getLen()), system.getFileChecksum(where)

    def make_folder(self, path: str) -> bool:
        """Create a folder and its parents."""
        with contextlib.suppress(FileNotFoundError), self._at(path) as (system, where):
            return bool(system.getFileStatus(where).isDirectory()) and not self.names(path)
        with self._at(path) as (system, where):
            return bool(system.mkdirs(where))

    def write(self, path: str, text: str, *, replace: bool = False) -> int:
        """Write a small file.

        Without ``replace``, S3 and HDFS refuse it too if another process writes it at the same moment. A store that
        ignores ``If-None-Match`` does not.
        """
        content = text.encode()
        try:
            with self._at(path) as (system, where), contextlib.closing(self._created(system, where, replace)) as stream:
                stream.write(content)
        except CaptureError as error:
            if not replace and _LOST_RACE in str(getattr(error.__cause__, "java_exception", "")):
                raise already_exists(path) from error
            raise
        return len(content)

    def _created(self, system: Any, where: Any, replace: bool) -> Any:  # noqa: FBT001 (from a keyword argument)
        if not replace and system.exists(where):
            raise already_exists(where.toString())
        builder = system.createFile(where).recursive().overwrite(replace)
        return (builder if replace else builder.opt(_EXCLUSIVE, "true")).build()

    def copy(self, pairs: Iterable[tuple[str, str]]) -> Volume:
        """Copy files, several at once; no bytes pass through Python, and in S3 none leave the server."""
        each = list(pairs)
        self._refuse_existing([target for _, target in each])
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return sum(pool.map(lambda pair: self._copy(*pair), each), Volume())

    def _refuse_existing(self, targets: list[str]) -> None:
        """Raise if one of some files exists; one listing tells it for all of them."""
        folders = [f"{target.rpartition('/')[0]}/" for target in targets]
        root = os.path.commonprefix(folders).rpartition("/")[0]  # noqa: RUF071 (these are URIs, and it ends at a slash)
        present = self.tree(root) if targets else set()
        for target in targets:
            if target.removeprefix(f"{root}/") in present:
                raise already_exists(target)

    def _copy(self, source: str, target: str) -> Volume:
        with self._at(source) as (system, where), self._at(target) as (target_system, target_path):
            size = copied_by_server(system, where, target_system, target_path)
            if size is None:
                size = int(system.getFileStatus(where).getLen())
                self._copy_over(system, where, target_system, target_path)
        return Volume(copied=size)

    def copy_tree(self, source: str, target: str) -> None:
        """Copy a folder of small files."""
        if self.modified(target) is not None:
            raise already_exists(target)
        self.copy((f"{source}/{name}", f"{target}/{name}") for name in self.tree(source))

    def _copy_over(self, system: Any, where: Any, target_system: Any, target_path: Any) -> None:
        util = self._jvm.org.apache.hadoop.fs.FileUtil
        util.copy(system, where, target_system, target_path, False, False, self._conf)  # noqa: FBT003 (a Java method)

    def rename_folder(self, source: str, target: str) -> None:
        """Give a folder another path; in an object store, file by file."""
        with self._at(source) as (system, where), self._at(target) as (_, target_path):
            if system.exists(target_path) and (self.names(target) or not system.delete(target_path, False)):  # noqa: FBT003 (a Java method)
                raise already_exists(target)
            if not system.rename(where, target_path):
                raise already_exists(target)

    def remove(self, path: str) -> None:
        """Delete a file or a folder."""
        self.remove_tree(path)

    def remove_tree(self, path: str) -> None:
        """Delete a folder and everything in it."""
        with self._at(path) as (system, where):
            system.delete(where, True)  # noqa: FBT003 (a Java method)
