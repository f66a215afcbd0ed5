"""``Store`` and ``History``: what streamstate owns, changed and written without Spark."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
import synthetic

import streamstate as ss
from streamstate.errors import UnknownColumnError
from streamstate.reports import Store


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
