"""The files of a fork that is stepped: its lock, the plan of its next epoch, and undoing an epoch that failed."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from streamstate.errors import QueryError
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.filesystem import Files, files_for, inside, local_path, refuse_links_out
from streamstate.snapshots.checkpoint.source_offsets import file_batch
from streamstate.snapshots.checkpoint.state_files import StateFile
from streamstate.snapshots.store.names import is_number

LOCK_FILE = "streamstate-step.json"
"""The file in a fork that names the process that is stepping it. Spark does not read it."""
_LOGS = ("commits", "offsets")

_held: set[str] = set()
_guard = threading.Lock()


class ForkFolder:
    """The files of a fork; a session is needed if they are not on the local disk."""

    def __init__(self, path: str, spark: SparkSession | None) -> None:
        self.path = path
        self._spark = spark
        self.files: Files = files_for(spark, path)

    def files_of(self, path: str) -> Files:
        """Return the file system of another path: the original and its input need not be on that of the fork."""
        return files_for(self._spark, path)

    def text(self, name: str) -> str | None:
        """Return a file's text; None if it does not exist."""
        return self.files.text(f"{self.path}/{name}")

    def names(self, folder: str) -> list[str]:
        """Return names in a folder."""
        return self.files.names(f"{self.path}/{folder}")

    def write(self, texts: Mapping[str, str]) -> None:
        """Write files, each of them atomically."""
        refuse_links_out(self.path)
        for name, text in texts.items():
            path = inside(self.path, name)
            self.files.write(path, text, replace=True)
            # A file that Spark wrote under this name before had another checksum.
            folder, _, last = path.rpartition("/")
            self.files.remove(f"{folder}/.{last}.crc")

    def take_back(self, checkpoint: CheckpointFiles) -> None:
        """Remove the leftovers of a failed or killed step, so that the fork is again at its newest committed epoch.

        It removes everything that belongs to later epochs, needs no knowledge of the step, and can be repeated. RocksDB
        files that no snapshot names stay; Spark's own maintenance removes them.

        Raises:
            UntrustedCheckpointError: a link in the fork leads out of it; nothing was removed.
        """
        refuse_links_out(self.path)
        epoch = max(checkpoint.committed(), default=-1)
        for path in [*self._after(checkpoint, epoch)]:
            local = local_path(f"{self.path}/{path}")
            if local is not None:
                local.unlink(missing_ok=True)
            else:
                self.files.remove_tree(f"{self.path}/{path}")

    def _after(self, checkpoint: CheckpointFiles, epoch: int) -> Iterator[str]:
        """Yield files of later epochs, the plans last: as long as they exist, it is known that something is left."""
        planned = checkpoint.planned(epoch)
        sources = zip(planned.logs, planned.offsets, strict=True) if planned else ()
        for source, offset in sources:
            last = file_batch(offset)
            if last is not None:
                yield from (f"{source}/{name}" for name in self.names(source) if _later(name, last))
        if planned is not None and planned.names:
            # A source that only the changed code reads.
            for name in {*self.names("sources")} - {*planned.names}:
                yield from (f"sources/{name}/{batch}" for batch in self.names(f"sources/{name}") if _later(batch, -1))
        for operator in (name for name in self.names("state") if is_number(name)):
            yield from self._state_after(f"state/{operator}", epoch)
        for log in _LOGS:
            yield from (f"{log}/{name}" for name in self.names(log) if _later(name, epoch))

    def _state_after(self, operator: str, epoch: int) -> Iterator[str]:
        for folder in self._folders(operator):
            is_metadata = "_metadata" in folder or "_stateSchema" in folder
            for name in self.names(folder):
                number = _metadata_epoch(name) if is_metadata else _version(name)
                # Epoch N writes version N + 1.
                if number is not None and number > (epoch if is_metadata else epoch + 1):
                    yield f"{folder}/{name}"

    def _folders(self, operator: str) -> Iterator[str]:
        """Folders below an operator's that hold state files, or metadata of the state."""
        waiting = [operator]
        while waiting:
            folder = waiting.pop()
            names = self.names(folder)
            yield folder
            waiting += [f"{folder}/{name}" for name in names if _may_be_folder(name)]


def _may_be_folder(name: str) -> bool:
    """Check that a name may be a folder of a partition, a store or metadata; RocksDB's own folders are left alone."""
    return "." not in name and name not in ("SSTs", "logs")


def _plain(name: str) -> str:
    """Return the name of the file that a checksum belongs to, or the name itself."""
    while name.endswith(".crc"):
        name = name.removesuffix(".crc").removeprefix(".")
    return name


def _later(name: str, last: int) -> bool:
    """Check that a log file, ``7`` or ``9.compact``, or its checksum, comes after a number."""
    plain = _plain(name).removesuffix(".compact")
    return is_number(plain) and int(plain) > last


def _version(name: str) -> int | None:
    """Return the version of a state file or its checksum."""
    found = StateFile.parse(_plain(name))
    return None if found is None else found.version


def _metadata_epoch(name: str) -> int | None:
    """Return the epoch at which Spark wrote a metadata file: ``7``, or ``7_<id>``."""
    number = _plain(name).partition("_")[0]
    return int(number) if is_number(number) else None


@contextmanager
def stepping(checkpoint: str, spark: SparkSession | None) -> Iterator[None]:
    """Hold the lock on a fork while the block runs.

    It excludes other processes too, in an object store if that refuses to replace an object (``If-None-Match``). The
    lock of a process that was killed on this host is taken over.
    """
    with _guard:
        if checkpoint in _held:
            raise QueryError(f"{checkpoint} is being stepped by another thread.\nWait for it, or make another fork.")
        local, files = local_path(checkpoint), files_for(spark, checkpoint)
        if local is not None:
            _acquire(local / LOCK_FILE)
        else:
            _acquire_remote(files, checkpoint)
        _held.add(checkpoint)
    try:
        yield
    finally:
        with _guard:
            _held.discard(checkpoint)
            if local is not None:
                (local / LOCK_FILE).unlink(missing_ok=True)
            else:
                files.remove(f"{checkpoint}/{LOCK_FILE}")


def _acquire(file: Path) -> None:
    _refuse_holder(str(file.parent), lock_holder(file))
    file.unlink(missing_ok=True)
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(_own_lock())
    except FileExistsError:
        raise _is_stepped(str(file.parent)) from None


def _acquire_remote(files: Files, checkpoint: str) -> None:
    lock = f"{checkpoint}/{LOCK_FILE}"
    if (text := files.text(lock)) is not None:
        _refuse_holder(checkpoint, holder_in(text))
        files.remove(lock)
    try:
        files.write(lock, _own_lock())
    except FileExistsError:
        raise _is_stepped(checkpoint) from None


def _own_lock() -> str:
    return json.dumps({"process": os.getpid(), "host": socket.gethostname()})


def _refuse_holder(fork: str, holder: tuple[int, str] | None) -> None:
    if holder is not None:
        raise QueryError(
            f"{fork} is being stepped by process {holder[0]} on {holder[1]}.\n"
            f"Wait for it, or make another fork. If that process no longer exists, delete {LOCK_FILE} in the fork."
        )


def _is_stepped(fork: str) -> QueryError:
    return QueryError(f"{fork} is being stepped by another process.\nWait for it, or make another fork.")


def lock_holder(file: Path) -> tuple[int, str] | None:
    """Return the process that holds the lock, and its host; None if it is known to be gone."""
    try:
        return holder_in(file.read_text(encoding="utf-8"))
    except OSError:
        return None


def holder_in(lock: str) -> tuple[int, str] | None:
    """As :func:`lock_holder`, for the text of a lock."""
    import psutil

    try:
        holder: Any = json.loads(lock)
        process, host = int(holder["process"]), holder["host"]
    except (ValueError, KeyError, TypeError):
        return None  # the process was killed while it wrote the file
    # With this process's id, an earlier process left it: this process knows its own locks.
    gone = host == socket.gethostname() and (process == os.getpid() or not psutil.pid_exists(process))
    return None if gone else (process, host)
