"""The differences between two epochs: counts, pages, movers and summary."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import State, write

import streamstate as ss
from reading.test_histories import EXAMPLES, HISTORIES
from streamstate.errors import InvalidArgumentError, UnknownColumnError
from streamstate.reports import History
from streamstate.state_inspect.differences.diff_sql import DiffSQL

STATES: list[State | None] = [{"a": 1, "b": 5, "c": 3}, {"a": 2, "b": 5, "d": 4}, {"a": 9, "b": 1, "d": 4}, {"b": 2}]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    """A query ``q`` of four epochs."""
    folder = tmp_path_factory.mktemp("diff")
    write(folder, STATES)
    return ss.open_store(folder)["q"]


@pytest.mark.parametrize("few", [DiffSQL.few, 0])
def test_the_counts_match_the_frames(history: History, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting does not build the frames, and agrees with them, whether few versions are grouped or many joined."""
    monkeypatch.setattr(DiffSQL, "few", few)
    for a in range(4):
        for b in range(4):
            diff = history.diff(a, b)
            frames = {"added": diff.added, "removed": diff.removed, "changed": diff.changed}
            assert diff.counts == {name: len(frame) for name, frame in frames.items()}
            assert len(diff) == sum(diff.counts.values())


def test_a_page_has_old_and_new_values_and_their_difference(history: History) -> None:
    """Rows are in key order; a value that is missing on one side is missing in the page."""
    page = history.diff(0, 1).page()
    expected = ["_change", "key", "value_old", "value_new", "value_delta", "_cause", "_epochs"]
    assert list(page.columns) == expected
    assert page["key"].tolist() == ["a", "c", "d"]
    assert page["_change"].tolist() == ["changed", "removed", "added"]
    assert page["value_delta"].tolist() == [1, pd.NA, pd.NA]


def test_a_diff_has_the_column_lists_of_a_state_table(history: History) -> None:
    """The lists are in the order on disk; columns with a difference are listed separately."""
    diff, table = history.diff(0, 1), history.at(1).table()
    assert (diff.key_columns, diff.value_columns) == (table.key_columns, table.value_columns)
    assert diff.delta_columns == ["value"]


def test_a_page_says_at_which_epochs_a_key_changed(history: History) -> None:
    """Only epochs after the first and up to the second are listed, in either direction of the diff."""
    for a, b in ((0, 3), (3, 0)):
        page = history.diff(a, b).page().set_index("key")["_epochs"]
        assert {key: list(epochs) for key, epochs in page.items()} == {"a": [1, 2, 3], "b": [2, 3], "c": [1]}


def test_without_the_operators_name_every_cause_is_unknown(history: History) -> None:
    """A store from before operators were recorded: no cause is guessed."""
    assert set(history.diff(0, 3).page()["_cause"]) == {"unknown"}


def test_a_page_is_sorted_and_filtered(history: History) -> None:
    """By any column of the page, ascending or descending, and by kind of change."""
    diff = history.diff(0, 2)
    assert diff.page(order_by="value_delta", descending=True)["key"].tolist() == ["a", "b", "c", "d"]
    assert diff.page(order_by="value_delta", limit=1)["key"].tolist() == ["b"]
    assert diff.page(change="removed")["key"].tolist() == ["c"]
    assert diff.page(offset=1, limit=2)["key"].tolist() == ["b", "c"]
    assert diff.page(descending=True)["key"].tolist() == ["d", "c", "b", "a"]


def test_the_movers_have_the_largest_differences(history: History) -> None:
    """Increases and decreases count; added and removed keys are not movers."""
    movers = history.diff(0, 2).movers()
    assert list(zip(movers["key"], movers["value_delta"], strict=True)) == [("a", 8), ("b", -4)]
    assert len(history.diff(0, 2).movers("value", n=1)) == 1


def test_the_summary_aggregates_the_differences(history: History) -> None:
    """It has the number of differing values, and the sum and maximum of their differences."""
    summary = history.diff(0, 2).summary()
    assert summary.counts == {"added": 1, "removed": 1, "changed": 2}
    assert summary.columns.to_dict("records") == [
        {"column": "value", "changed": 2, "sum": 4, "largest_increase": 8, "largest_decrease": -4}
    ]
    nothing = history.diff(1, 1).summary()
    assert nothing.columns.iloc[0].tolist()[:2] == ["value", 0]
    assert "2 changed" in summary._repr_html_()


def test_a_diff_shows_its_summary_and_first_rows(history: History) -> None:
    """In a notebook."""
    shown = history.diff(0, 2)._repr_html_()
    assert "largest_increase" in shown
    assert "_cause" in shown
    assert "epoch 0 → 2" in shown


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda d: d.page(offset=-1), InvalidArgumentError, "offset=-1"),
        (lambda d: d.page(change="moved"), InvalidArgumentError, "added, removed, changed"),
        (lambda d: d.page(order_by="valu_delta"), UnknownColumnError, "Did you mean 'value_delta'"),
        (lambda d: d.movers("key"), UnknownColumnError, "value"),
        (lambda d: d.movers(n=-2), InvalidArgumentError, "n=-2"),
    ],
)
def test_invalid_arguments_of_a_diff_are_rejected(
    history: History, call: Any, error: type[Exception], message: str
) -> None:
    """Each error says what would be valid."""
    with pytest.raises(error, match=message):
        call(history.diff(0, 2))


@pytest.mark.slow
@settings(EXAMPLES, max_examples=8)
@given(HISTORIES, st.integers(0, 3))
def test_pages_and_counts_match_brute_force(states: list[State | None], keyframe_every: int) -> None:
    """Every pair of epochs is compared in both directions, gaps included."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), states, keyframe_every=keyframe_every)
        history = ss.open_store(folder)["q"]
        known = {epoch: state for epoch, state in enumerate(states) if state is not None}
        for a, old in known.items():
            for b, new in known.items():
                diff = history.diff(a, b)
                expected = {key: (old.get(key), new.get(key)) for key in old.keys() | new.keys()}
                expected = {key: pair for key, pair in sorted(expected.items()) if pair[0] != pair[1]}
                page = diff.page(limit=100)
                assert page["key"].tolist() == list(expected)
                sides = (
                    [None if pd.isna(value) else value for value in page[f"value_{side}"]] for side in ("old", "new")
                )
                assert list(zip(*sides, strict=True)) == list(expected.values())
                assert len(diff) == len(expected)
                moved = [new - old for old, new in expected.values() if None not in (old, new)]  # type: ignore[operator]
                assert sorted(diff.movers()["value_delta"]) == sorted(moved)
                [row] = diff.summary().columns.to_dict("records")
                assert (row["changed"], row["sum"] or 0) == (len(moved), sum(moved))
