"""A checkpoint's files, on the local disk or on any file system that Spark can reach."""

from __future__ import annotations

import contextlib
import errno
import filecmp
import io
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar
from urllib.parse import quote, unquote

from streamstate.errors import DamagedCheckpointError, UntrustedCheckpointError
from streamstate.snapshots.store.names import is_base_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COPIES_AT_ONCE = 8
# Not urlsplit: it takes "#" and "?" for the ends of paths, and drops tabs and line breaks.
_FILE_URI = re.compile(r"file:(//[^/]*)?(?P<path>.*)", re.IGNORECASE | re.DOTALL)
# A single letter is a Windows drive, not a scheme.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")

_T = TypeVar("_T")
_U = TypeVar("_U")


@dataclass(frozen=True)
class Volume:
    """The bytes that were linked and copied to another folder."""

    linked: int = 0
    copied: int = 0

    def __add__(self, other: Volume) -> Volume:
        """Return both together."""
        return Volume(self.linked + other.linked, self.copied + other.copied)


class ReadableFiles(Protocol):
    """A file system that a checkpoint can be read from; paths are whole paths or URIs."""

    def names(self, path: str) -> list[str]:
        """Return the names in a folder; none if it does not exist."""

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


def decode_text(content: bytes, path: str) -> str:
    """Return the text of one of Spark's small files.

    Raises:
        DamagedCheckpointError: it is none.
    """
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise DamagedCheckpointError.file(path, "is no text") from error


def _ordinary(path: str) -> io.BufferedReader:
    """Return an ordinary file, open for reading.

    Raises:
        UntrustedCheckpointError: it is something else: a pipe keeps its reader waiting, and a device may have no end.
    """
    file = open(path, "rb", opener=_at_once)  # noqa: SIM115 (a Path for each takes as long as reading)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise UntrustedCheckpointError.file(path, "is not an ordinary file")
    return file


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # Windows has no such files


class LocalFiles:
    """The local disk, without Java; the methods are what reading, forking and rescaling a checkpoint need."""

    def each(self, read: Callable[[_T], _U], items: Iterable[_T]) -> Iterable[_U]:
        """Apply ``read`` to each item, in order."""
        return map(read, items)

    def names(self, path: str) -> list[str]:
        """Return the names in a folder; none if it does not exist."""
        try:
            return [entry.name for entry in Path(path).iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def tree(self, path: str) -> set[str]:
        """Return the paths of everything below a folder, relative to it; folders end in ``/``."""
        found: set[str] = set()
        for at, folders, files in os.walk(path):
            folder = Path(at).relative_to(path)
            found |= {(folder / name).as_posix() for name in files}
            found |= {f"{(folder / name).as_posix()}/" for name in folders}
        return found

    def text(self, path: str) -> str | None:
        """Return a file's text; None if it does not exist."""
        content = self.content(path)
        return None if content is None else decode_text(content, path)

    def content(self, path: str) -> bytes | None:
        """Return a small file's bytes; None if it does not exist."""
        try:
            with _ordinary(path) as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def open(self, path: str) -> IO[bytes]:
        """Return a file, open for reading."""
        return _ordinary(path)

    def tail(self, path: str, size: int) -> str | None:
        """Return the whole lines among a text file's last ``size`` bytes; None if it does not exist."""
        try:
            with _ordinary(path) as file:
                start = max(file.seek(0, os.SEEK_END) - size, 0)
                file.seek(start)
                return whole_lines(file.read(), start, path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def modified(self, path: str) -> datetime | None:
        """Return the time at which a file was last written; None if it does not exist."""
        try:
            return datetime.fromtimestamp(Path(path).stat().st_mtime, tz=UTC)
        except FileNotFoundError:
            return None

    def size(self, path: str) -> int:
        """Return a file's size in bytes."""
        return Path(path).stat().st_size

    def volume(self, path: str) -> int | None:
        """Return the size of everything in a folder, in bytes; None if files came or went meanwhile."""
        try:
            return sum(self.size(f"{path}/{name}") for name in self.tree(path) if not name.endswith("/"))
        except FileNotFoundError:
            return None

    def same(self, path: str, other_path: str) -> bool:
        """Return whether two paths are the same file, or have the same bytes."""
        try:
            return Path(path).samefile(other_path) or filecmp.cmp(path, other_path, shallow=False)
        except FileNotFoundError:
            return False

    def make_folder(self, path: str) -> bool:
        """Create a folder and its parents; False if something other than an empty folder is there."""
        folder = Path(path)
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            return folder.is_dir() and not any(folder.iterdir())
        return True

    def write(self, path: str, text: str, *, replace: bool = False) -> int:
        """Write a small file, creating its folder; a replaced one is replaced at once. Returns its size in bytes.

        Raises:
            FileExistsError: the file exists and is not to be replaced.
        """
        file = Path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        content = text.encode()
        if not replace:
            with file.open("xb") as opened:
                return opened.write(content)
        writing = file.with_name(f".{file.name}.new")
        # A killed process may have left it. If it is a link, writing would follow it.
        writing.unlink(missing_ok=True)
        with writing.open("xb") as opened:
            opened.write(content)
        writing.replace(file)
        return len(content)

    def copy(self, pairs: Iterable[tuple[str, str]]) -> Volume:
        """Link files, given as sources and targets, and copy those that cannot be linked, such as from another disk.

        Raises:
            FileExistsError: a target exists.
        """
        volume, folders = Volume(), set()
        for source, target in pairs:
            if (folder := target.rpartition("/")[0]) not in folders:
                Path(folder).mkdir(parents=True, exist_ok=True)
                folders.add(folder)
            # A hard link to a symbolic link would be a symbolic link too.
            volume += self._copy(os.path.realpath(source) if os.path.islink(source) else source, target)  # noqa: PTH114
        return volume

    def _copy(self, source: str, target: str) -> Volume:
        try:
            os.link(source, target)
        except FileNotFoundError:
            raise
        except FileExistsError as error:
            raise _exists(target) from error  # os.link's error names the source first
        except OSError:
            with open(source, "rb") as read, open(target, "xb") as written:  # noqa: PTH123 (as os.link's)
                shutil.copyfileobj(read, written)
            shutil.copystat(source, target)
            return Volume(copied=self.size(target))
        return Volume(linked=self.size(target))

    def copy_tree(self, source: str, target: str) -> None:
        """Copy a folder of small files, if it exists.

        Raises:
            FileExistsError: the target exists.
        """
        if Path(source).is_dir():
            shutil.copytree(source, target)

    def rename_folder(self, source: str, target: str) -> None:
        """Give a folder another path on the same file system; an empty folder that is there is replaced.

        Raises:
            FileExistsError: the target exists and is not an empty folder.
        """
        try:
            Path(source).rename(target)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise
            raise _exists(target) from error

    def remove(self, path: str) -> None:
        """Delete a file, if it exists, or an empty folder, whose path ends in ``/``."""
        if path.endswith("/"):
            Path(path).rmdir()
        else:
            Path(path).unlink(missing_ok=True)

    def remove_tree(self, path: str) -> None:
        """Delete a folder and everything in it, if it exists."""
        shutil.rmtree(path, ignore_errors=True)


class HadoopFiles:
    """The same on any file system that Spark is set up for, through Hadoop's client."""

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
        system, where = self._at(path)
        # Listing a file gives the file itself.
        if not system.exists(where) or not system.getFileStatus(where).isDirectory():
            return []
        return [status.getPath().getName() for status in system.listStatus(where)]

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
            raise _exists(path)
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
            raise _exists(target)
        util = self._jvm.org.apache.hadoop.fs.FileUtil
        util.copy(system, where, target_system, target_path, False, False, self._conf)  # noqa: FBT003 (a Java method)

    def rename_folder(self, source: str, target: str) -> None:
        """Give a folder another path; in an object store, file by file."""
        (system, where), (_, target_path) = self._at(source), self._at(target)
        if system.exists(target_path) and (self.names(target) or not system.delete(target_path, False)):  # noqa: FBT003 (a Java method)
            raise _exists(target)
        if not system.rename(where, target_path):
            raise _exists(target)

    def remove(self, path: str) -> None:
        """Delete a file or a folder."""
        self.remove_tree(path)

    def remove_tree(self, path: str) -> None:
        """Delete a folder and everything in it."""
        system, where = self._at(path)
        system.delete(where, True)  # noqa: FBT003 (a Java method)


Files: TypeAlias = LocalFiles | HadoopFiles


def files_for(spark: SparkSession | None, *paths: str | os.PathLike[str]) -> Files:
    """Return the file system of some paths: the local disk if all of them are on it, or if there is no session."""
    if spark is None or all(local_path(path) is not None for path in paths):
        return LocalFiles()
    return HadoopFiles(spark)


def _exists(path: str) -> FileExistsError:
    return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)


def whole_lines(end: bytes, start: int, path: str) -> str:
    """Return the end of a file as text, from the first whole line in it on."""
    return decode_text(end if start == 0 else end.partition(b"\n")[2], path)


def inside(root: str, name: str) -> str:
    """The path of a file of a checkpoint, whose name may come from another of its files and must not lead out of it."""
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
    """The URI of an object store, for clients that decode percent signs and take ``#`` and ``?`` for ends of paths."""
    scheme, _, rest = uri.partition("://")
    bucket, slash, path = rest.partition("/")
    return f"{scheme}://{bucket}{slash}{quote(path)}"


def location(path: str | os.PathLike[str]) -> str:
    """Return a path made absolute; the URI of another file system is unchanged."""
    local = local_path(path)
    return os.fspath(path).rstrip("/") if local is None else str(local.absolute())
