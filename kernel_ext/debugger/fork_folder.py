"""A fork's checkpoint as steps write into it: the plan of its next epoch, and the way back from one that failed."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from streamstate.snapshots.checkpoint import Checkpoint
from streamstate.snapshots.filesystem import local_path
from streamstate.snapshots.forks.source_log import source_batch
from streamstate.snapshots.forks.state_files import StateFile
from streamstate.snapshots.forks.transfer import Transfer, transfer_between

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ForkFolder"]

_LOGS = ("commits", "offsets")


class ForkFolder:
    """The files of a fork.

    Args:
        path: its checkpoint.
        spark: needed where it is not on the local disk.
    """

    def __init__(self, path: str, spark: SparkSession | None) -> None:
        self.path = path
        self.transfer: Transfer = transfer_between(path, path, spark)

    def text(self, name: str) -> str | None:
        """A file's text; None where there is no such file."""
        return self.transfer.files.text(f"{self.path}/{name}")

    def names(self, folder: str) -> list[str]:
        """Names in a folder."""
        return self.transfer.files.names(f"{self.path}/{folder}")

    def write(self, texts: Mapping[str, str]) -> None:
        """Write files, each of them whole or not at all."""
        for name, text in texts.items():
            self._write(name, text)

    def _write(self, name: str, text: str) -> None:
        local = local_path(self.path)
        if local is None:
            self.transfer.write(f"{self.path}/{name}", text)
            return
        file = local / name
        file.parent.mkdir(parents=True, exist_ok=True)
        hidden = file.with_name(f".{file.name}.{uuid.uuid4()}.tmp")
        hidden.write_text(text, encoding="utf-8")
        hidden.replace(file)
        # What Spark wrote under that name before has another checksum.
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        """Remove a file and its checksum; nothing where there is none."""
        folder, _, last = name.rpartition("/")
        for one in (last, f".{last}.crc"):
            path = f"{self.path}/{folder}/{one}" if folder else f"{self.path}/{one}"
            local = local_path(path)
            if local is not None:
                local.unlink(missing_ok=True)
            else:
                self.transfer.delete(path)

    def take_back(self, checkpoint: Checkpoint) -> None:
        """Remove whatever a step that did not end well has left, so that the fork stands where it stood.

        It needs to know nothing of that step: it may be done after the process was killed, and done again. What goes
        is all that belongs to epochs after the newest committed one. Files of RocksDB that no whole state names stay;
        Spark's own maintenance removes them.
        """
        epoch = max(checkpoint.committed(), default=-1)
        for path in [*self._after(checkpoint, epoch)]:
            local = local_path(f"{self.path}/{path}")
            if local is not None:
                local.unlink(missing_ok=True)
            else:
                self.transfer.delete(f"{self.path}/{path}")

    def _after(self, checkpoint: Checkpoint, epoch: int) -> Iterator[str]:
        """Files of epochs after one, the plans last: while those are there, it can be told that something is left."""
        planned = checkpoint.planned(epoch)
        for at, offset in enumerate(planned.offsets if planned else ()):
            last = source_batch(offset)
            if last is not None:
                yield from (f"sources/{at}/{name}" for name in self.names(f"sources/{at}") if _later(name, last))
        for operator in (name for name in self.names("state") if name.isdigit()):
            yield from self._state_after(f"state/{operator}", epoch)
        for log in _LOGS:
            yield from (f"{log}/{name}" for name in self.names(log) if _later(name, epoch))

    def _state_after(self, operator: str, epoch: int) -> Iterator[str]:
        for folder in self._folders(operator):
            described = "_metadata" in folder or "_stateSchema" in folder
            for name in self.names(folder):
                number = _described_at(name) if described else _version(name)
                # Epoch N leaves version N + 1.
                if number is not None and number > (epoch if described else epoch + 1):
                    yield f"{folder}/{name}"

    def _folders(self, operator: str) -> Iterator[str]:
        """Folders that hold state files, or descriptions of the state, below an operator's."""
        waiting = [operator]
        while waiting:
            folder = waiting.pop()
            names = self.names(folder)
            yield folder
            waiting += [f"{folder}/{name}" for name in names if _may_be_folder(name)]


def _may_be_folder(name: str) -> bool:
    """Folders of partitions, stores and descriptions; RocksDB's own are left alone."""
    return "." not in name and name not in ("SSTs", "logs")


def _plain(name: str) -> str:
    """A file's own name, for its checksums and what is being written too."""
    while name.endswith(".crc"):
        name = name.removesuffix(".crc").removeprefix(".")
    return name


def _later(name: str, last: int) -> bool:
    """Whether a file of a log, ``7`` or ``9.compact``, or the checksum of one, comes after a number."""
    plain = _plain(name).removesuffix(".compact")
    return plain.isdigit() and int(plain) > last


def _version(name: str) -> int | None:
    """The version of a state file, or of the checksum of one."""
    found = StateFile.parse(_plain(name))
    return None if found is None else found.version


def _described_at(name: str) -> int | None:
    """The epoch at which Spark wrote a description: ``7``, or ``7_<id>``."""
    number = _plain(name).partition("_")[0]
    return int(number) if number.isdigit() else None
