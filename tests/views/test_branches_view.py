"""A diff view of two branches names both queries and lets each side select its own query's epochs."""

from __future__ import annotations

from pathlib import Path

import pytest
from branch_stores import counting

import streamstate as ss
from streamstate.errors import UnknownEpochError
from streamstate.state_inspect import Store
from streamstate.widgets import DiffView


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A query with four epochs, and a fork from its second epoch that has one additional epoch."""
    counting(tmp_path, "delays", {0: {"a": 1}, 1: {"a": 2}, 2: {"a": 3}, 3: {"a": 4}})
    counting(tmp_path, "what_if", {1: {"a": 2}, 2: {"a": 30, "<b>": 1}}, ("delays", 1))
    return ss.open_store(tmp_path)


def test_both_sides_are_named_by_query_and_epoch(store: Store) -> None:
    """The text form and the static form name both sides, and escape all values from the state."""
    view = DiffView(store["delays"], 2, 2, other=store["what_if"])
    drawn = view.model.drawing(view.selection)
    assert "delays at epoch 2 → what_if at epoch 2 · +1 ~1 −0" in view.model.text(drawn)
    shown = view.model.html(drawn)
    assert "delays at epoch 2 to what_if at epoch 2" in shown
    assert "<b>" not in shown
    view.close()


def test_each_side_has_the_epochs_of_its_own_query(store: Store) -> None:
    """The message lists the epochs of both queries, and the later side follows the newest epoch of its own query."""
    view = DiffView(store["delays"], 3, other=store["what_if"])
    message = view.model.drawing(view.selection).message
    assert message["captured"] == [[0, 3]]
    assert message["others"] == [[1, 2]]
    assert [(side["query"], side["epoch"]) for side in message["sides"]] == [("delays", 3), ("what_if", 2)]
    for action in ("swap", "previous"):
        assert view.model.acted(view.selection, action, None, None) == view.selection
    view.close()


def test_a_diff_within_one_query_shows_no_query_names(store: Store) -> None:
    """There is no second list of epochs, and the sides have no query names."""
    view = DiffView(store["delays"], 1, 2)
    drawn = view.model.drawing(view.selection)
    assert drawn.message["others"] is None
    assert "epoch 1 → 2" in view.model.text(drawn)
    view.close()


def test_an_epoch_missing_from_its_side_is_rejected(store: Store) -> None:
    """Epoch 3 exists in the query, but not in the fork."""
    with pytest.raises(UnknownEpochError, match="Epoch 3 of what_if"):
        DiffView(store["delays"], 3, 3, other=store["what_if"])
