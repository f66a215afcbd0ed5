"""A checkpoint's files on the local disk, without Java."""

from __future__ import annotations

import errno
import filecmp
import io
import os
import shutil
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TypeVar

from streamstate.errors import DamagedCheckpointError, UntrustedCheckpointError

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


def _small(path: str) -> bytes:
    """Return the bytes of an ordinary file, in as few calls as that takes: captures read many small ones.

    Raises:
        UntrustedCheckpointError: it is something else.
    """
    descriptor = _at_once(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise UntrustedCheckpointError.file(path, "is not an ordinary file")
        content = os.read(descriptor, found.st_size)
        while len(content) < found.st_size and (more := os.read(descriptor, found.st_size - len(content))):
            content += more
    finally:
        os.close(descriptor)
    return content


class LocalFiles:
    """The local disk, without Java; the methods are what reading, forking and rescaling a checkpoint need."""

    def each(self, read: Callable[[_T], _U], items: Iterable[_T]) -> Iterable[_U]:
        """Apply ``read`` to each item, in order."""
        return map(read, items)

    def names(self, path: str) -> list[str]:
        """Return the names in a folder; none if it does not exist."""
        try:
            return os.listdir(path)  # noqa: PTH208 (names only, and often)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def entries(self, path: str) -> dict[str, bool]:
        """Return the names in a folder, each with whether it is a folder; none if it does not exist."""
        try:
            with os.scandir(path) as found:
                return {entry.name: entry.is_dir() for entry in found}
        except (FileNotFoundError, NotADirectoryError):
            return {}

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
            return _small(path)
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
            return datetime.fromtimestamp(os.stat(path).st_mtime, tz=UTC)  # noqa: PTH116 (as for names)
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
            raise already_exists(target) from error  # os.link's error names the source first
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
            raise already_exists(target) from error

    def remove(self, path: str) -> None:
        """Delete a file, if it exists, or an empty folder, whose path ends in ``/``."""
        if path.endswith("/"):
            Path(path).rmdir()
        else:
            Path(path).unlink(missing_ok=True)

    def remove_tree(self, path: str) -> None:
        """Delete a folder and everything in it, if it exists."""
        shutil.rmtree(path, ignore_errors=True)


def already_exists(path: str) -> FileExistsError:
    """Return the error for a path that must not exist."""
    return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)


def whole_lines(end: bytes, start: int, path: str) -> str:
    """Return the end of a file as text, from the first whole line in it on."""
    return decode_text(end if start == 0 else end.partition(b"\n")[2], path)
