"""A changelog file's bytes without their compression.

Spark compresses state files as ``spark.sql.streaming.stateStore.compression.codec`` says: lz4, which is the default,
zstd, snappy or lzf. A file shows its codec by its first bytes.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator

import pyarrow as pa
import xxhash

from streamstate.snapshots.checkpoint.decoding.failures import DamagedChangelogError, UnsupportedChangelogError

LZ4 = b"LZ4Block"
ZSTD = b"\x28\xb5\x2f\xfd"
SNAPPY = b"\x82SNAPPY\x00"
LZF = b"ZV"

_ZSTD_PIECE = 64 << 10
_LZ4_HEADER = struct.Struct("<8sBiiI")  # magic, method and level, compressed size, size, hash
_LZ4_RAW, _LZ4_COMPRESSED = 0x10, 0x20
_LZ4_SEED = 0x9747B28C
_LZ4_HASH_BITS = 0x0FFFFFFF  # lz4-java drops the upper four bits of each hash
_LZ4_GROWTH = 255  # no byte of lz4 encodes more
_ZSTD_GROWTH, _ZSTD_SMALL = 255, 64 << 20
"""The growth of zstd has no limit: up to how many times a file may be, or how many bytes if those are more."""
_SNAPPY_HEADER = struct.Struct(">8sii")
_SNAPPY_GROWTH = 22  # a copy of 64 bytes takes three


def decompressed(content: bytes, path: str) -> bytes:
    """Return what a changelog file holds.

    lz4 verifies itself: each block has a hash of its bytes, and an end mark closes the file. zstd detects files that
    end too early, and altered bytes only in frames with a checksum, which Spark does not write. Snappy has neither
    hashes nor an end mark; there, only the records' own end mark shows that a file is complete.

    Args:
        content: The bytes of the file.
        path: Its name, for errors.

    Raises:
        DamagedChangelogError: The bytes are not those of a complete file of their codec.
        UnsupportedChangelogError: The codec is another one, such as lzf, or a small file would become a very large one.
    """
    if not content:
        raise DamagedChangelogError(f"{path} is empty")
    try:
        if content.startswith(LZ4):
            return b"".join(_lz4_blocks(content, path))
        if content.startswith(ZSTD):
            return _zstd(content, path)
        if content.startswith(SNAPPY):
            return b"".join(_snappy_blocks(content, path))
    except (OSError, pa.ArrowException) as error:
        raise DamagedChangelogError(f"{path} cannot be decompressed: {error}") from error
    if content.startswith(LZF):
        raise UnsupportedChangelogError(f"{path} is compressed with lzf; lz4, zstd and snappy are known")
    raise UnsupportedChangelogError(f"{path} is not compressed with lz4, zstd or snappy")


def whole_blocks(content: bytes, path: str) -> bytes:
    """Return what a changelog file holds up to where it is torn or altered; of a whole file, all."""
    blocks: list[bytes] = []
    with contextlib.suppress(DamagedChangelogError, OSError, pa.ArrowException):
        if content.startswith(LZ4):
            blocks.extend(_lz4_blocks(content, path))
        elif content.startswith(SNAPPY):
            blocks.extend(_snappy_blocks(content, path))
        elif content.startswith(ZSTD):
            with pa.CompressedInputStream(pa.BufferReader(content), "zstd") as stream:
                blocks.extend(iter(lambda: bytes(stream.read(_ZSTD_PIECE)), b""))
    return b"".join(blocks)


def _lz4_blocks(content: bytes, path: str) -> Iterator[bytes]:
    """Return the blocks of lz4-java's ``LZ4BlockOutputStream``, each verified by its hash."""
    codec, view, at = pa.Codec("lz4_raw"), memoryview(content), 0
    while True:
        if len(content) - at < _LZ4_HEADER.size:
            raise DamagedChangelogError(f"{path} has no end mark")
        magic, token, size, original, expected = _LZ4_HEADER.unpack_from(content, at)
        method, largest = token & 0xF0, 1 << 10 + (token & 0x0F)
        if magic != LZ4 or method not in {_LZ4_RAW, _LZ4_COMPRESSED} or not 0 <= original <= largest:
            raise DamagedChangelogError(f"{path} has an invalid block header at byte {at}")
        at += _LZ4_HEADER.size
        if original == 0:
            if size or expected or at != len(content):
                raise DamagedChangelogError(f"{path} has an end mark that is not its end")
            return
        if not 0 < size <= len(content) - at:
            raise DamagedChangelogError(f"{path} ends within a block")
        body = view[at : at + size]
        raw = method == _LZ4_RAW
        if (original != size) if raw else (original > _LZ4_GROWTH * size):
            raise DamagedChangelogError(f"{path} has a block with an impossible size")
        block = bytes(body) if raw else codec.decompress(body, original, asbytes=True)
        if xxhash.xxh32_intdigest(block, _LZ4_SEED) & _LZ4_HASH_BITS != expected:
            raise DamagedChangelogError(f"{path} has a block that does not match its hash")
        yield block
        at += size


def _zstd(content: bytes, path: str) -> bytes:
    most, pieces = max(_ZSTD_SMALL, _ZSTD_GROWTH * len(content)), list[bytes]()
    with pa.CompressedInputStream(pa.BufferReader(content), "zstd") as stream:
        while piece := bytes(stream.read(_ZSTD_PIECE)):
            most -= len(piece)
            if most < 0:
                raise UnsupportedChangelogError(f"{path} grows to more than {_ZSTD_GROWTH} times its size")
            pieces.append(piece)
    return b"".join(pieces)


def _snappy_blocks(content: bytes, path: str) -> Iterator[bytes]:
    """Return the blocks of snappy-java's ``SnappyOutputStream``."""
    if len(content) < _SNAPPY_HEADER.size or _SNAPPY_HEADER.unpack_from(content)[1:] != (1, 1):
        raise DamagedChangelogError(f"{path} has an unknown version of snappy's stream")
    codec, view, at = pa.Codec("snappy"), memoryview(content), _SNAPPY_HEADER.size
    while at < len(content):
        size = int.from_bytes(view[at : at + 4], "big", signed=True)
        at += 4
        if not 0 < size <= len(content) - at:
            raise DamagedChangelogError(f"{path} ends within a block")
        body = view[at : at + size]
        original = _variable_length(body)
        if original > _SNAPPY_GROWTH * size:
            raise DamagedChangelogError(f"{path} has a block with an impossible size")
        yield codec.decompress(body, original, asbytes=True)
        at += size


def _variable_length(body: memoryview) -> int:
    """Return the number that a snappy block starts with: the size of what it holds."""
    number = 0
    for place, byte in enumerate(body[:5]):
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            break
    return number
