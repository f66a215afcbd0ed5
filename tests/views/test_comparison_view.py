"""Comparison views of two timelines, without a browser."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from branch_stores import counting

import streamstate as ss
from streamstate.reports import Store
from streamstate.widgets import ComparisonView
from streamstate.widgets.comparison import KEYS, ComparisonDrawing


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A query, a fork whose counts double from epoch 4 on, and an identical fork."""
    states = {epoch: {f"k{at}": epoch * (at + 1) for at in range(8)} for epoch in range(7)}
    doubled = {epoch: {key: n * (1 + (epoch > 3)) for key, n in states[epoch].items()} for epoch in range(2, 7)}
    counting(tmp_path, "delays", states)
    counting(tmp_path, "what_if", {**doubled, 6: doubled[6] | {"new": 1}}, ("delays", 2))
    counting(tmp_path, "again", {epoch: states[epoch] for epoch in range(2, 7)}, ("delays", 2))
    return ss.open_store(tmp_path)


def shown(view: ComparisonView) -> ComparisonDrawing:
    """The view's current drawing."""
    drawn = view.model.drawing(view.selection).kept
    assert isinstance(drawn, ComparisonDrawing)
    return drawn


def test_bars_are_the_keys_that_differ(store: Store) -> None:
    """Bars count differing keys by epoch and kind, as the comparison does."""
    comparison = store["delays"].compare(store["what_if"])
    drawn = shown(ComparisonView(comparison))
    assert drawn.epochs is not None
    bars = {(row["epoch"], row["what"]): row["keys"] for row in drawn.epochs.rows}
    frame = comparison.epochs().set_index("epoch")
    differing = {(epoch, "different values"): frame["differing"][epoch] for epoch in (4, 5, 6)}
    assert bars == differing | {(6, "only there"): 1}


def test_keys_are_drawn_in_both_timelines(store: Store) -> None:
    """The first differing keys are drawn at each epoch where either timeline changed, after the shared start."""
    drawn = shown(ComparisonView(store["delays"].compare(store["what_if"])))
    assert (drawn.column, len(drawn.values)) == ("count", KEYS)
    values = {(row["timeline"], row["epoch"]): row["value"] for row in drawn.values[0].rows}
    assert [values["delays", epoch] for epoch in (3, 4, 6)] == [3, 4, 6]
    assert [values["what_if", epoch] for epoch in (3, 4, 6)] == [3, 8, 12]
    assert drawn.values[0].label == "count of key k0"
    assert len(json.dumps(drawn.message())) < 30_000


def test_identical_timelines_have_nothing_to_draw(store: Store) -> None:
    """The view says that there are no differences."""
    view = ComparisonView(store["delays"].compare(store["again"]))
    drawn = shown(view)
    assert (drawn.epochs, drawn.values) == (None, ())
    assert "No key differs" in repr(view)


def test_the_static_form_has_pictures_and_no_scripts(store: Store) -> None:
    """The static form is small, and each picture has a label."""
    bundle, _ = ComparisonView(store["delays"].compare(store["what_if"]))._repr_mimebundle_()
    html = bundle["text/html"]
    assert html.count("<svg") == 1 + KEYS
    assert "<script" not in html
    assert len(html) < 200_000


def test_invalid_comparison_actions_change_nothing(store: Store) -> None:
    """Tables and columns that the page does not offer are ignored."""
    view = ComparisonView(store["delays"].compare(store["what_if"]))
    for action, value in (("table", "nobody"), ("column", "nobody"), ("explode", 1), ("column", None)):
        assert view.model.acted(view.selection, action, value, shown(view)) == view.selection
