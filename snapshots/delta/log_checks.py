r"""Checksums and syncing of Delta's log, which deltalake does neither of.

Beside each log entry and log checkpoint stands a checksum file in the format of Hadoop's ``ChecksumFileSystem``
(``.<name>.crc``: ``crc\0``, the chunk size, a CRC-32 of each chunk), which Spark verifies by itself when it reads
the table. A log entry is sealed after it was synced: where a crash came in between, the next writer seals it. Object
stores keep entries whole and checksummed themselves, so there nothing is added.
"""

from __future__ import annotations

import functools
import os
import re
import struct
import uuid
import zlib
from pathlib import Path

from streamstate.snapshots.delta.place import LOG, Place, synced
from streamstate.snapshots.errors import DamagedStoreError

_MAGIC = b"crc\0"
_CHUNK = 512
_ENTRY = re.compile(r"^(\d{20})\.json$")
_CHECKPOINT = re.compile(r"^(\d{20})\.checkpoint\.parquet$")


def entry_of(folder: Path, version: int) -> Path:
    """The log entry of a version of the table in a folder."""
    return folder / LOG / f"{version:020}.json"


def check(place: Place) -> None:
    """Verify what opening the table reads: the newest log checkpoint and the entries since.

    Raises:
        DamagedStoreError: where a file is not what was written.
        StoreError: where the log cannot be looked at.
    """
    if place.folder is None:
        return
    try:
        _check(place.folder / LOG)
    except OSError as error:
        raise DamagedStoreError.unreadable(f"{place}/{LOG}", error) from error


def check_entries(place: Place, first: int, last: int) -> None:
    """Verify the entries of some versions, where a table was open and went forward; does not list the log.

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
    checkpoints = [number for name in names if (number := _number(_CHECKPOINT, name)) is not None]
    since = max(checkpoints, default=-1)
    for name in names:
        entry, checkpoint = _number(_ENTRY, name), _number(_CHECKPOINT, name)
        if (entry is not None and entry > since) or checkpoint == since:
            _check_file(log / name, sealed=_seal_name(name) in names)


def seal(place: Place, version: int, *, checkpoint: bool = False) -> None:
    """Sync a version's log entry (or the log checkpoint at it) and put its checksum beside it."""
    if place.folder is None:
        return
    log = place.folder / LOG
    _seal_file(log / f"{version:020}.checkpoint.parquet" if checkpoint else entry_of(place.folder, version))
    synced(log)


def seal_missing(place: Place) -> None:
    """Seal what a writer that died, or a tool that knows no seals, left without."""
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
        return  # what is left of an entry that a loss of power took back: nobody was told of it
    synced(path)
    seal = path.with_name(_seal_name(path.name))
    writing = seal.with_name(f"{seal.name}.{uuid.uuid4().hex}.tmp")
    try:
        writing.write_bytes(_checksums(path.read_bytes()))
        writing.rename(seal)
    finally:
        writing.unlink(missing_ok=True)


def _check_file(path: Path, *, sealed: bool) -> None:
    if not sealed:
        return  # committed a moment ago, or by another tool
    try:
        found, seal = path.stat(), path.with_name(_seal_name(path.name)).stat()
        good = _matches(str(path), found.st_size, found.st_mtime_ns, found.st_ino, seal.st_mtime_ns)
    except OSError as error:
        raise DamagedStoreError.unreadable(str(path), error) from error
    if not good:
        raise DamagedStoreError.file(str(path), "it does not match its checksum file")


@functools.lru_cache(maxsize=1_000)  # those since a table's newest log checkpoint are asked for again, the others never
def _matches(file: str, _size: int, _modified: int, _inode: int, _sealed: int) -> bool:
    """Of files that have not changed since they were last looked at, known already."""
    path = Path(file)
    seal = path.with_name(_seal_name(path.name)).read_bytes()
    # Seals are not synced themselves: a loss of power can leave an empty one, which says nothing.
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
