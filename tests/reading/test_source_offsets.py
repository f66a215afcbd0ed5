"""Travel by source offset: the newest epoch that reflects no more than the offset says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Source, counts, letters, run
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from synthetic import write

import streamstate as ss
from streamstate.snapshots.errors import InvalidArgumentError, UnknownEpochError
from streamstate.snapshots.layout import CAPTURED
from streamstate.snapshots.manifest import Entry
from streamstate.state_inspect.cuts.source_offsets import epoch_at_offset


def entries(*offsets: Any, sources: Any = None) -> list[Entry]:
    """Epochs with such offsets, each a list of one for each source."""
    told = [json.dumps(one) for one in sources] if sources else [None] * len(offsets)
    return [Entry(epoch, CAPTURED, offsets=json.dumps(one), sources=told[epoch]) for epoch, one in enumerate(offsets)]


STEPS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=8)


@settings(max_examples=200, deadline=None)
@given(STEPS, st.integers(0, 12), st.none() | st.integers(0, 12))
def test_no_partition_is_further_and_no_later_epoch_would_do(
    steps: list[tuple[int, int]], one: int, other: int | None
) -> None:
    """Each partition that the offset names is compared; one that it does not name is not limited."""
    read = [(sum(a for a, _ in steps[: at + 1]), sum(b for _, b in steps[: at + 1])) for at in range(len(steps))]
    offsets = [[{"t": {"0": first, "1": second}}] for first, second in read]
    limit = {"t": {"0": one} | ({} if other is None else {"1": other})}
    fitting = [at for at, (first, second) in enumerate(read) if first <= one and (other is None or second <= other)]
    if fitting:
        assert epoch_at_offset(entries(*offsets), "q", limit).epoch == fitting[-1]
        assert epoch_at_offset(entries(*offsets), "q", json.dumps(limit)).epoch == fitting[-1]
    else:
        with pytest.raises(UnknownEpochError, match="The first that is captured, 0, has"):
            epoch_at_offset(entries(*offsets), "q", limit)


def test_delta_by_version_and_then_index() -> None:
    """An offset within a version counts; another table's offset is no offset of this one."""
    places = [(1, 5), (2, -1), (2, 7), (3, -1)]
    told = entries(*([{"reservoirId": "r", "reservoirVersion": version, "index": at}] for version, at in places))
    limit = {"reservoirId": "r", "reservoirVersion": 2, "index": 6}
    assert epoch_at_offset(told, "q", limit).epoch == 1
    with pytest.raises(InvalidArgumentError, match="different Delta tables"):
        epoch_at_offset(told, "q", limit | {"reservoirId": "s"})


def test_several_sources_take_a_list() -> None:
    """None for one that does not matter."""
    told = entries([1, 10], [2, 20], [3, None], [4, 40])
    assert epoch_at_offset(told, "q", [3, None]).epoch == 2
    assert epoch_at_offset(told, "q", [9, 25]).epoch == 2
    assert epoch_at_offset(told, "q", [9, 5 * 10]).epoch == 3
    for wrong in (3, [3], [1, 2, 3], [None, None]):
        with pytest.raises(InvalidArgumentError, match="has 2 sources"):
            epoch_at_offset(told, "q", wrong)


def test_files_are_counted() -> None:
    """However many the query takes at a time; where the count is not known it says so."""
    known = [[{"kind": "files", "files": number}] for number in (3, 6, 9)]
    told = entries(*([{"logOffset": at}] for at in range(3)), sources=known)
    assert [epoch_at_offset(told, "q", {"files": limit}).epoch for limit in (3, 5, 8, 100)] == [0, 0, 1, 2]
    assert epoch_at_offset(told, "q", {"logOffset": 1}).epoch == 1
    with pytest.raises(UnknownEpochError, match=r'has \{"logOffset": 0\} \(3 files\)'):
        epoch_at_offset(told, "q", {"files": 2})
    with pytest.raises(InvalidArgumentError, match="not known"):
        epoch_at_offset(entries([{"logOffset": 0}]), "q", {"files": 2})


@pytest.mark.parametrize("offset", [True, {"other": 1}, {"t": 1}, {"t": {"9": 1}}, {"t": {"0": "1"}}, [{"t": []}]])
def test_what_cannot_be_compared_shows_what_could(offset: Any) -> None:
    """Never a guess."""
    with pytest.raises(InvalidArgumentError, match=r'Epoch 0 has \{"t": \{"0": 5\}\}'):
        epoch_at_offset(entries([{"t": {"0": 5}}]), "q", offset)


def test_text_that_is_no_json() -> None:
    """It says how offsets are written."""
    with pytest.raises(InvalidArgumentError, match="is no JSON"):
        epoch_at_offset(entries([1]), "q", "{")


def test_through_a_history(tmp_path: Path) -> None:
    """``history.at(offset=…)`` gives the snapshot; epochs whose offsets Spark had purged are passed over."""
    facts: list[dict[str, Any]] = [{"offsets": text} for text in ("[0]", "[4]", None, "[9]")]
    write(tmp_path, [{"a": epoch} for epoch in range(4)], facts=facts)
    history = ss.open_store(tmp_path)["q"]
    assert [history.at(offset=limit).epoch for limit in (0, 3, 4, 8, 9)] == [0, 0, 1, 1, 3]
    with pytest.raises(InvalidArgumentError, match="one of the two"):
        history.at(3, offset=4)
    write(tmp_path / "none", [{"a": 1}], facts=[{"offsets": None}])
    with pytest.raises(UnknownEpochError, match="No captured epoch of q has source offsets"):
        ss.open_store(tmp_path / "none")["q"].at(offset=3)


def test_of_a_real_query(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    """A snapshot's own offsets lead back to it."""
    for epoch in range(3):
        source.add(letters(epoch))
    run(counts(source), tmp_path / "counts")
    ss.capture(tmp_path / "counts", tmp_path / "store", spark=spark)
    history = ss.open_store(tmp_path / "store")["counts"]
    assert [history.at(offset=history.at(epoch).offsets).epoch for epoch in range(3)] == [0, 1, 2]
    assert history.at(offset={"files": 2}).epoch == 1
