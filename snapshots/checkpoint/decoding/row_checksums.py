"""Records without the checksums that ``spark.sql.streaming.stateStore.rowChecksum.enabled`` puts into them.

A checksum is the CRC32C of a key, with its column family's prefix, and of the value behind it; of a deleted key, of
the key alone. It precedes the value, or of the deleted key, in four bytes, little-endian. The RocksDB
provider lets four bytes with the value's size follow, because a value there can be several that were merged, each with
its own checksum. The HDFS provider does not, and neither do deleted keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from streamstate.snapshots.checkpoint.decoding.failures import DamagedChangelogError
from streamstate.snapshots.checkpoint.decoding.records import HDFS_FILES, Records, gathered

_SUM = 4
_SIZE = 4


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
