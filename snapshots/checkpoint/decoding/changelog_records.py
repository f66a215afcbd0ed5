"""Record offsets in a changelog file.

The RocksDB provider writes versions 1 to 4 of Spark's changelog, the HDFS provider ``.delta`` and ``.snapshot`` files
with the records of version 1. Versions 2 and 4 have a type in front of each record; versions 3 and 4 have a lineage.
Numbers are big-endian. A version of 2 or more is at the start, as Java's ``writeUTF`` writes ``v2``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamstate.snapshots.checkpoint.decoding.failures import DamagedChangelogError, UnsupportedChangelogError
from streamstate.snapshots.checkpoint.decoding.framing import Framing, Positions

PUT, DELETE, MERGE = 0x01, 0x10, 0x11
PADDING = 16
"""Zero bytes behind the payload, so that reading a few bytes from any position in it stays inside the buffer."""

HDFS_FILES = (".delta", ".snapshot")
"""The suffixes of the HDFS provider's files."""

_END = 0x00
_TYPES = np.zeros(256, np.bool_)
_TYPES[[PUT, DELETE, MERGE]] = True
_LONGEST_VERSION = len("v32767")  # Spark reads a 16-bit number


@dataclass(frozen=True, eq=False)
class Records:
    """The records of one changelog file, in its order; all arrays have one element per record."""

    kind: NDArray[np.uint8]
    """``PUT``, ``DELETE`` or ``MERGE``."""
    key_at: Positions
    """The start of the key in the buffer."""
    key_size: Positions
    value_at: Positions
    """The start of the value in the buffer, also for a deleted key, which has none."""
    value_size: Positions
    """−1 for a deleted key."""
    buffer: NDArray[np.uint8]
    """The decompressed file and at least ``PADDING`` zero bytes."""
    version: int
    """The version of the changelog; 1 for a file of the HDFS provider and for a snapshot."""
    lineage: tuple[dict[str, Any], ...] | None
    """The versions and ids of the files that led to this one, in versions 3 and 4."""
    path: str
    """The file's name, for errors."""

    def __len__(self) -> int:
        return len(self.kind)

    def __getitem__(self, which: NDArray[Any] | slice) -> Records:
        """Return some of the records, by number, by mask, or from one to another."""
        return replace(
            self,
            kind=self.kind[which],
            key_at=self.key_at[which],
            key_size=self.key_size[which],
            value_at=self.value_at[which],
            value_size=self.value_size[which],
        )


def records_of(payload: bytes, path: str) -> Records:
    """Find the records of a decompressed changelog file.

    Every length is compared with what is left of the payload, and the end mark must be its end, so that no position
    in the result lies outside.

    Args:
        payload: What :func:`~streamstate.snapshots.checkpoint.decoding.compression.decompressed` returns.
        path: The file's name: ``.delta`` and ``.snapshot`` files have no version. Used for errors too.

    Raises:
        DamagedChangelogError: The payload ends too early or late, or a length or type is not valid.
        UnsupportedChangelogError: The version is unknown, or a record deletes a range of keys.
    """
    version, lineage, first = (1, None, 0) if path.endswith(HDFS_FILES) else _header(payload, path)
    typed = version in {2, 4}
    mark = bytes([_END]) if typed else b"\xff\xff\xff\xff"
    last = len(payload) - len(mark)
    if last < first or payload[last:] != mark:
        raise DamagedChangelogError(f"{path} has no end mark")
    buffer = np.zeros(len(payload) + PADDING, np.uint8)
    buffer[: len(payload)] = np.frombuffer(payload, np.uint8)
    starts = Framing(payload, buffer, last, typed=typed, path=path).starts(first)
    return _records(buffer, starts, typed=typed, version=version, lineage=lineage, path=path)


def joined(parts: Sequence[Records]) -> Records:
    """Return the records of several files as those of one, the first."""
    if len(parts) == 1:
        return parts[0]
    starts = np.cumsum([0, *(len(part.buffer) for part in parts[:-1])])
    moved = [
        (part.kind, part.key_at + start, part.key_size, part.value_at + start, part.value_size, part.buffer)
        for part, start in zip(parts, starts.tolist(), strict=True)
    ]
    kind, key_at, key_size, value_at, value_size, buffer = (
        np.concatenate(arrays) for arrays in zip(*moved, strict=True)
    )
    return replace(
        parts[0],
        kind=kind,
        key_at=key_at,
        key_size=key_size,
        value_at=value_at,
        value_size=value_size,
        buffer=buffer,
    )


def gathered(buffer: NDArray[np.uint8], at: Positions, kind: str) -> NDArray[Any]:
    """Return the numbers of a NumPy type at any positions of a padded buffer, aligned or not."""
    dtype = np.dtype(kind)
    words: NDArray[Any] = np.ndarray(len(buffer) - dtype.itemsize + 1, dtype, buffer.data, 0, (1,))
    return words[at]


def _header(payload: bytes, path: str) -> tuple[int, tuple[dict[str, Any], ...] | None, int]:
    """Return the version, the lineage, and where the records start.

    A file of version 1 starts with the length of a key, or −1. It is recognized as Spark does it: its first two bytes
    are not the length of a text that is ``v`` and a number.
    """
    text, first = _text(payload, 0)
    if text is None or len(text) > _LONGEST_VERSION or text[:1] != b"v" or not text[1:].isdigit():
        return 1, None, 0
    version = int(text[1:])
    if version not in {2, 3, 4}:
        raise UnsupportedChangelogError(f"{path} has version {version} of Spark's changelog; 1 to 4 are known")
    if version == 2:
        return version, None, first
    text, first = _text(payload, first)
    try:
        lineage = json.loads(text or b"")
    except ValueError:
        lineage = None
    if not isinstance(lineage, list) or not all(isinstance(item, dict) for item in lineage):
        raise DamagedChangelogError(f"{path} has no lineage")
    return version, tuple(lineage), first


def _text(payload: bytes, at: int) -> tuple[bytes | None, int]:
    """Return the text that Java's ``writeUTF`` wrote, and what comes behind it; None if the payload ends before."""
    start = at + 2
    end = start + int.from_bytes(payload[at:start], "big")
    return (payload[start:end], end) if end <= len(payload) and start <= len(payload) else (None, end)


def _records(buffer: NDArray[np.uint8], starts: Positions, *, typed: bool, **what: Any) -> Records:
    """Read the types and sizes at the starts, and check them."""
    path = what["path"]
    key_at = starts + 4 + typed
    key_size = gathered(buffer, key_at - 4, ">i4").astype(np.int64)
    if (key_size < 0).any():
        raise DamagedChangelogError(f"{path} has a key of {key_size.min()} bytes")
    value_at = key_at + key_size + 4
    value_size = gathered(buffer, value_at - 4, ">i4").astype(np.int64)
    deleted = value_size < 0
    kind = buffer[starts] if typed else np.where(deleted, DELETE, PUT).astype(np.uint8)
    if (unknown := ~_TYPES[kind]).any():
        number = int(kind[unknown.argmax()])
        error = DamagedChangelogError if number == _END else UnsupportedChangelogError
        raise error(f"{path} has a record of type {number}; puts, deletes and merges are known")
    if ((kind == DELETE) != deleted).any() or (value_size < -1).any():
        raise DamagedChangelogError(f"{path} has a record whose type does not match its value")
    return Records(kind, key_at, key_size, value_at, value_size, buffer, **what)
