"""Bringing a checkpoint's files into another: linked where the disk can do that, copied elsewhere.

Spark writes a state file once, under a temporary name, and renames it; nobody writes into one that is there. So two
checkpoints can share it as a hard link: it takes no space, and lives as long as one of the two needs it.
"""

from __future__ import annotations

import filecmp
import io
import os
import shutil
import zipfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from streamstate.snapshots.filesystem import Files, HadoopFiles, LocalFiles, local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["HadoopTransfer", "LocalTransfer", "Transfer", "Volume", "transfer_between"]

_COPIES_AT_ONCE = 8


@dataclass(frozen=True)
class Volume:
    """How much was brought over, in bytes."""

    linked: int = 0
    copied: int = 0

    def __add__(self, other: Volume) -> Volume:
        """Both together."""
        return Volume(self.linked + other.linked, self.copied + other.copied)


class Transfer(Protocol):
    """What making a fork asks of a file system."""

    files: Files

    def make_folder(self, path: str) -> bool:
        """Make a folder and those above; False where something is there already that is no empty folder."""

    def write(self, path: str, text: str) -> int:
        """Write a small file, making its folder; returns its bytes."""

    def bring(self, pairs: Iterable[tuple[str, str]]) -> Volume:
        """Link, or else copy, files: pairs of where they are and where they are to be."""

    def copy_tree(self, source: str, target: str) -> None:
        """Copy a folder of small files; nothing where there is none."""

    def same(self, one: str, other: str) -> bool:
        """Whether two files hold the same."""

    def in_zip(self, path: str, member: str) -> str:
        """The text of a file in a ZIP file."""

    def delete(self, path: str) -> None:
        """Delete a folder and what is in it; nothing where there is none."""

    def size(self, path: str) -> int:
        """A file's bytes."""


class LocalTransfer:
    """The local disk: links."""

    def __init__(self) -> None:
        self.files: Files = LocalFiles()

    def make_folder(self, path: str) -> bool:
        """Make a folder and those above; False where something is there already that is no empty folder."""
        folder = Path(path)
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            return folder.is_dir() and not any(folder.iterdir())
        return True

    def write(self, path: str, text: str) -> int:
        """Write a small file, making its folder; returns its bytes."""
        file = Path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        return file.write_text(text, encoding="utf-8")

    def bring(self, pairs: Iterable[tuple[str, str]]) -> Volume:
        """Link files, and copy those that cannot be linked, being on another disk for example."""
        volume, folders = Volume(), set()
        for source, target in pairs:
            if (folder := target.rpartition("/")[0]) not in folders:
                Path(folder).mkdir(parents=True, exist_ok=True)
                folders.add(folder)
            volume += self._one(source, target)
        return volume

    def _one(self, source: str, target: str) -> Volume:
        try:
            os.link(source, target)
        except FileNotFoundError:
            raise
        except OSError:
            shutil.copy2(source, target)
            return Volume(copied=Path(target).stat().st_size)
        return Volume(linked=Path(target).stat().st_size)

    def copy_tree(self, source: str, target: str) -> None:
        """Copy a folder of small files; nothing where there is none."""
        if Path(source).is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)

    def same(self, one: str, other: str) -> bool:
        """Whether two files hold the same: one file under two names, or byte for byte."""
        try:
            return Path(one).samefile(other) or filecmp.cmp(one, other, shallow=False)
        except FileNotFoundError:
            return False

    def in_zip(self, path: str, member: str) -> str:
        """The text of a file in a ZIP file."""
        with zipfile.ZipFile(path) as archive:
            return archive.read(member).decode()

    def delete(self, path: str) -> None:
        """Delete a folder and what is in it; nothing where there is none."""
        shutil.rmtree(path, ignore_errors=True)

    def size(self, path: str) -> int:
        """A file's bytes."""
        return Path(path).stat().st_size


class HadoopTransfer:
    """Any file system that Spark is set up for: copies, several at once."""

    def __init__(self, spark: SparkSession) -> None:
        self.files: Files = HadoopFiles(spark)
        self._jvm: Any = spark.sparkContext._jvm
        self._conf: Any = spark.sparkContext._jsc.hadoopConfiguration()

    def _at(self, path: str) -> tuple[Any, Any]:
        where = self._jvm.org.apache.hadoop.fs.Path(path)
        return where.getFileSystem(self._conf), where

    def make_folder(self, path: str) -> bool:
        """Make a folder and those above; False where something is there already that is no empty folder."""
        system, where = self._at(path)
        if system.exists(where):
            return bool(system.getFileStatus(where).isDirectory()) and not self.files.names(path)
        return bool(system.mkdirs(where))

    def write(self, path: str, text: str) -> int:
        """Write a small file, making its folder; returns its bytes."""
        system, where = self._at(path)
        content = text.encode()
        stream = system.create(where, True)  # noqa: FBT003 - a Java method
        try:
            stream.write(content)
        finally:
            stream.close()
        return len(content)

    def bring(self, pairs: Iterable[tuple[str, str]]) -> Volume:
        """Copy files; no bytes pass through Python."""
        with ThreadPoolExecutor(_COPIES_AT_ONCE) as pool:
            return sum(pool.map(lambda pair: self._one(*pair), pairs), Volume())

    def _one(self, source: str, target: str) -> Volume:
        (source_system, source_path), (target_system, target_path) = self._at(source), self._at(target)
        if not source_system.exists(source_path):
            raise FileNotFoundError(source)
        util = self._jvm.org.apache.hadoop.fs.FileUtil
        args = (source_system, source_path, target_system, target_path, False, self._conf)
        util.copy(*args)
        return Volume(copied=self.size(target))

    def copy_tree(self, source: str, target: str) -> None:
        """Copy a folder of small files; nothing where there is none."""
        (system, where), (target_system, target_path) = self._at(source), self._at(target)
        if system.exists(where):
            target_system.mkdirs(target_path.getParent())
            util = self._jvm.org.apache.hadoop.fs.FileUtil
            args = (system, where, target_system, target_path, False, self._conf)
            util.copy(*args)

    def same(self, one: str, other: str) -> bool:
        """Whether two files are as long as each other and, where the file system has checksums, those are the same."""
        (one_system, one_path), (other_system, other_path) = self._at(one), self._at(other)
        if not (one_system.exists(one_path) and other_system.exists(other_path)):
            return False
        sums = (one_system.getFileChecksum(one_path), other_system.getFileChecksum(other_path))
        known = all(one is not None for one in sums)
        return self.size(one) == self.size(other) and (not known or bool(sums[0].equals(sums[1])))

    def in_zip(self, path: str, member: str) -> str:
        """The text of a file in a ZIP file."""
        system, where = self._at(path)
        stream = system.open(where)
        try:
            content = bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return archive.read(member).decode()

    def delete(self, path: str) -> None:
        """Delete a folder and what is in it; nothing where there is none."""
        system, where = self._at(path)
        system.delete(where, True)  # noqa: FBT003 - a Java method

    def size(self, path: str) -> int:
        """A file's bytes."""
        system, where = self._at(path)
        return int(system.getFileStatus(where).getLen())


def transfer_between(source: str, target: str, spark: SparkSession | None) -> Transfer:
    """How files get from one checkpoint to another."""
    if spark is None or (local_path(source) is not None and local_path(target) is not None):
        return LocalTransfer()
    return HadoopTransfer(spark)
