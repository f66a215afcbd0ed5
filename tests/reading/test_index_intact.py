"""The temporal index survives damage to the store, and is never the only copy of anything."""

from __future__ import annotations

import gc
import shutil
from pathlib import Path

import pytest
from synthetic import State, write

import streamstate as ss
from streamstate.errors import DamagedStoreError, InvalidArgumentError, StoreError, UnknownEpochError
from streamstate.reports import StateTable
from streamstate.snapshots.store.layout import Layout
from streamstate.state_inspect.temporal_index.index import Index
from streamstate.state_inspect.temporal_index.interval_table import IntervalTable

STATES: list[State | None] = [{"a": epoch, f"k{epoch % 4}": epoch} for epoch in range(8)]


def rows(table: StateTable) -> State:
    """A captured table as a plain dict."""
    return {row["key"]: row["value"] for row in table.to_arrow().to_pylist()}


def test_damage_is_an_error_and_the_rest_stays_readable(tmp_path: Path) -> None:
    """Epochs in the index can still be read; once the file is restored, so can the others."""
    write(tmp_path / "store", STATES[:4])
    history = ss.open_store(tmp_path / "store")["q"]
    assert rows(history.at(2).table()) == STATES[2]
    before = set((tmp_path / "store/q/op0").glob("*.parquet"))
    write(tmp_path / "store", STATES)
    damaged = min(set((tmp_path / "store/q/op0").glob("*.parquet")) - before)
    good = damaged.read_bytes()
    damaged.write_bytes(good[:-20] + b"x" * 20)
    with pytest.raises(DamagedStoreError):
        history.live().table()
    assert rows(history.at(2).table()) == STATES[2]
    damaged.write_bytes(good)
    for epoch in range(8):
        assert rows(history.at(epoch).table()) == STATES[epoch]


def test_a_missing_store_raises_an_error(tmp_path: Path) -> None:
    """Reading the live epoch fails, held tables stay readable, and everything works once the store is back."""
    write(tmp_path / "store", STATES[:4])
    history = ss.open_store(tmp_path / "store")["q"]
    held = history.live().table()
    shutil.move(tmp_path / "store", tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="removed or replaced"):
        history.live()
    assert rows(held) == STATES[3]
    shutil.move(tmp_path / "elsewhere", tmp_path / "store")
    assert rows(history.live().table()) == STATES[3]


def test_a_snapshot_is_a_context_manager(tmp_path: Path) -> None:
    """Inside the block nothing is read from the store any more; after it, the store is read again."""
    write(tmp_path / "store", STATES)
    history = ss.open_store(tmp_path / "store")["q"]
    with history.at(5) as snapshot:
        shutil.move(tmp_path / "store", tmp_path / "elsewhere")
        assert rows(snapshot.table()) == STATES[5]
        shutil.move(tmp_path / "elsewhere", tmp_path / "store")
    assert rows(snapshot.table()) == STATES[5]


@pytest.mark.parametrize("limit", ["lots", "12"])
def test_a_memory_limit_has_a_unit(tmp_path: Path, limit: str) -> None:
    """The error shows a valid limit."""
    write(tmp_path / "store", STATES[:1])
    with pytest.raises(InvalidArgumentError, match="4GB"):
        ss.open_store(tmp_path / "store", memory_limit=limit)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_an_index_larger_than_memory_is_spilled(tmp_path: Path) -> None:
    """A limit far below the size of the index changes no answer, and the folder is removed with the store."""
    keys = [f"a rather long key: {key:060}" for key in range(300_000)]
    states: list[State | None] = [dict.fromkeys(keys, epoch) for epoch in range(2)]
    write(tmp_path / "store", states)
    store = ss.open_store(tmp_path / "store", memory_limit="96MiB")
    for epoch in (1, 0):
        assert rows(store["q"].at(epoch).table()) == states[epoch]
    spilled = Path(store["q"].recorded.index.folder)
    assert any(spilled.iterdir())
    del store
    gc.collect()
    assert not spilled.exists()


@pytest.mark.parametrize("few", [500, -1])
def test_sorting_again_changes_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    """A large unsorted tail is sorted into the index; held tables are not affected."""
    monkeypatch.setattr("streamstate.state_inspect.temporal_index.interval_table.FEW_ROWS", few)
    monkeypatch.setattr("streamstate.state_inspect.temporal_index.interval_table._UNSORTED", 0)
    sorted_at: list[int] = []
    sort = IntervalTable._sort

    def noted(table: IntervalTable) -> None:
        sorted_at.append(table.high)
        sort(table)

    monkeypatch.setattr(IntervalTable, "_sort", noted)
    write(tmp_path / "store", STATES[:2])
    history = ss.open_store(tmp_path / "store")["q"]
    held = {0: history.at(0).table()}
    for epoch in range(2, 8):
        write(tmp_path / "store", STATES[: epoch + 1])
        held[epoch] = history.live().table()
        assert held[epoch].lookup(key="a") == {"key": "a", "value": epoch}
        assert all(rows(table) == STATES[at] for at, table in held.items())
    assert sorted_at


def test_a_key_without_a_value_is_found(tmp_path: Path) -> None:
    """Null and empty keys are not lost by hashing."""
    write(tmp_path / "store", [{"": 1, "a": 2}])
    table = ss.open_store(tmp_path / "store")["q"].live().table()
    assert table.lookup(key="") == {"key": "", "value": 1}
    assert table.lookup(key=None) is None


def test_an_error_within_a_gap_names_the_nearest_epochs(tmp_path: Path) -> None:
    """It names the captured epochs on either side."""
    write(tmp_path / "store", [{"a": 1}, None, {"a": 3}])
    with pytest.raises(UnknownEpochError, match="0 and 2"):
        ss.open_store(tmp_path / "store")["q"].at(1)


def test_too_little_memory_is_an_error_that_says_so(tmp_path: Path) -> None:
    """Sorting needs some memory even when spilling; nothing stays half-loaded, and the error says what to change."""
    keys = [f"a rather long key: {key:060}" for key in range(300_000)]
    write(tmp_path / "store", [dict.fromkeys(keys, 1)])
    store = ss.open_store(tmp_path / "store", memory_limit="8MiB")
    for _ in range(2):
        with pytest.raises(StoreError, match="memory_limit"):
            store["q"].live().table()


def test_an_epoch_can_be_relative_to_live(tmp_path: Path) -> None:
    """``live - 2`` is the newest captured epoch's number minus two."""
    write(tmp_path / "store", STATES)
    history = ss.open_store(tmp_path / "store")["q"]
    assert [history.at(text).epoch for text in ("live", "live - 2")] == [7, 5]
    with pytest.raises(UnknownEpochError, match="nearest captured: 0"):
        history.at("live - 8")
    with pytest.raises(InvalidArgumentError, match="live-10"):
        history.at("the day before")


def test_in_a_worker_of_spark_the_index_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark kills its workers, and then removes their folder; where there is none, the index has one elsewhere."""
    for folders, inside in ((f"{tmp_path},/elsewhere", True), (f"{tmp_path}/missing", False), ("", False)):
        monkeypatch.setenv("SPARK_LOCAL_DIRS", folders)
        index = Index(Layout.at(tmp_path / "store"))
        assert (Path(index.folder).parent == tmp_path) == inside
