"""Changelog files as Spark and Java's codecs write them, and the ones in the recorded checkpoints."""

from __future__ import annotations

import functools
import json
import struct
import tarfile
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import google_crc32c
import numpy as np
import pyarrow as pa
import xxhash
from recorded.make import HERE

from streamstate.snapshots.checkpoint.decoding.changelog_records import Records

Change = tuple[int, bytes, bytes | None]
"""A type, a key, and a value, which is None for a deleted key."""
LINEAGE = ({"version": 1, "checkpointUniqueId": "a"}, {"version": 2, "checkpointUniqueId": "b"})
CODECS = ("lz4", "zstd", "zstd with a checksum", "snappy")


def utf(text: str) -> bytes:
    """A text as Java's ``DataOutputStream.writeUTF`` writes it."""
    return struct.pack(">H", len(text)) + text.encode()


def changelog(changes: Iterable[Change], version: int) -> bytes:
    """The payload of a changelog; version 1 is that of a delta file too."""
    typed = version in {2, 4}
    header = b"" if version == 1 else utf(f"v{version}")
    header += utf(json.dumps(LINEAGE)) if version > 2 else b""
    records = (
        bytes([kind] * typed)
        + struct.pack(">i", len(key))
        + key
        + struct.pack(">i", -1 if value is None else len(value))
        + (value or b"")
        for kind, key, value in changes
    )
    return header + b"".join(records) + (b"\x00" if typed else b"\xff" * 4)


def changes_of(records: Records) -> list[Change]:
    """Return the changes at the positions of records, all of which must lie within the payload."""
    content = records.buffer.tobytes()
    ends = records.value_at + np.maximum(records.value_size, 0)
    assert ends.max(initial=0) <= len(content) - 16
    assert (ends >= records.value_at).all()
    assert (records.key_at >= 0).all()
    columns = (records.kind, records.key_at, records.key_size, records.value_at, records.value_size)
    return [
        (kind, content[key : key + key_size], None if size < 0 else content[value : value + size])
        for kind, key, key_size, value, size in zip(*(column.tolist() for column in columns), strict=True)
    ]


def compressed(payload: bytes, codec: str, *, block: int = 32 * 1024) -> bytes:
    """A payload in one of the ``CODECS``."""
    if codec == "lz4":
        return lz4(payload, block=block)
    if codec == "snappy":
        return snappy(payload, block=block)
    frame = bytes(pa.compress(payload, codec="zstd", asbytes=True))
    if codec == "zstd":
        return frame
    flags, checksum = frame[4] | 0x04, xxhash.xxh64_intdigest(payload) & 0xFFFFFFFF
    return frame[:4] + bytes([flags]) + frame[5:] + struct.pack("<I", checksum)


def lz4(payload: bytes, *, block: int = 32 * 1024) -> bytes:
    """Blocks as lz4-java's ``LZ4BlockOutputStream`` writes them; a block that does not get smaller stays as it is."""
    codec, level, out = pa.Codec("lz4_raw"), max((block - 1).bit_length(), 10) - 10, []
    for at in range(0, len(payload), block):
        part = payload[at : at + block]
        body = codec.compress(part, asbytes=True)
        method, body = (0x20, body) if len(body) < len(part) else (0x10, part)
        checksum = xxhash.xxh32_intdigest(part, 0x9747B28C) & 0x0FFFFFFF
        out.append(struct.pack("<8sBiiI", b"LZ4Block", method | level, len(body), len(part), checksum) + body)
    return b"".join(out) + struct.pack("<8sBiiI", b"LZ4Block", 0x10 | level, 0, 0, 0)


def snappy(payload: bytes, *, block: int = 32 * 1024) -> bytes:
    """Blocks as snappy-java's ``SnappyOutputStream`` writes them."""
    codec = pa.Codec("snappy")
    bodies = [codec.compress(payload[at : at + block], asbytes=True) for at in range(0, len(payload), block)]
    return struct.pack(">8sii", b"\x82SNAPPY\x00", 1, 1) + b"".join(
        struct.pack(">i", len(body)) + body for body in bodies
    )


def spark_sidecar(content: bytes) -> bytes:
    """Return what Spark writes to ``<file>.crc``."""
    (value,) = struct.unpack(">i", struct.pack(">I", google_crc32c.value(content)))
    creator = {"executorId": "driver", "taskInfo": "Task= 0.0, Stage= 1.0"}
    checksum = {
        "algorithm": "CRC32C",
        "value": value,
        "mainFileSize": len(content),
        "timestampMs": 1,
        "creator": creator,
    }
    return json.dumps(checksum).encode()


def hadoop_sidecar(content: bytes, step: int = 512) -> bytes:
    """Return what Hadoop writes to ``.<file>.crc`` on a local file system."""
    sums = [zlib.crc32(content[at : at + step]) for at in range(0, len(content), step)]
    return struct.pack(f">4si{len(sums)}I", b"crc\x00", step, *sums)


def with_checksums(
    changes: Iterable[tuple[int, bytes, Sequence[bytes] | None]], *, hdfs: bool, delimiter: bytes
) -> list[Change]:
    """Changes with the checksums that ``rowChecksum.enabled`` adds; a value is a sequence of merged values."""
    result: list[Change] = []
    for kind, key, values in changes:
        if values is None:
            result.append((kind, struct.pack("<I", google_crc32c.value(key)) + key, None))
            continue
        sized = (b"" if hdfs else struct.pack("<I", len(value)) for value in values)
        parts = (
            struct.pack("<I", google_crc32c.value(key + value)) + size + value
            for size, value in zip(sized, values, strict=True)
        )
        result.append((kind, key, delimiter.join(parts)))
    return result


@dataclass(frozen=True)
class StateFile:
    """A changelog or delta file with the checksum files beside it."""

    path: str
    content: bytes
    spark: bytes | None = None
    hadoop: bytes | None = None


@functools.cache
def recorded_files(version: str) -> tuple[StateFile, ...]:
    """The different changelog and delta files of a version's recorded checkpoints."""
    files: dict[str, bytes] = {}
    with tarfile.open(HERE / f"spark-{version}.tar.xz") as tar:
        for entry in tar:
            if entry.isfile() and "/state/" in entry.name and (".delta" in entry.name or ".changelog" in entry.name):
                stream = tar.extractfile(entry)
                assert stream is not None
                files[entry.name] = stream.read()
    found: dict[bytes, StateFile] = {}
    for path, content in files.items():
        if not path.endswith(".crc"):
            folder, _, name = path.rpartition("/")
            file = StateFile(path, content, files.get(f"{path}.crc"), files.get(f"{folder}/.{name}.crc"))
            found.setdefault(content, file)
    return tuple(found.values())
