"""``KeyCounts`` maps digests of keys to counts, like a dict."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamstate.snapshots.key_digests import KeyCounts


def put(counts: KeyCounts, digests: Sequence[int], values: Sequence[int]) -> None:
    """Put integers."""
    counts.put(np.array(digests, "uint64"), np.array(values, "int64"))


def get(counts: KeyCounts, digests: Sequence[int]) -> list[int]:
    """Get integers."""
    return [int(count) for count in counts.get(np.array(digests, "uint64"))]


_DIGESTS = st.one_of(st.integers(0, 40), st.integers(2**64 - 40, 2**64 - 1), st.integers(0, 2**64 - 1))
_EPOCHS = st.lists(st.dictionaries(_DIGESTS, st.integers(0, 3), max_size=30), max_size=30)


@settings(deadline=None)
@given(epochs=_EPOCHS, in_memory=st.sampled_from([0, 5, 1000]))
def test_it_agrees_with_a_dict(epochs: list[dict[int, int]], in_memory: int) -> None:
    """Each digest has its newest count, unknown digests have 0, and the total is the sum of the counts."""
    counts, expected = KeyCounts(count="int64", in_memory=in_memory), dict[int, int]()
    for epoch in epochs:
        put(counts, sorted(epoch), [epoch[digest] for digest in sorted(epoch)])
        expected |= epoch
        digests = sorted({*expected, 7, 2**63})
        assert get(counts, digests) == [expected.get(digest, 0) for digest in digests]
        assert counts.total == sum(expected.values())


@settings(deadline=None)
@given(epochs=st.lists(st.sets(st.binary(min_size=16, max_size=16), min_size=1, max_size=9), max_size=9))
def test_wide_digests_are_compared_to_the_last_byte(epochs: list[set[bytes]]) -> None:
    """Digests of 16 bytes are compared exactly, even if they end in zeros."""
    counts, expected = KeyCounts("S16", "int64"), dict[bytes, int]()
    for number, epoch in enumerate(epochs, 1):
        counts.put(np.array(sorted(epoch), "S16"), np.full(len(epoch), number))
        expected |= dict.fromkeys(epoch, number)
    digests = np.array(sorted(expected), "S16")
    assert counts.get(digests).tolist() == [expected[digest] for digest in sorted(expected)]


def test_memory_depends_on_live_keys_only() -> None:
    """Digests of removed keys, such as expired windows, are discarded."""
    counts = KeyCounts()
    for epoch in range(300):
        put(counts, range(epoch * 100, epoch * 100 + 100), [1] * 100)
        if epoch:
            put(counts, range(epoch * 100 - 100, epoch * 100), [0] * 100)
    assert counts.total == 100
    assert sum(len(run.digests) for run in counts._runs) < 10_000


def test_unchanged_counts_take_no_memory() -> None:
    """Putting the same counts again, as most changes of an aggregate do, adds no run."""
    counts = KeyCounts()
    put(counts, range(1000), [1] * 1000)
    run = counts._runs[0]
    put(counts, range(500), [1] * 500)
    assert counts._runs == [run]


@pytest.mark.parametrize("blocks", [1, 3])
def test_a_large_run_is_mapped_from_disk(blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit, the lowest run is in a file, so that the driver's memory does not grow with the state."""
    monkeypatch.setattr("streamstate.snapshots.key_digests._BLOCK", 1000 // blocks)
    counts = KeyCounts(in_memory=999)
    put(counts, range(0, 1000, 2), [1] * 500)
    assert not isinstance(counts._runs[0].digests, np.memmap)
    put(counts, range(1, 1000, 2), [1] * 500)
    assert isinstance(counts._runs[0].digests, np.memmap)
    assert get(counts, range(1001)) == [1] * 1000 + [0]
