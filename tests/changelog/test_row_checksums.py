"""The checksums that Spark puts into rows are verified and taken out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelog.spark_files import changelog, changes_of, with_checksums
from streamstate.snapshots.checkpoint.decoding.changelog_records import DELETE, MERGE, PUT, records_of
from streamstate.snapshots.checkpoint.decoding.failures import DamagedChangelogError
from streamstate.snapshots.checkpoint.decoding.integrity import without_checksums

BYTES = st.binary(max_size=12)
DELETES = st.tuples(st.just(DELETE), BYTES, st.none())
SINGLE = st.one_of(DELETES, st.tuples(st.just(PUT), BYTES, st.tuples(BYTES)))
MERGED = st.one_of(SINGLE, st.tuples(st.sampled_from([PUT, MERGE]), BYTES, st.lists(BYTES, min_size=1, max_size=4)))


@given(st.lists(SINGLE, max_size=6))
def test_the_hdfs_provider_writes_no_sizes(changes: list[tuple[int, bytes, tuple[bytes, ...] | None]]) -> None:
    """A checksum alone stands before the value."""
    payload = changelog(with_checksums(changes, hdfs=True, delimiter=b""), 1)
    plain = [(kind, key, values and values[0]) for kind, key, values in changes]
    assert changes_of(without_checksums(records_of(payload, "1.delta"))) == plain


@given(st.lists(MERGED, max_size=6), st.booleans())
def test_values_that_were_merged_come_together(
    changes: list[tuple[int, bytes, list[bytes] | None]], delimited: bool
) -> None:
    """Each has its own checksum; what is left is what stands there without the setting."""
    delimiter = b"," if delimited else b""
    records = records_of(changelog(with_checksums(changes, hdfs=False, delimiter=delimiter), 4), "1.changelog")
    plain = [(kind, key, None if values is None else delimiter.join(values)) for kind, key, values in changes]
    assert changes_of(without_checksums(records, delimited=delimited)) == plain


@given(st.lists(MERGED, min_size=1, max_size=4), st.data())
def test_no_bit_of_a_key_or_value_can_be_flipped(
    changes: list[tuple[int, bytes, list[bytes] | None]], data: st.DataObject
) -> None:
    """A checksum covers the key and the value."""
    records = records_of(changelog(with_checksums(changes, hdfs=False, delimiter=b","), 4), "1.changelog")
    row = data.draw(st.integers(0, len(records) - 1))
    places = [*range(records.key_at[row], records.key_at[row] + records.key_size[row])]
    if records.value_size[row] >= 0:
        # Not the delimiters, which Spark does not read either.
        places += [*range(records.value_at[row], records.value_at[row] + 8 + len(next(iter(changes[row][2] or [b""]))))]
    damaged = records.buffer.copy()
    damaged[data.draw(st.sampled_from(places))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(DamagedChangelogError):
        without_checksums(replace(records, buffer=damaged))


def test_rows_without_checksums_are_damage() -> None:
    """The setting belongs to the whole checkpoint."""
    for changes in ([(PUT, b"key", b"value")], [(PUT, b"key", b"long enough value")], [(DELETE, b"ke", None)]):
        with pytest.raises(DamagedChangelogError):
            without_checksums(records_of(changelog(changes, 1), "1.changelog"))
