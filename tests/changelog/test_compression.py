"""Decompressing a codec's stream returns its content or raises an error."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelog.spark_files import CODECS, compressed, lz4, recorded_files
from streamstate.snapshots.checkpoint.decoding.compression import decompressed
from streamstate.snapshots.checkpoint.decoding.failures import (
    ChangelogError,
    DamagedChangelogError,
    UnsupportedChangelogError,
)

PAYLOADS = st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=30).map(lambda parts: b"".join(parts * 3))


@given(PAYLOADS, st.sampled_from(CODECS), st.integers(64, 300))
def test_what_was_compressed_comes_back(payload: bytes, codec: str, block: int) -> None:
    """Every codec gives back what went in, whatever the size of its blocks."""
    assert decompressed(compressed(payload, codec, block=block), "1.delta") == payload


@given(PAYLOADS, st.sampled_from(CODECS[:3]), st.data())
def test_a_file_that_ends_too_early_is_damaged(payload: bytes, codec: str, data: st.DataObject) -> None:
    """Snappy is missing here: it has no end mark, and only the records show where the file should end."""
    content = compressed(payload, codec, block=100)
    with pytest.raises(DamagedChangelogError):
        decompressed(content[: data.draw(st.integers(8, len(content) - 1))], "1.delta")


def test_lz4_shows_every_flipped_bit() -> None:
    """But for the few that nothing depends on, such as the largest size that a block could have."""
    payload = b"records" * 20 + bytes(range(64))
    content = lz4(payload, block=140)
    seen = 0
    for place in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[place // 8] ^= 1 << place % 8
        try:
            assert decompressed(bytes(flipped), "1.delta") == payload
        except ChangelogError:
            seen += 1
    assert seen > 0.98 * 8 * len(content)


def test_an_end_mark_of_lz4_must_be_the_end() -> None:
    """Nothing may follow it, such as a second copy of the file."""
    content = lz4(b"records")
    for more in (b"x", content, content[-21:]):
        with pytest.raises(DamagedChangelogError, match="not its end"):
            decompressed(content + more, "1.delta")


def test_an_empty_file_is_damaged() -> None:
    """Even a file without changes has an end mark."""
    with pytest.raises(DamagedChangelogError, match=r"7\.delta is empty"):
        decompressed(b"", "7.delta")


@pytest.mark.parametrize("content", [b"ZV\x00\x00\x01x", b"v2", b"\x00", bytes(pa.compress(b"x" * 99, codec="gzip"))])
def test_another_codec_is_not_supported(content: bytes) -> None:
    """The error names the codecs that are known."""
    with pytest.raises(UnsupportedChangelogError, match="lz4, zstd"):
        decompressed(content, "1.delta")


def test_a_block_cannot_claim_more_than_its_bytes_can_hold() -> None:
    """So that a damaged size never makes the reader allocate memory for it."""
    content = bytearray(lz4(b"records" * 20, block=32 << 20))
    content[13:17] = (32 << 20).to_bytes(4, "little")
    with pytest.raises(DamagedChangelogError, match="impossible size"):
        decompressed(bytes(content), "1.delta")


def test_a_bomb_is_left_to_spark() -> None:
    """Zstd has no limit of its own; in memory, at most what the limit allows is unpacked."""
    bomb = compressed(bytes(300 << 20), "zstd")
    assert len(bomb) < 1 << 20
    before = pa.total_allocated_bytes()
    with pytest.raises(UnsupportedChangelogError, match="grows to more than 255 times its size"):
        decompressed(bomb, "1.delta")
    assert pa.total_allocated_bytes() - before < 1 << 20
    assert len(decompressed(compressed(bytes(60 << 20), "zstd"), "1.delta")) == 60 << 20


def test_recorded_files_are_complete() -> None:
    """Their payloads end with the end mark of version 1, or that of version 3."""
    for file in recorded_files("4.1"):
        assert decompressed(file.content, file.path).endswith(b"\xff" * 4)
