"""Checks of a checkpoint's files: size, checksum files, and the end of the content.

What is checked is what Spark checks when it reads the file, without decoding a row. So a file that Spark reads to its
last record is not damaged for Spark, whatever follows: :class:`TailError` says so.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from typing import Any

from streamstate.snapshots.checkpoint.decoding.changelog_records import Records, records_of
from streamstate.snapshots.checkpoint.decoding.compression import LZ4, LZF, SNAPPY, ZSTD, decompressed, whole_blocks
from streamstate.snapshots.checkpoint.decoding.failures import DamagedChangelogError

_LOCAL_HEADER = struct.Struct("<4s5H3I2H")
_LOCAL, _DESCRIPTOR = b"PK\x03\x04", b"PK\x07\x08"
_LARGEST = 64 << 20
"""Bytes that are unpacked at most of one file in a zip: Spark lists a few hundred for each of RocksDB's files."""


class TailError(DamagedChangelogError):
    """A file has been altered after its last record, where Spark does not read.

    Args:
        text: what is wrong.
        metadata: of a snapshot of RocksDB, its metadata.
    """

    def __init__(self, text: str, metadata: dict[str, Any] | None = None) -> None:
        super().__init__(text)
        self.metadata = metadata or {}


def change_records(content: bytes, path: str) -> Records:
    """Return the records of a file with changes, or with a snapshot of the HDFS provider.

    Raises:
        TailError: the file is damaged only after its last record.
        DamagedChangelogError: the file ends too early, or has been altered.
        UnsupportedChangelogError: it is in a format that is not known.
    """
    if not content.startswith((LZ4, ZSTD, SNAPPY, LZF)):
        raise DamagedChangelogError(f"{path} does not begin as a compressed file")
    try:
        return records_of(decompressed(content, path), path)
    except DamagedChangelogError as error:
        try:
            records_of(whole_blocks(content, path), path)
        except DamagedChangelogError:
            raise error from None
        raise TailError(str(error)) from error


def zip_metadata(content: bytes, path: str) -> dict[str, Any]:
    """Return the metadata in a snapshot of RocksDB, read as Spark does: from the start, without the zip's directory.

    Raises:
        TailError: only the directory at the end is damaged.
        DamagedChangelogError: a file in it is incomplete or altered, or it has no metadata.
    """
    found: dict[str, bytes] = {}
    at = 0
    try:
        for name, entry, end in _entries(content):
            found[name], at = entry, end
        metadata = dict(json.loads(found["metadata"].partition(b"\n")[2]))
    except (struct.error, zlib.error, ValueError, LookupError, TypeError) as error:
        raise DamagedChangelogError(f"{path} is not a zip that Spark wrote") from error
    if content[at : at + 4] != b"PK\x01\x02" or content[-22:-18] != b"PK\x05\x06":
        raise TailError(f"{path} has no directory at its end", metadata)
    return metadata


def _entries(content: bytes) -> Iterator[tuple[str, bytes, int]]:
    """Return the name and content of each file in a zip, and where it ends."""
    at = 0
    while content[at : at + 4] == _LOCAL:
        _, _, flags, method, _, _, crc, size, _, name_size, extra_size = _LOCAL_HEADER.unpack_from(content, at)
        start = at + _LOCAL_HEADER.size + name_size + extra_size
        name = content[at + _LOCAL_HEADER.size : at + _LOCAL_HEADER.size + name_size].decode()
        if method != zlib.DEFLATED:
            raise ValueError(f"{name} is not compressed")
        inflater = zlib.decompressobj(-zlib.MAX_WBITS)
        entry = inflater.decompress(content[start:], _LARGEST)
        if not inflater.eof:
            raise ValueError(f"{name} ends too early")
        at = len(content) - len(inflater.unused_data)
        if flags & 0x08:
            at += 4 if content[at : at + 4] == _DESCRIPTOR else 0
            crc, _, size = struct.unpack_from("<3I", content, at)
            at += 12
        if (zlib.crc32(entry), len(entry)) != (crc, size or len(entry)):
            raise ValueError(f"{name} does not match its checksum")
        yield name, entry, at
