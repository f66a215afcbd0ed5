"""Proof that a changelog file has the bytes that Spark wrote.

Three things can show it, and which of them a file has depends on who wrote it where:

* Spark's checksum file, ``<file>.crc``: JSON with the file's size and its CRC32C. Spark 4.1 writes one for every
  changelog and delta file, Spark 4.2 and later only in checkpoint format 2, and none do if
  ``spark.sql.streaming.checkpoint.fileChecksum.enabled`` is false.
* Hadoop's checksum file, ``.<file>.crc``: a CRC32 for each 512 bytes. Every version of Spark writes it where the
  checkpoint is on a local file system, and nowhere else.
* The sums of the codec: see :func:`own_sums`.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from enum import Enum

import google_crc32c
import numpy as np

from streamstate.snapshots.checkpoint.decoding.compression import LZ4, ZSTD
from streamstate.snapshots.checkpoint.decoding.failures import DamagedChangelogError, UnsupportedChangelogError

_HADOOP_MAGIC = b"crc\x00"
_HADOOP_HEADER = 8
_ZSTD_CHECKSUM_FLAG = 0x04


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
