"""Records come back as they were written, and no position lies outside the payload."""

from __future__ import annotations

import contextlib
import random
import struct
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelog.spark_files import LINEAGE, Change, changelog, changes_of, utf
from streamstate.snapshots.checkpoint.decoding import framing
from streamstate.snapshots.checkpoint.decoding.changelog_records import DELETE, MERGE, PUT, gathered, records_of
from streamstate.snapshots.checkpoint.decoding.failures import (
    ChangelogError,
    DamagedChangelogError,
    UnsupportedChangelogError,
)

SIZES = st.sampled_from([0, 1, 7, 8, 24, 25])
VERSIONS = st.sampled_from([1, 2, 3, 4])


def change(version: int) -> st.SearchStrategy[Change]:
    """A change that a version of the changelog can hold."""
    kinds = [PUT, DELETE, MERGE] if version in {2, 4} else [PUT, DELETE]
    content = SIZES.flatmap(lambda size: st.binary(min_size=size, max_size=size))
    put = st.tuples(st.sampled_from(kinds), content, content)
    return put.map(lambda it: (it[0], it[1], None if it[0] == DELETE else it[2]))


@st.composite
def files(draw: st.DrawFn) -> tuple[int, list[Change]]:
    """A version and changes; some stand there many times, so that records of one size follow each other."""
    version = draw(VERSIONS)
    parts = draw(st.lists(st.tuples(change(version), st.sampled_from([1, 2, 63, 64, 65, 130])), max_size=8))
    return version, [part for part, times in parts for _ in range(times)]


@pytest.fixture(autouse=True, params=["one walk", "many walks"])
def walks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test with payloads that are walked through once, and with such that are walked through from many places."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "many walks":
            patch.setattr(framing, "_SAMPLE", 2)
            patch.setattr(framing, "_APART", 50)
        yield


@given(files())
def test_records_come_back(file: tuple[int, list[Change]]) -> None:
    """In every version, in runs of one size and mixed."""
    version, changes = file
    records = records_of(changelog(changes, version), "3.changelog")
    assert changes_of(records) == changes
    assert (records.version, records.lineage) == (version, LINEAGE if version > 2 else None)
    assert len(records) == len(changes)


@given(st.lists(change(1), max_size=5))
def test_a_delta_file_has_the_records_of_version_1(changes: list[Change]) -> None:
    """The HDFS provider writes them."""
    assert changes_of(records_of(changelog(changes, 1), "3.delta")) == changes


@given(files(), st.randoms(use_true_random=False))
def test_whatever_the_bytes_no_position_lies_outside(file: tuple[int, list[Change]], rng: random.Random) -> None:
    """The end mark stays, so that the damage reaches the records."""
    payload = bytearray(changelog(file[1], file[0]))
    for _ in range(rng.randrange(1, 4)):
        payload[rng.randrange(len(payload))] = rng.choice([0, 1, 0x10, 0x7F, 0x80, 0xFF, rng.randrange(256)])
    with contextlib.suppress(ChangelogError):
        changes_of(records_of(bytes(payload), "3.changelog"))


@given(files(), st.data())
def test_a_payload_that_ends_elsewhere_is_damaged(file: tuple[int, list[Change]], data: st.DataObject) -> None:
    """The end mark is there, and is the end."""
    version, changes = file
    payload = changelog([*changes, (PUT, b"key", b"value")], version)
    size = data.draw(st.integers(0, len(payload) - 1))
    with pytest.raises(DamagedChangelogError):
        changes = changes_of(records_of(payload[:size], "3.changelog"))
    for more in (payload, b"\x00", b"\xff" * 4):
        with pytest.raises(ChangelogError):
            records_of(payload + more, "3.changelog")


@pytest.mark.parametrize("size", [-2, -8, -9, -(2**31), 2**31 - 1, 6, 100])
@pytest.mark.parametrize("version", [1, 2, 3, 4])
@pytest.mark.parametrize("before", [0, 100])
def test_a_length_that_does_not_fit_is_damage(size: int, version: int, before: int) -> None:
    """In a run of equal records and without one."""
    payload = changelog([(PUT, b"key", b"value")] * (before + 1), version)
    start = payload.rindex(struct.pack(">i", 3) + b"key")
    for place in (start, start + 7):
        wrong = payload[:place] + struct.pack(">i", size) + payload[place + 4 :]
        with pytest.raises(DamagedChangelogError):
            records_of(wrong, "3.changelog")


def test_a_long_key_of_version_1_is_not_taken_for_a_version() -> None:
    """A key of 130,000 to 200,000 bytes starts like a text, as a version does."""
    for size in (0x0001_7600, 0x0002_7600 + ord("x"), 0x0003_7600 + ord("2")):
        changes: list[Change] = [(PUT, b"z" * size, b"value")]
        assert changes_of(records_of(changelog(changes, 1), "3.changelog")) == changes
    many_digits: list[Change] = [(PUT, b"1" * (0x000A_7600 + ord("1")), b"value")]
    assert changes_of(records_of(changelog(many_digits, 1), "3.changelog")) == many_digits


def test_a_type_must_match_its_value() -> None:
    """A put has a value, a deleted key has none."""
    for change in ((PUT, b"key", None), (MERGE, b"key", None), (DELETE, b"key", b""), (DELETE, b"key", b"value")):
        for changes in ([change], [change] * 100, [(PUT, b"k", b"v"), change]):
            with pytest.raises(DamagedChangelogError, match="does not match its value"):
                records_of(changelog(changes, 2), "3.changelog")


@pytest.mark.parametrize("version", [1, 2])
def test_only_minus_one_stands_for_no_value(version: int) -> None:
    """Spark writes no other negative size."""
    payload = changelog([(PUT, b"k", b"v"), (DELETE, b"key", None)], version)
    start = payload.index(b"key") + 3
    with pytest.raises(DamagedChangelogError):
        records_of(payload[:start] + struct.pack(">i", -2) + payload[start + 4 :], "3.changelog")


def test_a_delta_file_has_no_version_even_if_its_first_bytes_look_like_one() -> None:
    """Spark reads the same bytes in a changelog as version 2."""
    changes: list[Change] = [(PUT, b"z" * 0x0002_7632, b"value")]
    assert changes_of(records_of(changelog(changes, 1), "3.delta")) == changes


@pytest.mark.parametrize("version", ["v0", "v1", "v5", "v10"])
def test_other_versions_are_not_supported(version: str) -> None:
    """The error names the versions that are known."""
    with pytest.raises(UnsupportedChangelogError, match="1 to 4 are known"):
        records_of(utf(version) + b"\x00", "3.changelog")


@pytest.mark.parametrize("lineage", [b"", b"\x00", b"\x00\x05[]", utf("{}"), utf("[1]"), utf("[")])
def test_a_lineage_that_cannot_be_read_is_damage(lineage: bytes) -> None:
    """It is a list of objects."""
    with pytest.raises(DamagedChangelogError):
        records_of(utf("v4") + lineage + b"\x00", "3.changelog")


def test_a_range_of_keys_that_is_deleted_is_not_supported() -> None:
    """Spark's own change feed rejects it too."""
    with pytest.raises(UnsupportedChangelogError, match="type 32"):
        records_of(changelog([(PUT, b"k", b"v"), (0x20, b"a", b"z")], 2), "3.changelog")


def test_an_end_mark_before_the_end_is_damage() -> None:
    """Bytes behind it that look like records are not read."""
    for version, mark in ((1, b"\xff" * 4), (2, b"\x00" + b"\x00" * 8)):
        payload = changelog([(PUT, b"key", b"value")], version)
        with pytest.raises(DamagedChangelogError):
            records_of(payload[: -1 if version == 2 else -4] + mark + payload[-20:], "3.changelog")


def test_numbers_can_be_gathered_up_to_the_end_of_the_last_value() -> None:
    """The buffer is padded with zeros."""
    records = records_of(changelog([(PUT, b"key", b"value")], 2), "3.changelog")
    ends = records.value_at + records.value_size
    assert gathered(records.buffer, ends, "V16").tobytes() == bytes(16)
    assert gathered(records.buffer, np.array([1]), ">u2").tolist() == [0x0276]
