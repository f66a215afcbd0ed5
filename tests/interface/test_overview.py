"""The overview is read from the ends of the tables' logs, and says the same as the tables themselves."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from advice.stores import DEDUPLICATION, WINDOWS
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import START, State, copy_of, write

import streamstate as ss
from streamstate.reports import Store
from streamstate.snapshots.store.delta import Place, commits
from streamstate.snapshots.store.delta.log_checks import seal_missing
from streamstate.snapshots.store.delta.log_end import LogEnd
from streamstate.snapshots.store.delta.table import Table
from streamstate.snapshots.store.delta.table_size import TableSize
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.manifest import Manifest
from streamstate.snapshots.store.manifest_summary import kept_summary
from streamstate.snapshots.store.query_plans.plan_table import store_plan
from streamstate.state_inspect import store_facts

SUMMARY, SIZE, PLANS = "streamstate/summary", "streamstate/size", "streamstate/plans"


class Opened:
    """Counts the tables that are opened, and can have the overview read all of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.places: list[str] = []
        self._open = commits.open_table
        monkeypatch.setattr(commits, "open_table", self._opened)

    def _opened(self, place: Place) -> Table | None:
        self.places.append("/".join(place.uri.split("/")[-2:]))
        return self._open(place)

    def overview(self, path: Path, *, reads_state: bool = False) -> tuple[pd.DataFrame, list[str]]:
        """Return the overview in a store that was not open, and the tables of queries that were opened for it."""
        with self._monkeypatch.context() as patched:
            patched.setattr(store_facts, "_FEW", 50 if reads_state else 0)
            store = ss.open_store(path)
            self.places.clear()
            return store.overview(), [place for place in self.places if not place.endswith("_queries")]

    def whole(self, path: Path, *, reads_state: bool = False) -> pd.DataFrame:
        """Return the overview as read from the tables themselves."""
        with self._monkeypatch.context() as patched:
            patched.setattr("streamstate.snapshots.store.delta.log_end.LogEnd.entries", lambda _: iter(()))
            patched.setattr(store_facts, "advice_by_summary", lambda *_: None)
            return self.overview(path, reads_state=reads_state)[0]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    """Shows what is opened."""
    return Opened(monkeypatch)


def newest_entry(table: Path) -> Path:
    """Return the newest entry of a table's log."""
    return max((table / "_delta_log").glob("*.json"))


def change_log(table: Path, change: Callable[[dict[str, Any]], None], *, every: bool = False) -> None:
    """Change the metadata of the newest commit of a table, or of every one."""
    for entry in sorted((table / "_delta_log").glob("*.json")) if every else [newest_entry(table)]:
        actions = [json.loads(line) for line in entry.read_text().splitlines()]
        for action in actions:
            if "commitInfo" in action:
                change(action["commitInfo"])
        entry.write_text("".join(f"{json.dumps(action)}\n" for action in actions))
        entry.with_name(f".{entry.name}.crc").unlink(missing_ok=True)
    seal_missing(Place(str(table)))


def forget(info: dict[str, Any]) -> None:
    """Leave out what older versions of streamstate do not write."""
    for name in (SUMMARY, SIZE, PLANS):
        info.pop(name, None)


def older(path: Path) -> None:
    """Make a query's tables as an older version of streamstate wrote them."""
    for log in path.glob("q/*/_delta_log"):
        change_log(log.parent, forget, every=True)


def retain(path: Path) -> None:
    """Drop all but two epochs."""
    ss.open_store(path)["q"].retain(last=2)


def compact(path: Path) -> None:
    """Merge files, and have old entries of the logs removed."""
    history = ss.open_store(path)["q"]
    history.compact()
    for file in path.glob("q/*/_delta_log/*"):
        os.utime(file, (0, 0))
    history.compact()


def fence(path: Path) -> None:
    """Make empty commits, as a sweep does."""
    for name in ("_epochs", "op0"):
        place = Place(str(path / "q" / name))
        assert commits.empty_commit(place, commits.required(place), commits.FENCE)


def rewrite_by_others(path: Path) -> None:
    """Have another program commit to both tables, without what streamstate keeps."""
    from deltalake import DeltaTable

    for name in ("_epochs", "op0"):
        DeltaTable(str(path / "q" / name)).optimize.compact()
        seal_missing(Place(str(path / "q" / name)))


def drop_by_others(path: Path) -> None:
    """Have another program remove an epoch's row from the manifest."""
    from deltalake import DeltaTable

    DeltaTable(str(path / "q/_epochs")).delete("epoch = 0")
    seal_missing(Place(str(path / "q/_epochs")))


def use_features(path: Path) -> None:
    """Have another program use a feature of Delta by which rows of a file may be gone."""
    from deltalake import DeltaTable, TableFeatures

    manifest = DeltaTable(str(path / "q/_epochs"))
    manifest.alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
    seal_missing(Place(str(path / "q/_epochs")))


def fork(path: Path) -> None:
    """Add a query of one epoch, and one without."""
    write(path, [{"a": 1}], query="other")
    write(path, [], query="none")


def fail(path: Path) -> None:
    """Damage the newest log entry of a query."""
    write(path, [{"a": 1}, {"a": 2}], query="broken")
    newest_entry(path / "broken/_epochs").write_text("no JSON")


def use(path: Path) -> None:
    """Record the plan of a query without watermark, then of one with it from a later epoch."""
    store_plan(Layout.at(path), "q", DEDUPLICATION, 0)
    store_plan(Layout.at(path), "q", replace(WINDOWS, mode="update"), 3)


def deduplicate(path: Path) -> None:
    """Record the plan of a query without watermark."""
    store_plan(Layout.at(path), "q", DEDUPLICATION, 0)


CHANGES = [older, retain, compact, fence, rewrite_by_others, drop_by_others, fork, fail, use, deduplicate]
MANY: list[State | None] = [{f"k{key}": epoch for key in range(epoch + 1)} for epoch in range(24)]


def facts_of(states: list[State | None], *, moving: bool, watermark: bool) -> list[dict[str, Any]]:
    """Return offsets, and a watermark that moves or not."""
    at = [START + timedelta(minutes=epoch if moving else 0) for epoch in range(len(states))]
    return [{"offsets": f"[{epoch}]", "watermark": time if watermark else None} for epoch, time in enumerate(at)]


def check(opened: Opened, path: Path) -> None:
    """Check that both overviews, with state and without, are those of the tables themselves."""
    found, _ = opened.overview(path)
    pd.testing.assert_frame_equal(found, opened.whole(path))
    found, _ = opened.overview(path, reads_state=True)
    pd.testing.assert_frame_equal(found, opened.whole(path, reads_state=True))
    store = ss.open_store(path)
    for row in found.to_dict("records"):
        if row["state"] == "captured":
            epochs = store[row["query"]].epochs()
            captured = epochs[epochs["status"] == "captured"]
            assert (row["captured"], row["gaps"]) == (len(captured), len(epochs) - len(captured))
            assert (row["epoch"], row["committed_at"]) == tuple(captured.iloc[-1][["epoch", "committed_at"]])
            newest = captured[captured.index > epochs.index[-1] - 10]
            expected = newest["changes"].map(lambda changes: sum(changes.values())).mean()
            assert pd.isna(row["changes"]) if newest.empty else row["changes"] == round(expected)


@pytest.mark.parametrize("change", CHANGES)
def test_the_overview_says_what_the_tables_say(opened: Opened, tmp_path: Path, change: Callable[[Path], None]) -> None:
    """Also after retention, compaction and log checkpoints, and for stores that others have written to."""
    copy_of(tmp_path, MANY, keyframe_every=1, facts=facts_of(MANY, moving=False, watermark=True))
    change(tmp_path)
    check(opened, tmp_path)


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(
    states=st.lists(st.none() | st.dictionaries(st.sampled_from("abcd"), st.integers(0, 1)), min_size=1, max_size=30),
    keyframes=st.sampled_from([0, 1, 3]),
    commit_every=st.sampled_from([1, 4]),
    moving=st.booleans(),
    watermark=st.booleans(),
    changes=st.lists(st.sampled_from(CHANGES), unique=True, max_size=3),
)
def test_any_overview_says_what_the_tables_say(
    states: list[State | None],
    keyframes: int,
    commit_every: int,
    moving: bool,
    watermark: bool,
    changes: list[Callable[[Path], None]],
) -> None:
    """Whatever the epochs are, and whatever happened to the store since."""
    facts = facts_of(states, moving=moving, watermark=watermark)
    with pytest.MonkeyPatch.context() as monkeypatch, tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        write(path, states, keyframe_every=keyframes, commit_every=commit_every, facts=facts)
        for change in changes:
            change(path)
        check(Opened(monkeypatch), path)


def test_no_table_of_a_query_is_opened(opened: Opened, tmp_path: Path) -> None:
    """The newest entry of each log is enough, in a store of many queries."""
    copy_of(tmp_path, MANY, keyframe_every=1, facts=facts_of(MANY, moving=True, watermark=True))
    deduplicate(tmp_path)
    found, tables = opened.overview(tmp_path)
    assert tables == []
    assert found["rows"].tolist() == [24]
    assert "op0 can never shrink" in found["advice"][0][0]


@pytest.mark.parametrize("change", [fence, compact, retain])
def test_upkeep_keeps_what_is_shown(opened: Opened, tmp_path: Path, change: Callable[[Path], None]) -> None:
    """Nothing is opened after a sweep, compaction or retention, whose commits come later."""
    copy_of(tmp_path, MANY)
    change(tmp_path)
    assert opened.overview(tmp_path)[1] == []


@pytest.mark.slow
def test_the_clean_up_of_logs_keeps_what_is_shown(opened: Opened, tmp_path: Path) -> None:
    """The newest entries stay when older ones are removed."""
    write(tmp_path, MANY * 6)
    compact(tmp_path)
    assert not (tmp_path / "q/_epochs/_delta_log/00000000000000000000.json").exists()
    assert opened.overview(tmp_path)[1] == []
    check(opened, tmp_path)


@pytest.mark.parametrize("change", [older, drop_by_others])
def test_what_no_commit_keeps_is_read_from_the_tables(
    opened: Opened, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    """Those of an older version, and those that another program has changed since; the next epoch makes up for it."""
    copy_of(tmp_path, MANY)
    change(tmp_path)
    assert "q/_epochs" in opened.overview(tmp_path)[1]
    manifest = Manifest(Layout.at(tmp_path), "q")
    manifest.refresh()
    newest = manifest.newest
    assert newest is not None
    manifest.append([replace(newest, epoch=newest.epoch + 1)], "q/_epochs")
    assert "q/_epochs" not in opened.overview(tmp_path)[1]
    check(opened, tmp_path)


def changed(name: str, value: object) -> Callable[[dict[str, Any]], None]:
    """Return a change of one part of a summary; a dotted name is one within."""

    def change(info: dict[str, Any]) -> None:
        whole = json.loads(info[SUMMARY])
        part = whole
        *outer, last = name.split(".")
        for within in outer:
            part = part[within]
        part[last] = value
        info[SUMMARY] = json.dumps(whole)

    return change


def set_to(name: str, value: object) -> Callable[[dict[str, Any]], None]:
    """Return a change of what a commit keeps."""
    return lambda info: info.update({name: value})


FALSE_SUMMARIES = [
    *(set_to(SUMMARY, text) for text in ("", "no JSON", "[]", "7", "{}", '"x"', "[" * 100_000)),
    set_to(SUMMARY, 7),
    set_to(SUMMARY, json.dumps({"format": 1, "tables": "x" * 200_000})),
    set_to("padding", "x" * (1 << 20)),
    *(changed("epochs", number) for number in (-1, 1.5, "5", None, 10**400, 2)),
    *(changed("last", number) for number in (None, 7, 1 << 70)),
    changed("format", 2),
    changed("newest", None),
    changed("newest.rows", {"op7": 1}),
    changed("newest.committed_at", 10**30),
    changed("newest.committed_at", "today"),
    changed("newest.unknown", 1),
    changed("tables", ["op0", "../../secret"]),
    changed("tables", None),
    changed("growth", {"epochs": [1, 2], "rows": {}}),
    changed("growth", {"epochs": [0, 1, 2], "rows": {"op0": [1, 2, "x"]}}),
    changed("growth", {"epochs": [0, 1, 2], "rows": [["op0", 5]]}),
    changed("has_watermark", "yes"),
    changed("unknown", True),
]


@pytest.mark.parametrize("change", FALSE_SUMMARIES)
def test_a_summary_that_cannot_be_right_is_not_believed(
    tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    """It counts as none, whatever it is."""
    copy_of(tmp_path, MANY[:6])
    end = LogEnd(Layout.at(tmp_path).manifest("q"))
    assert end.has_changed()
    assert kept_summary(end) is not None
    change_log(tmp_path / "q/_epochs", change)
    end = LogEnd(end.place)
    assert end.has_changed()
    assert kept_summary(end) is None


@pytest.mark.parametrize("kept", ["", "[]", '{"bytes": "7", "files": 1}', '{"bytes": -1, "files": 1}', "[" * 100_000])
def test_a_size_that_cannot_be_right_is_not_believed(tmp_path: Path, kept: str) -> None:
    """The files are counted instead."""
    copy_of(tmp_path, MANY[:6])
    place = Layout.at(tmp_path).changelog("q", "op0")
    expected = TableSize(place).now()
    change_log(tmp_path / "q/op0", set_to(SIZE, kept))
    assert TableSize(place).now() == expected


def test_without_a_summary_the_tables_are_read(opened: Opened, tmp_path: Path) -> None:
    """They say the same."""
    copy_of(tmp_path, MANY[:6])
    expected, _ = opened.overview(tmp_path)
    change_log(tmp_path / "q/_epochs", changed("tables", ["op0", "../../secret"]))
    found, tables = opened.overview(tmp_path)
    assert "q/_epochs" in tables
    pd.testing.assert_frame_equal(found, expected)


@pytest.mark.parametrize("damage", ["no JSON", "\0" * 100, '{"add": 7}', '{"add": {"path": "x"}}', "[7]"])
def test_a_damaged_log_entry_is_a_row_with_the_reason(opened: Opened, tmp_path: Path, damage: str) -> None:
    """The other queries are listed as before."""
    for query in ("q", "r"):
        write(tmp_path, MANY[:3], query=query)
    newest_entry(tmp_path / "q/_epochs").write_text(damage)
    found = opened.overview(tmp_path)[0].set_index("query")["state"]
    assert "does not match its checksum file" in found["q"]
    assert found["r"] == "captured"


def test_a_log_with_a_missing_entry_is_a_row_with_the_reason(opened: Opened, tmp_path: Path) -> None:
    """Though its newest entry is sound."""
    write(tmp_path, MANY[:4])
    (tmp_path / "q/_epochs/_delta_log/00000000000000000002.json").unlink()
    state = opened.overview(tmp_path)[0]["state"][0]
    assert state not in ("captured", "empty")
    assert state == opened.whole(tmp_path)["state"][0]


def test_a_query_recovers_when_its_store_does(own_store: Store) -> None:
    """Damage that is repaired is forgotten."""
    before = own_store.overview()
    entry = newest_entry(Path(own_store.path) / "q/_epochs")
    broken = entry.with_name(f"{int(entry.stem) + 1:020}.json")
    broken.write_text("no JSON")
    assert "cannot be read" in own_store.overview()["state"][0]
    broken.unlink()
    pd.testing.assert_frame_equal(own_store.overview(), before)


def test_a_table_with_features_that_are_not_read_is_a_row_with_the_reason(opened: Opened, tmp_path: Path) -> None:
    """Though no commit has used them."""
    copy_of(tmp_path, MANY[:4])
    use_features(tmp_path)
    assert "deletionVectors of Delta, which streamstate does not read" in opened.overview(tmp_path)[0]["state"][0]


def test_a_table_that_is_removed_is_a_row_with_the_reason(own_store: Store) -> None:
    """In a store that stays open."""
    assert own_store.overview()["state"].tolist() == ["captured"]
    entry = newest_entry(Path(own_store.path) / "q/_epochs")
    entry.rename(entry.with_suffix(".gone"))
    assert "was removed or replaced while it was open" in own_store.overview()["state"][0]


@pytest.fixture
def own_store(tmp_path: Path) -> Store:
    """A store of three epochs."""
    copy_of(tmp_path, MANY[:3])
    return ss.open_store(tmp_path)
