r"""Checksums and syncing of Delta's log, neither of which deltalake does.

Each log entry and log checkpoint has a checksum file beside it, in the format of Hadoop's ``ChecksumFileSystem``
(``.<name>.crc``: ``crc\0``, the chunk size, a CRC-32 of each chunk), which Spark verifies when it reads the table. A
log entry is sealed (given a checksum file) after it is synced; after a crash in between, the next writer seals it.
Object stores write objects atomically and checksum them, so nothing is added there.
"""

from __future__ import annotations

import functools
import os
import re
import struct
import time
import uuid
import zlib
from datetime import timedelta
from pathlib import Path

from streamstate.errors import DamagedStoreError
from streamstate.snapshots.store.delta.data_files import delete_files, new_file
from streamstate.snapshots.store.delta.place import LOG, Place, synced

_MAGIC = b"crc\0"
_CHUNK = 512
_ENTRY = re.compile(r"^(\d{20})\.json$")
# Entries, log checkpoints, and the checksum files of both.
_LOG_FILE = re.compile(r"^\.?(\d{20})\.(?:json|checkpoint\.parquet)(?:\.crc)?$")
# A writer looks for its own commits among the last ones.
_LAST_KEPT = 100
_CHECKPOINT = re.compile(r"^(\d{20})\.checkpoint\.parquet$")


def entry_name(version: int) -> str:
    """Return the name of a version's log entry."""
    return f"{version:020}.json"


def entry_of(folder: Path, version: int) -> Path:
    """Return the log entry of a version of the table in a folder."""
    return folder / LOG / entry_name(version)


def check_log(place: Place) -> None:
    """Verify what opening the table reads: the newest log checkpoint and the later entries.

    Raises:
        DamagedStoreError: a file is damaged, or the log cannot be listed.
    """
    if place.folder is None:
        return
    try:
        _check(place.folder / LOG)
    except OSError as error:
        raise DamagedStoreError.unreadable(f"{place}/{LOG}", error) from error


def check_entries(place: Place, first: int, last: int) -> None:
    """Verify the entries of some versions without listing the log, after an open table was updated.

    Raises:
        DamagedStoreError: as :func:`check`.
    """
    if place.folder is None:
        return
    for version in range(first, last + 1):
        entry = entry_of(place.folder, version)
        _check_file(entry, sealed=entry.with_name(_seal_name(entry.name)).exists())


def _check(log: Path) -> None:
    names = _names(log)
    # Names begin with the version, in digits that sort as the numbers do; a log has tens of thousands of entries.
    newest = max(
        (name for name in names if name.endswith(".checkpoint.parquet") and _CHECKPOINT.match(name)), default=""
    )
    for name in names:
        if name[:20] >= newest[:20] and (name == newest or (_ENTRY.match(name) and name[:20] > newest[:20])):
            _check_file(log / name, sealed=_seal_name(name) in names)


def seal(place: Place, version: int, *, checkpoint: bool = False) -> None:
    """Sync a version's log entry, or the log checkpoint at it, and write its checksum file."""
    if place.folder is None:
        return
    log = place.folder / LOG
    _seal_file(log / f"{version:020}.checkpoint.parquet" if checkpoint else entry_of(place.folder, version))
    synced(log)


def seal_entry(place: Place, version: int, content: bytes) -> None:
    """Write the checksum file of a version's log entry, which is synced, and sync the log's folder."""
    if place.folder is None:
        return
    _write_seal(entry_of(place.folder, version), content)
    synced(place.folder / LOG)


def shorten(place: Place, kept: timedelta, newest: int) -> int:
    """Remove the log entries that no version of the last while is read from; returns how many files were removed.

    What remains begins with a log checkpoint, from which every later version can be read. Entries are removed in
    order, so that a killed process leaves a log without gaps.

    Args:
        place: the table.
        kept: how long a version can be read after a newer one was committed.
        newest: the newest version; the last ones before it are kept whatever their age.
    """
    files = _with_times(place)
    before = time.time() - kept.total_seconds()
    numbers = {name: number for name in files if (number := _number(_LOG_FILE, name)) is not None}
    old = [numbers[name] for name, modified in files.items() if _CHECKPOINT.match(name) and modified < before]
    since = max((number for number in old if number <= newest - _LAST_KEPT), default=0)
    removed = sorted((number, name) for name, number in numbers.items() if number < since)
    delete_files(place, [f"{LOG}/{name}" for _, name in removed])
    return len(removed)


def _with_times(place: Place) -> dict[str, float]:
    """Return the files of the log, and when each was written, in seconds since 1970."""
    if place.folder is not None:
        with os.scandir(place.folder / LOG) as entries:
            return {entry.name: entry.stat().st_mtime for entry in entries}
    from pyarrow.fs import FileSelector

    found = place.filesystem().get_file_info(FileSelector(LOG, recursive=False))
    return {info.base_name: info.mtime.timestamp() for info in found if info.mtime is not None}


def seal_missing(place: Place) -> None:
    """Seal what a killed writer or another tool left without a checksum file."""
    if place.folder is None:
        return
    log = place.folder / LOG
    names = _names(log)
    missing = [name for name in names if _is_log_file(name) and _seal_name(name) not in names]
    for name in missing:
        _seal_file(log / name)
    if missing:
        synced(log)


def _seal_file(path: Path) -> None:
    if not path.stat().st_size:
        return  # an entry truncated by a power loss; its commit was never reported
    synced(path)
    _write_seal(path, path.read_bytes())


def _write_seal(path: Path, content: bytes) -> None:
    seal = f"{path.parent}/{_seal_name(path.name)}"
    writing = f"{seal}.{uuid.uuid4().hex}.tmp"
    try:
        with new_file(writing, _checksums(content)):
            pass
        os.replace(writing, seal)  # noqa: PTH105 (a Path for each call takes as long as the call)
    except BaseException:
        Path(writing).unlink(missing_ok=True)
        raise


def _check_file(path: Path, *, sealed: bool) -> None:
    if not sealed:
        return  # committed just now, or by another tool
    try:
        found, seal = path.stat(), path.with_name(_seal_name(path.name)).stat()
        good = _matches(str(path), found.st_size, found.st_mtime_ns, found.st_ino, seal.st_mtime_ns)
    except OSError as error:
        raise DamagedStoreError.unreadable(str(path), error) from error
    if not good:
        raise DamagedStoreError.file(str(path), "it does not match its checksum file")


@functools.lru_cache(maxsize=1_000)  # only entries since the newest log checkpoint are checked again
def _matches(file: str, _size: int, _modified: int, _inode: int, _sealed: int) -> bool:
    """Return whether a file matches its checksums, cached until the file changes."""
    path = Path(file)
    seal = path.with_name(_seal_name(path.name)).read_bytes()
    # Checksum files are not synced: a power loss can leave an empty one, which is ignored.
    return not seal or seal == _checksums(path.read_bytes())


def _checksums(data: bytes) -> bytes:
    chunks = (data[start : start + _CHUNK] for start in range(0, len(data), _CHUNK))
    return _MAGIC + struct.pack(">i", _CHUNK) + b"".join(struct.pack(">I", zlib.crc32(chunk)) for chunk in chunks)


def _names(log: Path) -> set[str]:
    try:
        return set(os.listdir(log))  # noqa: PTH208 (names only: a log has tens of thousands)
    except (FileNotFoundError, NotADirectoryError):
        return set()


def _number(pattern: re.Pattern[str], name: str) -> int | None:
    found = pattern.match(name)
    return int(found[1]) if found else None


def _is_log_file(name: str) -> bool:
    return _ENTRY.match(name) is not None or _CHECKPOINT.match(name) is not None


def _seal_name(name: str) -> str:
    return f".{name}.crc"
