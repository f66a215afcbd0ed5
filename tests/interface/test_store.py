"""``Store`` and ``History``: what streamstate owns, changed and written without Spark."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
import synthetic
from fleet_checkpoints import commit, copies

import streamstate as ss
from streamstate.errors import UnknownColumnError
from streamstate.reports import History, Store
from streamstate.state_inspect import store_facts
from streamstate.widgets.overview import OverviewModel, OverviewSelection


@pytest.fixture
def own(tmp_path: Path) -> Store:
    """A store of four epochs."""
    synthetic.write(tmp_path / "store", [{"a": 1}, {"a": 1, "b": 2}, {"b": 3}, {"b": 4}])
    return ss.open_store(tmp_path / "store")


def test_overview(own: Store, counted: tuple[Path, Path]) -> None:
    """One row per query with its newest epoch."""
    (row,) = own.overview().to_dict("records")
    assert [row[name] for name in ("query", "state", "captured", "gaps", "epoch", "rows")] == [
        "q",
        "captured",
        4,
        0,
        3,
        1,
    ]
    assert row["advice"] == []
    (recorded,) = ss.open_store(counted[1]).overview().to_dict("records")
    assert recorded["lag"] >= pd.Timedelta(0)
    assert recorded["bytes"] > 0


def test_queries_that_need_a_look_come_first(counted: tuple[Path, Path], tmp_path: Path) -> None:
    """One that cannot be read, then those whose capture is behind, the furthest first; the others by name."""
    root, store = tmp_path / "root", tmp_path / "store"
    paths = copies(counted[0], root, ["a", "b", "c", "d"], committed=2)
    ss.checkpoints(root).capture(store, verify="never")
    for path, epochs in zip(paths, ([], [2], [2, 3], [2]), strict=True):
        for epoch in epochs:
            commit(counted[0], path, epoch)
    opened = ss.open_store(store)
    frame = opened.overview()
    assert list(zip(frame["query"], frame["backlog"], strict=True)) == [("c", 2), ("b", 1), ("d", 1), ("a", 0)]
    assert set(frame["changes"]) == {7}
    (store / "d/_epochs/_delta_log/00000000000000000003.json").write_text("no JSON")
    assert opened.overview()["query"].tolist() == ["d", "c", "b", "a"]
    assert OverviewModel(opened).view(OverviewSelection()).facts()[-2:] == ["1 cannot be read", "2 behind"]


def test_a_query_without_new_epochs_is_not_read_again(own: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost of the overview follows what has changed."""
    first = own.overview()
    monkeypatch.setattr(store_facts.StoreFacts, "_read", None)
    monkeypatch.setattr(History, "advise", None)
    assert own.overview().equals(first)


def test_overview_of_an_empty_store(tmp_path: Path) -> None:
    """The columns are there."""
    synthetic.write(tmp_path / "store", [])
    assert ss.open_store(tmp_path / "store").overview()["state"].tolist() == ["empty"]


def test_retain_then_compact(own: Store) -> None:
    """Both are calls on the history, and what is kept reads as before."""
    history = own["q"]
    assert history.retain(last=2, dry_run=True).dropped == (0, 1)
    report = history.retain(last=2)
    assert (report.dropped, history.captured()) == ((0, 1), [2, 3])
    assert {table.table for table in history.compact()} == {"_epochs", "op0"}
    assert history.at(2).table().to_pandas()["value"].tolist() == [3]


def test_export(own: Store, tmp_path: Path) -> None:
    """A Delta table with a version per epoch."""
    assert own["q"].export(tmp_path / "exported", epochs="1..2").epochs == (1, 2)


def test_a_misspelt_column_or_option(own: Store) -> None:
    """The error lists the key columns and the options."""
    history = own["q"]
    calls: list[tuple[Callable[..., object], str]] = [
        (history.key_history, "table, ancestors, result"),
        (partial(history.why, 1), "table"),
        (partial(history.first, "value > 1"), "table"),
    ]
    for call, options in calls:
        with pytest.raises(UnknownColumnError) as raised:
            call(kee="a")
        assert "Key column names: key.\n" in str(raised.value)
        assert f"\nOptions: {options}." in str(raised.value)
