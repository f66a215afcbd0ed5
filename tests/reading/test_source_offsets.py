"""Time travel by source offset: the newest epoch that has read no further than the offset."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import Source, counts, letters, run
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from synthetic import write

import streamstate as ss
from streamstate.errors import InvalidArgumentError, UnknownEpochError
from streamstate.snapshots.store.entries import Entry
from streamstate.snapshots.store.layout import CAPTURED
from streamstate.state_inspect.cuts.source_positions import epoch_at_offset


def entries(*offsets: Any, sources: Any = None) -> list[Entry]:
    """Epochs with these offsets, each a list with one offset per source."""
    facts = [json.dumps(offset) for offset in sources] if sources else [None] * len(offsets)
    return [
        Entry(epoch, CAPTURED, offsets=json.dumps(offset), sources=facts[epoch]) for epoch, offset in enumerate(offsets)
    ]


STEPS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=8)


@settings(max_examples=200, deadline=None)
@given(STEPS, st.integers(0, 12), st.none() | st.integers(0, 12))
def test_epoch_at_offset_matches_brute_force(steps: list[tuple[int, int]], limit_0: int, limit_1: int | None) -> None:
    """Each partition in the offset is compared; other partitions are not limited."""
    read = [(sum(a for a, _ in steps[: at + 1]), sum(b for _, b in steps[: at + 1])) for at in range(len(steps))]
    offsets = [[{"t": {"0": first, "1": second}}] for first, second in read]
    limit = {"t": {"0": limit_0} | ({} if limit_1 is None else {"1": limit_1})}
    fitting = [
        at for at, (first, second) in enumerate(read) if first <= limit_0 and (limit_1 is None or second <= limit_1)
    ]
    if fitting:
        assert epoch_at_offset(entries(*offsets), "q", limit).epoch == fitting[-1]
        assert epoch_at_offset(entries(*offsets), "q", json.dumps(limit)).epoch == fitting[-1]
    else:
        with pytest.raises(UnknownEpochError, match="Its first captured epoch, 0, has"):
            epoch_at_offset(entries(*offsets), "q", limit)


def test_delta_by_version_and_then_index() -> None:
    """An offset within a version counts; an offset of another table is not accepted."""
    places = [(1, 5), (2, -1), (2, 7), (3, -1)]
    epochs = entries(*([{"reservoirId": "r", "reservoirVersion": version, "index": at}] for version, at in places))
    limit = {"reservoirId": "r", "reservoirVersion": 2, "index": 6}
    assert epoch_at_offset(epochs, "q", limit).epoch == 1
    with pytest.raises(InvalidArgumentError, match="different Delta tables"):
        epoch_at_offset(epochs, "q", limit | {"reservoirId": "s"})


DELTA = [
    {"reservoirId": "r", "reservoirVersion": version, "index": index, "isStartingVersion": starting}
    for version, index, starting in [(2, 0, True), (2, 4, True), (3, -1, False), (4, 0, False), (5, -1, False)]
]
"""The snapshot of version 2 in three parts, then a commit that adds two files."""


@pytest.mark.parametrize(
    ("limit", "epoch"),
    [
        ({"version": 2}, 2),
        ({"version": 2, "file": 3}, 0),
        ({"version": 3}, 2),
        ({"version": 4, "file": 0}, 3),
        ({"version": 4}, 4),
        ({"version": 99}, 4),
        ('{"version": 4, "file": 0}', 3),
        (DELTA[1], 1),
    ],
)
def test_delta_by_version_in_words(limit: Any, epoch: int) -> None:
    """A version means all of its files; the next version before its first file is the same."""
    assert epoch_at_offset(entries(*([offset] for offset in DELTA)), "q", limit).epoch == epoch


@pytest.mark.parametrize(
    ("offsets", "limit", "error", "message"),
    [
        (DELTA, {"version": 1}, UnknownEpochError, r'epoch, 0, has \{"version": 2, "file": 0\}'),
        (DELTA, {"version": "x"}, InvalidArgumentError, '"x" is not a number.\nEpoch 4 has {"version": 4}'),
        (DELTA, {"reservoirVersion": 4}, InvalidArgumentError, 'a table version is written {"version": 17}'),
        ([{"t": {"0": 1}}], {"version": 1}, InvalidArgumentError, "only sources that read Delta tables"),
    ],
)
def test_invalid_versions(offsets: list[Any], limit: Any, error: type[Exception], message: str) -> None:
    """The message shows what the epochs have, as it is written."""
    pattern = message if error is UnknownEpochError else re.escape(message)
    with pytest.raises(error, match=pattern):
        epoch_at_offset(entries(*([offset] for offset in offsets)), "q", limit)


def test_several_sources_take_a_list() -> None:
    """None stands for a source that does not matter."""
    epochs = entries([1, 10], [2, 20], [3, None], [4, 40])
    assert epoch_at_offset(epochs, "q", [3, None]).epoch == 2
    assert epoch_at_offset(epochs, "q", [9, 25]).epoch == 2
    assert epoch_at_offset(epochs, "q", [9, 5 * 10]).epoch == 3
    for wrong in (3, [3], [1, 2, 3], [None, None]):
        with pytest.raises(InvalidArgumentError, match="has 2 sources"):
            epoch_at_offset(epochs, "q", wrong)


def test_files_are_counted() -> None:
    """However many files a batch reads; an unknown count is reported."""
    known = [[{"kind": "files", "files": number}] for number in (3, 6, 9)]
    epochs = entries(*([{"logOffset": at}] for at in range(3)), sources=known)
    assert [epoch_at_offset(epochs, "q", {"files": limit}).epoch for limit in (3, 5, 8, 100)] == [0, 0, 1, 2]
    assert epoch_at_offset(epochs, "q", {"logOffset": 1}).epoch == 1
    with pytest.raises(UnknownEpochError, match=r'has \{"logOffset": 0\} \(3 files\)'):
        epoch_at_offset(epochs, "q", {"files": 2})
    with pytest.raises(InvalidArgumentError, match="not known"):
        epoch_at_offset(entries([{"logOffset": 0}]), "q", {"files": 2})


@pytest.mark.parametrize("offset", [True, {"other": 1}, {"t": 1}, {"t": {"9": 1}}, {"t": {"0": "1"}}, [{"t": []}]])
def test_an_incomparable_offset_shows_a_valid_one(offset: Any) -> None:
    """The epoch is never guessed."""
    with pytest.raises(InvalidArgumentError, match=r'Epoch 0 has \{"t": \{"0": 5\}\}'):
        epoch_at_offset(entries([{"t": {"0": 5}}]), "q", offset)


def test_an_offset_that_is_not_json_is_rejected() -> None:
    """The error shows how offsets are written."""
    with pytest.raises(InvalidArgumentError, match="not JSON"):
        epoch_at_offset(entries([1]), "q", "{")


def test_a_history_finds_an_epoch_by_offset(tmp_path: Path) -> None:
    """``history.at(offset=…)`` returns the snapshot; epochs whose offsets Spark has purged are skipped."""
    facts: list[dict[str, Any]] = [{"offsets": text} for text in ("[0]", "[4]", None, "[9]")]
    write(tmp_path, [{"a": epoch} for epoch in range(4)], facts=facts)
    history = ss.open_store(tmp_path)["q"]
    assert [history.at(offset=limit).epoch for limit in (0, 3, 4, 8, 9)] == [0, 0, 1, 1, 3]
    with pytest.raises(InvalidArgumentError, match="exactly one of"):
        history.at(3, offset=4)
    write(tmp_path / "none", [{"a": 1}], facts=[{"offsets": None}])
    with pytest.raises(UnknownEpochError, match="No captured epoch of q has source offsets"):
        ss.open_store(tmp_path / "none")["q"].at(offset=3)


def test_a_snapshots_own_offsets_find_it(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    """A query run by Spark is found by the offsets of each of its snapshots."""
    for epoch in range(3):
        source.add(letters(epoch))
    run(counts(source), tmp_path / "counts")
    ss.Checkpoint(tmp_path / "counts").capture(tmp_path / "store", spark=spark)
    history = ss.open_store(tmp_path / "store")["counts"]
    assert [history.at(offset=history.at(epoch).offsets).epoch for epoch in range(3)] == [0, 1, 2]
    assert history.at(offset={"files": 2}).epoch == 1


LATER: list[list[Any]] = [
    [{"t": {"0": 5}}],
    [{"t": {"0": 9, "1": 0}}],
    [{"t": {"0": 9, "1": 4}, "new": {"0": 2}}],
    [{"t": {"0": 12, "1": 4}, "new": {"0": 7}}],
]
"""A topic that gets another partition, and another topic."""


@pytest.mark.parametrize(
    ("offset", "epoch"),
    [
        ({"t": {"1": 0}}, 1),
        ({"t": {"1": 3}}, 1),
        ({"t": {"0": 9, "1": 4}}, 2),
        ({"new": {"0": 1}}, 1),
        ({"new": {"0": 6}}, 2),
        ({"t": {0: 8, 1: 99}}, 0),
        ({"t": {0: 9}, "new": {0: 0}}, 1),
        ('{"t": {"1": 3}}', 1),
    ],
)
def test_an_epoch_before_a_partition_was_there_has_read_nothing_of_it(offset: Any, epoch: int) -> None:
    """Nor of a topic. Partitions may be integers."""
    assert epoch_at_offset(entries(*LATER), "q", offset).epoch == epoch


def test_a_partition_that_no_epoch_has_read_is_a_mistake() -> None:
    """The error shows what there is."""
    with pytest.raises(InvalidArgumentError, match=r"no partition in common.*\nEpoch 3 has"):
        epoch_at_offset(entries(*LATER), "q", {"t": {"7": 3}})
    with pytest.raises(UnknownEpochError, match="reflects more"):
        epoch_at_offset(entries(*LATER), "q", {"t": {0: 4}})
