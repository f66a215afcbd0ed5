"""The way back from a rescale that did not end well: what was there before it is written down, all else goes.

A small file in the checkpoint, ``streamstate-rescale.json``, stands there from before the first change until the new
state was verified or taken back. Whoever finds it finds a rescale that was killed.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from streamstate.snapshots.checkpoint import Checkpoint
from streamstate.snapshots.errors import CheckpointError
from streamstate.snapshots.filesystem import local_path, location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Unfinished", "recover"]

NOTE = "streamstate-rescale.json"
_LOGS = ("commits/", "offsets/")


class _Folder(Protocol):
    """What taking back asks of a file system; names are relative to the checkpoint, those of folders end in /."""

    def names(self) -> set[str]: ...

    def read(self, name: str) -> str | None: ...

    def write(self, name: str, text: str) -> None: ...

    def remove(self, name: str) -> None: ...


@dataclass(frozen=True)
class Unfinished:
    """A rescale that began: what the checkpoint held before it."""

    epoch: int
    """The last epoch before it."""
    partitions: int
    """How many partitions the state had."""
    wanted: int
    """How many it was to have."""
    names: tuple[str, ...]
    """Every file and folder of the checkpoint."""

    @classmethod
    def begin(cls, checkpoint: Checkpoint, spark: SparkSession, epoch: int, partitions: int, wanted: int) -> Unfinished:
        """Write down what there is, before anything is changed."""
        folder = _folder(checkpoint.path, spark)
        noted = cls(epoch, partitions, wanted, tuple(sorted(folder.names())))
        folder.write(NOTE, json.dumps(asdict(noted)))
        return noted

    @classmethod
    def of(cls, checkpoint: Checkpoint, spark: SparkSession | None) -> Unfinished | None:
        """The one that a checkpoint was left with; None where there is none."""
        text = _folder(checkpoint.path, spark).read(NOTE)
        if text is None:
            return None
        try:
            found = json.loads(text)
            return cls(found["epoch"], found["partitions"], found["wanted"], tuple(found["names"]))
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{checkpoint.path}/{NOTE} cannot be read, so a rescale that was killed cannot be taken back.\n"
                "Where the checkpoint's newest epoch was committed before that rescale, delete the file."
            ) from error

    def take_back(self, checkpoint: Checkpoint, spark: SparkSession | None) -> None:
        """Remove whatever was not there before, the note last; may be done again after it was interrupted."""
        folder = _folder(checkpoint.path, spark)
        for name in sorted(folder.names() - {*self.names, NOTE}, key=_order):
            folder.remove(name)
        folder.remove(NOTE)

    def done(self, checkpoint: Checkpoint, spark: SparkSession | None) -> None:
        """Let the new state stand."""
        _folder(checkpoint.path, spark).remove(NOTE)


def recover(checkpoint: Checkpoint, spark: SparkSession | None) -> Unfinished | None:
    """Take back a rescale that was killed before it was verified; nothing happens where there was none.

    Where the query has committed epochs since, the new partitions stand, and only the note goes.

    Args:
        checkpoint: of a query that is stopped.
        spark: needed where the checkpoint is not on the local disk.

    Returns:
        What was taken back; None where nothing was.
    """
    found = Unfinished.of(checkpoint, spark)
    if found is None:
        return None
    if max(checkpoint.committed(), default=-1) > found.epoch + 1:
        found.done(checkpoint, spark)
        return None
    found.take_back(checkpoint, spark)
    return found


def _order(name: str) -> tuple[int, int, str]:
    """The commit goes first, so that no committed epoch is ever without its state; folders go after their files."""
    first = next((at for at, log in enumerate(_LOGS) if name.startswith(log)), len(_LOGS))
    return (first, -name.count("/") if name.endswith("/") else -1000, name)


def _folder(path: str, spark: SparkSession | None) -> _Folder:
    local = local_path(location(path))
    if local is not None or spark is None:
        return _LocalFolder(local or Path(path))
    return _HadoopFolder(path, spark)


class _LocalFolder:
    """The local disk."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def names(self) -> set[str]:
        found: set[str] = set()
        for at, folders, files in os.walk(self._path):
            here = Path(at).relative_to(self._path)
            found |= {(here / one).as_posix() for one in files}
            found |= {f"{(here / one).as_posix()}/" for one in folders}
        return found

    def read(self, name: str) -> str | None:
        try:
            return (self._path / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def write(self, name: str, text: str) -> None:
        hidden = self._path / f".{name}.new"
        hidden.write_text(text, encoding="utf-8")
        hidden.replace(self._path / name)

    def remove(self, name: str) -> None:
        if name.endswith("/"):
            (self._path / name).rmdir()
        else:
            (self._path / name).unlink(missing_ok=True)


class _HadoopFolder:
    """Any file system that Spark is set up for."""

    def __init__(self, path: str, spark: SparkSession) -> None:
        context: Any = spark.sparkContext
        self._jvm = context._jvm
        self._root: Any = self._jvm.org.apache.hadoop.fs.Path(path)
        self._system: Any = self._root.getFileSystem(context._jsc.hadoopConfiguration())

    def names(self) -> set[str]:
        root = self._system.getFileStatus(self._root).getPath().toString()
        files, found = self._system.listFiles(self._root, True), set()  # noqa: FBT003 (Hadoop's)
        while files.hasNext():
            found.add(files.next().getPath().toString().removeprefix(root).lstrip("/"))
        return found

    def read(self, name: str) -> str | None:
        if not self._system.exists(self._at(name)):
            return None
        stream = self._system.open(self._at(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        stream = self._system.create(self._at(name), True)  # noqa: FBT003 (Hadoop's)
        try:
            stream.write(text.encode())
        finally:
            stream.close()

    def remove(self, name: str) -> None:
        self._system.delete(self._at(name), True)  # noqa: FBT003 (Hadoop's)

    def _at(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name)
