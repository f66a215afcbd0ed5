"""Past epochs are loaded by themselves: what a question costs does not depend on how many epochs there are."""

from __future__ import annotations

import gc
import threading
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from synthetic import LOG, State, copy_of, write

import streamstate as ss
from streamstate.errors import IndexFullError
from streamstate.reports import History
from streamstate.snapshots.checkpoint.state_tables import EPOCH
from streamstate.snapshots.store import merging
from streamstate.snapshots.store.changelog import KEYFRAME
from streamstate.snapshots.store.delta import append_once, maintenance
from streamstate.snapshots.store.delta.commits import required
from streamstate.snapshots.store.delta.reading import TableVersion
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.merging import merge_log, sort_log
from streamstate.state_inspect import captured_query
from streamstate.state_inspect.temporal_index import segments
from streamstate.state_inspect.temporal_index.interval_table import IntervalTable
from streamstate.state_inspect.temporal_index.loading import loading_progress

# Every epoch changes "a" and adds a key; a keyframe every five epochs.
STATES: list[State | None] = [{"a": epoch, **{f"k{at}": at for at in range(epoch)}} for epoch in range(40)]


@pytest.fixture
def history(tmp_path: Path) -> History:
    """A history of 40 epochs."""
    copy_of(tmp_path / "store", STATES, keyframe_every=5)
    return ss.open_store(tmp_path / "store")["q"]


def loaded(history: History) -> list[tuple[int | None, int]]:
    """The epochs of the interval tables."""
    return [(table.low, table.high) for table in history.recorded.index.loaded("q", "op0")]


def value(history: History, epoch: int) -> object:
    """The value of a key that every epoch changes."""
    row = history.at(epoch).table().lookup(key="a")
    return row and row["value"]


def test_an_epoch_is_loaded_with_those_read_from_the_same_keyframe(history: History) -> None:
    """The live epoch has a table of its own, which follows new epochs."""
    assert value(history, 12) == 12
    assert loaded(history) == [(10, 14)]
    assert value(history, 14) == 14
    assert loaded(history) == [(10, 14)]
    assert value(history, 39) == 39
    assert loaded(history) == [(35, 39), (10, 14)]


def test_epochs_that_are_far_apart_are_compared_state_by_state(history: History) -> None:
    """Neighbours are compared by what changed between them."""
    diff = history.diff(2, 31)
    assert (len(diff.added), len(diff.removed), len(diff.changed)) == (29, 0, 1)
    assert loaded(history) == [(0, 4), (30, 34)]
    assert [event["key"] for event in history.diff(33, 34).page().to_dict("records")] == ["a", "k33"]
    assert loaded(history) == [(0, 4), (30, 34)]
    assert len(history.diff(34, 35).added) == 1


@pytest.mark.exhaustive
def test_the_causes_of_changes_between_far_epochs(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read from the files, for the keys of the page."""
    monkeypatch.setattr(captured_query, "_SOON_READ", -1)
    page = history.diff(2, 31).page().set_index("key")
    assert list(page["_epochs"]["a"]) == list(range(3, 32))
    assert loaded(history) == [(0, 4), (30, 34)]


def test_a_key_is_read_from_the_files_that_have_it(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    """No table of all keys is loaded; new epochs are added to the key's versions."""
    monkeypatch.setattr(captured_query, "_SOON_READ", -1)
    assert history.key_history(key="k20")["epoch"].tolist() == [21]
    assert history.first("value = 17", key="a") == 17
    assert history.first("value = 17") == 17
    assert loaded(history) == []
    write(Path(history.recorded.layout.root), [*STATES, {"a": 40, "k20": 7}], keyframe_every=5)
    assert history.key_history(key="k20")["epoch"].tolist() == [21, 40]
    assert loaded(history) == []


def test_growth_counts_every_epoch_part_by_part(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    """The counts stay known after the parts are gone."""
    monkeypatch.setattr(captured_query, "_SOON_READ", -1)
    monkeypatch.setattr(segments, "_MOST_VALUES", 0)
    assert history.growth()["rows"].tolist() == list(range(1, 41))
    assert len(loaded(history)) == 1 + segments._KEPT
    assert [facts["op0"] for facts in history.epochs()["rows"]] == list(range(1, 41))


@pytest.mark.exhaustive
def test_parts_that_were_not_used_lately_are_dropped(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever holds a table can keep reading it."""
    monkeypatch.setattr(segments, "_MOST_VALUES", 0)
    held = history.at(2).table()
    for epoch in (7, 12, 17, 22):
        assert value(history, epoch) == epoch
    assert loaded(history) == [(10, 14), (15, 19), (20, 24)]
    gc.collect()
    assert held.lookup(key="a") == {"key": "a", "value": 2}


@pytest.mark.exhaustive
def test_a_small_memory_limit_keeps_fewer_parts(history: History) -> None:
    """They are dropped rather than moved to disk."""
    small = ss.open_store(history.recorded.layout.root, memory_limit="16MiB")["q"]
    for epoch in (2, 7, 12, 17, 22, 27):
        assert value(history, epoch) == value(small, epoch) == epoch
    assert len(loaded(history)) == 6
    assert loaded(small) == [(10, 14), (15, 19), (20, 24), (25, 29)]


@pytest.mark.exhaustive
def test_the_live_table_starts_again_when_it_has_become_large(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that follows a query for months needs no more memory. What is held can be read, and all is found."""
    monkeypatch.setattr(segments, "_MOST_LIVE", 0)
    folder, states, spans = Path(history.recorded.layout.root), [*STATES], []
    held = history.live()
    for epoch in range(len(STATES), len(STATES) + 25):
        states.append({"a": epoch})
        write(folder, states, keyframe_every=5)
        history.recorded.advance()
        assert history.live().table().lookup(key="a") == {"key": "a", "value": epoch}
        low, high = loaded(history)[0]
        spans.append(high - (low or 0))
    assert max(spans) < 20
    assert held.table().lookup(key="a") == {"key": "a", "value": len(STATES) - 1}
    assert len(history.key_history(key="a")) == len(states)
    assert history.growth()["rows"].tolist() == [len(state or {}) for state in states]


def test_parts_make_room_when_the_index_is_full(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading is tried once more without them; if there are none, the error says what to do."""
    assert value(history, 2) == 2
    full = [True]
    load = IntervalTable.load

    def fail_once(table: IntervalTable, part: object) -> None:
        if full.pop() if full else False:
            raise IndexFullError("full")
        load(table, part)  # type: ignore[arg-type]

    monkeypatch.setattr(IntervalTable, "load", fail_once)
    assert value(history, 12) == 12
    assert loaded(history) == [(10, 14)]
    full[:] = [True, True]
    with pytest.raises(IndexFullError):
        value(history, 22)


def test_nobody_waits_for_epochs_that_another_asked_for(history: History) -> None:
    """One thread is held up while it loads; another one reads other epochs meanwhile, and both are right."""
    loading, go_on = threading.Event(), threading.Event()
    found: list[object] = []

    def slow() -> None:
        def hold(_name: str, _read: int, _expected: int) -> None:
            loading.set()
            assert go_on.wait(60)

        with loading_progress(hold):
            found.append(value(history, 2))

    thread = threading.Thread(target=slow)
    thread.start()
    assert loading.wait(60)
    assert value(history, 12) == 12
    assert value(history, 39) == 39
    go_on.set()
    thread.join()
    assert found == [2]


@pytest.mark.exhaustive
def test_merged_files_are_sorted_by_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large keyframes stay files of their own, and large files are not merged again."""
    monkeypatch.setattr(maintenance, "_MANY", 10)
    monkeypatch.setattr(maintenance, "_ENOUGH_VALUES", 15 * len(LOG))
    monkeypatch.setattr(merging, "_SMALL_KEYFRAME", 8)
    log = Layout.at(tmp_path).changelog("q", "op0")
    for epoch in (9, 19, 39):
        write(tmp_path, STATES[: epoch + 1], tidy_every=1)
        state = STATES[epoch]
        assert state is not None
        rows = pa.table(
            [[epoch] * len(state), [KEYFRAME] * len(state), [0] * len(state), [*state], [*state.values()]], schema=LOG
        )
        append_once(log, "q/op0/keyframes", epoch, partial(all_of, rows))
    merge_log(log)
    version = TableVersion(log, required(log))
    files = version.files(EPOCH)
    assert [file.least for file in files if file.only_change == KEYFRAME] == [9, 19, 39]
    merged = [file for file in files if (file.rows or 0) >= 15 and file.only_change != KEYFRAME]
    assert len(merged) > 2
    for file in merged:
        found = version.scan_files([file]).read_all().to_pylist()
        assert [(row["key"], row[EPOCH]) for row in found] == sorted((row["key"], row[EPOCH]) for row in found)
    history = ss.open_store(tmp_path)["q"]
    for epoch, expected in enumerate(STATES):
        assert {row["key"]: row["value"] for row in history.at(epoch).table().to_arrow().to_pylist()} == expected


def test_compact_sorts_what_is_not_sorted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large files become several; what is sorted stays as it is."""
    states: list[State | None] = [{f"k{at:05}": epoch for at in range(3_000)} for epoch in range(60)]
    write(tmp_path, states, commit_every=60)
    log = Layout.at(tmp_path).changelog("q", "op0")
    monkeypatch.setattr(maintenance, "_ENOUGH_VALUES", 50_000 * len(LOG))
    assert sort_log(log) == 1
    version = TableVersion(log, required(log))
    files = version.files(EPOCH)
    assert len(files) > 1
    for file in files:
        keys = version.scan_files([file]).read_all()["key"].to_pylist()
        assert keys == sorted(keys)
    assert [report.files_after for report in ss.open_store(tmp_path)["q"].compact()][1] == len(files)
    assert [file.path for file in TableVersion(log, required(log)).files(EPOCH)] == [file.path for file in files]
    history = ss.open_store(tmp_path)["q"]
    for epoch in (0, 17, 59):
        assert set(history.at(epoch).table().to_arrow()["value"].to_pylist()) == {epoch}


def all_of(rows: pa.Table, _stands: int) -> pa.Table:
    """Return the rows that a commit writes."""
    return rows
