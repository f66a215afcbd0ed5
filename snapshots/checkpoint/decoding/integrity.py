"""Proof that a changelog file has the bytes that Spark wrote, and its records without their checksums.

Three things can show it, and which of them a file has depends on who wrote it where:

* Spark's checksum file, ``<file>.crc``: JSON with the file's size and its CRC32C. Spark 4.1 writes one for every
  changelog and delta file, Spark 4.2 and later only in checkpoint format 2, and none do if
  ``spark.sql.streaming.checkpoint.fileChecksum.enabled`` is false.
* Hadoop's checksum file, ``.<file>.crc``: a CRC32 for each 512 bytes. Every version of Spark writes it where the
  checkpoint is on a local file system, and nowhere else.
* The sums of the codec: see :func:`own_sums`.

With ``spark.sql.streaming.stateStore.rowChecksum.enabled``, each record has a checksum too: the CRC32C of a key, with
its column family's prefix, and of the value behind it; of a deleted key, of the key alone. It precedes the value, or of
the deleted key, in four bytes, little-endian. The RocksDB provider lets four bytes with the value's size follow,
because a value there can be several that were merged, each with its own checksum. The HDFS provider does not, and
neither do deleted keys.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from enum import Enum

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from streamstate.snapshots.checkpoint.decoding.changelog_records import HDFS_FILES, Records, gathered
from streamstate.snapshots.checkpoint.decoding.compression import LZ4, ZSTD
from streamstate.snapshots.checkpoint.decoding.failures import DamagedChangelogError, UnsupportedChangelogError

_HADOOP_MAGIC = b"crc\x00"
_HADOOP_HEADER = 8
_ZSTD_CHECKSUM_FLAG = 0x04
# The bytes of a row checksum, and of the value's size behind it.
_SUM = 4
_SIZE = 4


class Proof(Enum):
    """The evidence that a file has the bytes that Spark wrote."""

    SPARK = "Spark's checksum file: the size and a CRC32C of the whole file"
    HADOOP = "Hadoop's checksum file: a CRC32 of every 512 bytes, and so the size up to 512 bytes"
    CODEC = "the codec's hashes of its blocks and its end mark, once the file is decompressed"
    NONE = "nothing: an altered byte shows only where it breaks the codec's or the records' structure"


def verify(content: bytes, path: str, *, spark: bytes | None = None, hadoop: bytes | None = None) -> Proof:
    """Compare a file with the checksum files beside it, and say what its bytes are proven by.

    Every checksum file that is given is compared; the strongest proof is returned. With :attr:`Proof.CODEC` the file
    is proven once :func:`~streamstate.snapshots.checkpoint.decoding.compression.decompressed` has returned; a whole
    block that is missing, and the file of another epoch or partition in its place, do not show. With
    :attr:`Proof.NONE` rows may be wrong without an error, as they may in Spark's own readers, which verify no more
    than this.

    Args:
        content: The bytes of the file.
        path: Its name, for errors.
        spark: The bytes of ``<file>.crc``, if there is one.
        hadoop: The bytes of ``.<file>.crc``, if there is one. Like Hadoop, this ignores one without its header.

    Raises:
        DamagedChangelogError: The file does not match a checksum file, or a checksum file is damaged.
        UnsupportedChangelogError: Spark's checksum file uses another algorithm.
    """
    if hadoop is not None and not (hadoop.startswith(_HADOOP_MAGIC) and len(hadoop) >= _HADOOP_HEADER):
        hadoop = None  # Hadoop ignores it, too
    if hadoop is not None:
        _compare_chunks(content, hadoop, path)
    if spark is not None:
        _compare_whole(content, spark, path)
        return Proof.SPARK
    if hadoop is not None:
        return Proof.HADOOP
    return Proof.CODEC if own_sums(content) else Proof.NONE


def verified(read: Callable[[str], bytes | None], path: str, content: bytes) -> bytes:
    """Compare a file's bytes with the checksum file beside it, Spark's or else Hadoop's, and return them.

    ``read`` returns the bytes of a file by its path, None if it does not exist.

    Raises:
        DamagedChangelogError, UnsupportedChangelogError: as :func:`verify`.
    """
    folder, _, name = path.rpartition("/")
    spark = read(f"{path}.crc")
    verify(content, path, spark=spark, hadoop=read(f"{folder}/.{name}.crc") if spark is None else None)
    return content


def own_sums(content: bytes) -> bool:
    """Return whether the codec of a file verifies its bytes: lz4, zstd with a checksum in its frame, but not snappy."""
    if content.startswith(ZSTD):
        return len(content) > len(ZSTD) and bool(content[len(ZSTD)] & _ZSTD_CHECKSUM_FLAG)
    return content.startswith(LZ4)


def _compare_whole(content: bytes, sidecar: bytes, path: str) -> None:
    try:
        checksum = json.loads(sidecar)
        algorithm, expected, size = checksum["algorithm"], checksum["value"], checksum["mainFileSize"]
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedChangelogError(f"{path}.crc is not a checksum file of Spark") from error
    if algorithm != "CRC32C":
        raise UnsupportedChangelogError(f"{path}.crc uses {algorithm}; CRC32C is known")
    if not isinstance(expected, int) or size != len(content) or google_crc32c.value(content) != expected & 0xFFFFFFFF:
        raise DamagedChangelogError(f"{path} does not match {path}.crc")


def _compare_chunks(content: bytes, sidecar: bytes, path: str) -> None:
    step = int.from_bytes(sidecar[4:_HADOOP_HEADER], "big")
    chunks = -(-len(content) // step) if step else 0
    if not step or len(sidecar) != _HADOOP_HEADER + 4 * chunks:
        raise DamagedChangelogError(f"{path} does not match Hadoop's checksum file: another size")
    view = memoryview(content)
    expected = np.frombuffer(sidecar, ">u4", chunks, _HADOOP_HEADER).tolist()
    if [zlib.crc32(view[at : at + step]) for at in range(0, len(content), step)] != expected:
        raise DamagedChangelogError(f"{path} does not match Hadoop's checksum file")


def without_checksums(records: Records, *, delimited: bool = True) -> Records:
    """Take the checksums out of records, and verify each.

    Args:
        records: All records of a file, with the keys as they are there.
        delimited: Whether a byte separates values that were merged: so before ``mergeOperatorVersion`` 2.

    Returns:
        The records as they would be without the setting. Values that were merged are moved together in a copy of the
        buffer; otherwise, only the positions change.

    Raises:
        DamagedChangelogError: A checksum does not match, or a value is too short to have one.
    """
    deleted = records.value_size < 0
    sizes = 0 if records.path.endswith(HDFS_FILES) else _SIZE
    short = np.where(deleted, records.key_size < _SUM, records.value_size < _SUM + sizes)
    if short.any():
        raise DamagedChangelogError(f"{records.path} has a record without a checksum")
    sums_at = np.where(deleted, records.key_at, records.value_at)
    shift = np.where(deleted, 0, _SUM + sizes)
    bare = replace(
        records,
        key_at=records.key_at + _SUM * deleted,
        key_size=records.key_size - _SUM * deleted,
        value_at=records.value_at + shift,
        value_size=records.value_size - shift,
    )
    merged = np.zeros(len(records), np.bool_)
    if sizes:
        merged = ~deleted & (gathered(records.buffer, records.value_at + _SUM, "<i4") != bare.value_size)
    _verify(bare, gathered(records.buffer, sums_at, "<u4"), ~merged)
    return _moved_together(records, bare, merged, delimited=delimited) if merged.any() else bare


def _verify(bare: Records, expected: NDArray[np.uint32], single: NDArray[np.bool_]) -> None:
    """Compare the sums of records with one value."""
    content = bare.buffer.tobytes()
    sum_of, extended = google_crc32c.value, google_crc32c.extend
    keys = zip(bare.key_at.tolist(), (bare.key_at + bare.key_size).tolist(), strict=True)
    ends = (bare.value_at + np.maximum(bare.value_size, 0)).tolist()
    values = zip(bare.value_at.tolist(), ends, strict=True)
    sums = [
        extended(sum_of(content[key:key_end]), content[value:value_end])
        for (key, key_end), (value, value_end) in zip(keys, values, strict=True)
    ]
    if (single & (np.array(sums, np.uint32) != expected)).any():
        raise DamagedChangelogError(f"{bare.path} has a record that does not match its checksum")


def _moved_together(records: Records, bare: Records, merged: NDArray[np.bool_], *, delimited: bool) -> Records:
    """Return the records with each merged value moved to the start of its place, without the checksums in it."""
    buffer, content = records.buffer.copy(), records.buffer.tobytes()
    value_at, value_size = bare.value_at.copy(), bare.value_size.copy()
    for row in np.flatnonzero(merged).tolist():
        at, size, key_at = int(records.value_at[row]), int(records.value_size[row]), int(bare.key_at[row])
        key = content[key_at : key_at + int(bare.key_size[row])]
        together = b"".join(_values(content[at : at + size], key, records.path, delimited=delimited))
        buffer[at : at + len(together)] = np.frombuffer(together, np.uint8)
        value_at[row], value_size[row] = at, len(together)
    return replace(bare, buffer=buffer, value_at=value_at, value_size=value_size)


def _values(value: bytes, key: bytes, path: str, *, delimited: bool) -> Iterator[bytes]:
    """Return the single values of a merged one, each verified, and the delimiters between them."""
    at, key_sum = 0, google_crc32c.value(key)
    while at < len(value):
        start = at + _SUM + _SIZE
        expected = int.from_bytes(value[at : at + _SUM], "little")
        end = start + int.from_bytes(value[at + _SUM : start], "little")
        if end > len(value) or google_crc32c.extend(key_sum, value[start:end]) != expected:
            raise DamagedChangelogError(f"{path} has a value that does not match its checksum")
        at = end + delimited
        yield value[start:at]
