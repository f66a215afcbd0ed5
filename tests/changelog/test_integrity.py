"""Checks that a file has the bytes that Spark wrote."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelog.spark_files import StateFile, compressed, hadoop_sidecar, recorded_files, spark_sidecar
from streamstate.snapshots.checkpoint.decoding.failures import DamagedChangelogError, UnsupportedChangelogError
from streamstate.snapshots.checkpoint.decoding.integrity import Proof, own_sums, verify

CONTENT = st.binary(min_size=1, max_size=1500)


@given(CONTENT)
def test_a_file_matches_the_checksums_of_its_bytes(content: bytes) -> None:
    """The strongest proof is returned."""
    spark, hadoop = spark_sidecar(content), hadoop_sidecar(content)
    assert verify(content, "1.delta", spark=spark, hadoop=hadoop) is Proof.SPARK
    assert verify(content, "1.delta", spark=spark) is Proof.SPARK
    assert verify(content, "1.delta", hadoop=hadoop) is Proof.HADOOP


@given(CONTENT, CONTENT)
def test_no_other_bytes_match(content: bytes, other: bytes) -> None:
    """Another file, of whatever size, does not match."""
    if content == other:
        return
    for sidecar in ({"spark": spark_sidecar(content)}, {"hadoop": hadoop_sidecar(content)}):
        with pytest.raises(DamagedChangelogError):
            verify(other, "1.delta", **sidecar)


@given(CONTENT, st.integers(0, 1499), st.integers(0, 7))
def test_no_bit_can_be_flipped(content: bytes, place: int, bit: int) -> None:
    """A single bit shows."""
    flipped = bytearray(content)
    flipped[place % len(content)] ^= 1 << bit
    for sidecar in ({"spark": spark_sidecar(content)}, {"hadoop": hadoop_sidecar(content)}):
        with pytest.raises(DamagedChangelogError):
            verify(bytes(flipped), "1.delta", **sidecar)


@pytest.mark.parametrize("sidecar", [b"", b"{}", b"[]", b"null", b"\xff\xfe", b'{"algorithm": "CRC32C"}'])
def test_a_damaged_checksum_file_is_an_error(sidecar: bytes) -> None:
    """A file that cannot be compared is not taken for proven."""
    with pytest.raises(DamagedChangelogError, match="not a checksum file"):
        verify(b"content", "1.delta", spark=sidecar)


def test_a_checksum_file_of_hadoop_without_sums_is_an_error() -> None:
    """A file that cannot be compared is not taken for proven."""
    with pytest.raises(DamagedChangelogError):
        verify(b"content", "1.delta", hadoop=b"crc\x00\x00\x00\x00\x00")


@pytest.mark.parametrize("sidecar", [b"", b"crc\x00", b"xxx\x00\x00\x00\x02\x00abcd"])
def test_a_checksum_file_without_hadoops_header_is_ignored(sidecar: bytes) -> None:
    """As by Hadoop, so that Spark reads the file; it proves nothing."""
    assert verify(b"content", "1.delta", hadoop=sidecar) is Proof.NONE


def test_the_size_is_compared_too() -> None:
    """As Spark does it, for files that share their checksum."""
    sidecar = json.dumps(json.loads(spark_sidecar(b"content")) | {"mainFileSize": 8}).encode()
    with pytest.raises(DamagedChangelogError, match="does not match"):
        verify(b"content", "1.delta", spark=sidecar)


def test_another_algorithm_is_not_supported() -> None:
    """Spark may choose another one in a later version."""
    sidecar = json.dumps(json.loads(spark_sidecar(b"content")) | {"algorithm": "SHA256"}).encode()
    with pytest.raises(UnsupportedChangelogError, match="SHA256"):
        verify(b"content", "1.delta", spark=sidecar)


def test_without_a_checksum_file_the_codec_decides() -> None:
    """lz4 has hashes, zstd may have a checksum, snappy has nothing."""
    expected = {"lz4": Proof.CODEC, "zstd": Proof.NONE, "zstd with a checksum": Proof.CODEC, "snappy": Proof.NONE}
    for codec, proof in expected.items():
        content = compressed(b"records", codec)
        assert verify(content, "1.delta") is proof
        assert own_sums(content) is (proof is Proof.CODEC)
    assert verify(b"", "1.delta") is Proof.NONE


def test_recorded_files_match_all_their_checksums() -> None:
    """Hadoop wrote one beside each; Spark 4.1 does too, and 4.2 does in checkpoint format 2."""
    with_spark = {version: _with_spark_sidecar(recorded_files(version)) for version in ("4.0", "4.1", "4.2")}
    assert with_spark == {
        "4.0": set(),
        "4.1": {"HDFS", "RocksDB-with-changelog", "RocksDB-format-2"},
        "4.2": {"RocksDB-format-2"},
    }


def _with_spark_sidecar(files: tuple[StateFile, ...]) -> set[str]:
    for file in files:
        assert file.hadoop is not None
        assert verify(file.content, file.path, hadoop=file.hadoop) is Proof.HADOOP
        if file.spark is not None:
            assert verify(file.content, file.path, spark=file.spark) is Proof.SPARK
    return {file.path.split("/")[1] for file in files if file.spark is not None}
