"""Diff views without a browser: drawings of real stores, and the forms that need no kernel."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import streamstate as ss
from browser.stores import HOSTILE, START, State, Written, flights, more_flights
from browser.test_views import _Tags
from streamstate.errors import InvalidArgumentError, UnknownEpochError, UnknownTableError
from streamstate.reports import History
from streamstate.widgets import DiffView, Focus
from streamstate.widgets.diffs.actions import DiffSelection, resolved
from streamstate.widgets.diffs.drawing import DiffDrawing
from streamstate.widgets.diffs.model import DiffModel
from streamstate.widgets.diffs.rows import MOVERS


@pytest.fixture
def delays(stored: Path) -> History:
    """A query of epochs 0 to 6 with a gap at epoch 4."""
    return ss.open_store(stored)["delays"]


def drawn(history: History, **chosen: Any) -> DiffDrawing:
    """The drawing of a selection, by default in the order of the keys."""
    found = DiffModel(history).drawing(DiffSelection(**{"a": 0, "b": 6, "opening": False, **chosen})).kept
    assert isinstance(found, DiffDrawing)
    return found


def test_rows_and_counts_match_the_diff(delays: History) -> None:
    """A changed value has old, new and signed difference; an unchanged value is shown once."""
    found = drawn(delays, size=50)
    diff = delays.diff(0, 6)
    page = diff.page(limit=50)
    assert found.counts == diff.counts
    assert [row.keys[0].text for row in found.page.rows] == page["carrier"].tolist()
    marks = {"added": "+", "changed": "~", "removed": "−"}
    assert [row.mark for row in found.page.rows] == [marks[change] for change in page["_change"]]
    for row, (_, expected) in zip(found.page.rows, page.iterrows(), strict=True):
        flights = row.values[0]
        if row.mark == "~":
            assert flights.was is not None
            assert (flights.was.text, flights.now.text) == (str(expected.flights_old), str(expected.flights_new))
            assert flights.moved == f"+{expected.flights_delta}"
        else:
            assert flights.was is None


def test_pages_hold_each_key_once(delays: History) -> None:
    """Pages follow the requested order; a page beyond the end shows the last page."""
    keys = [drawn(delays, page=page, order_by="origin").keys for page in range(3)]
    seen = [tuple(key.values()) for page in keys for key in page]
    assert len(seen) == len(set(seen)) == len(delays.diff(0, 6))
    assert [origin for _, origin in seen] == sorted(origin for _, origin in seen)
    assert drawn(delays, page=99).page.offset == 20


def test_keys_are_filtered_by_kind_and_by_text(delays: History) -> None:
    """Any key column is searched, ignoring case; the counts stay those of the whole diff."""
    found = drawn(delays, change="removed", text="c0", size=50)
    assert {row.mark for row in found.page.rows} == {"−"}
    assert found.page.matching == len(delays.diff(0, 6).removed)
    assert drawn(delays, text="lga").page.matching == (delays.diff(0, 6).page(limit=99)["origin"] == "LGA").sum()
    assert sum(drawn(delays, text="nowhere").counts.values()) == len(delays.diff(0, 6))


def test_the_movers_match_the_diff(delays: History) -> None:
    """The largest comes first; each bar is one key, and clicking it selects that key."""
    found = drawn(delays, mover="flights")
    assert found.movers is not None
    assert found.movers.chart is not None
    expected = delays.diff(0, 6).movers("flights", MOVERS)
    assert [row["delta"] for row in found.movers.chart.rows] == expected["flights_delta"].tolist()
    assert len({row["key"] for row in found.movers.chart.rows}) == len(expected)
    chosen = DiffModel(delays).acted(DiffSelection(0, 6), "mover", {"row": [1]}, found)
    assert chosen.key == {"carrier": expected["carrier"][1], "origin": expected["origin"][1]}
    largest = drawn(delays, order_by="flights", by_size=True, descending=True, change="changed")
    assert largest.keys[:10] == found.moved[:10]


def test_selecting_a_row_selects_its_key(delays: History) -> None:
    """The page sends a row number; the key comes from the drawing that was shown, and its row is marked."""
    model, seen = DiffModel(delays), drawn(delays)
    chosen = model.acted(DiffSelection(0, 6, opening=False), "key", 3, seen)
    assert chosen.key == seen.keys[3]
    assert model.drawing(chosen).kept.page.chosen == 3


def test_epochs_can_be_changed(delays: History) -> None:
    """Either side can be set, both swapped, moved to the previous epoch, or set to the newest."""
    model = DiffModel(delays)
    at = DiffSelection(1, 5, page=2)
    assert model.acted(at, "a", 3, None) == DiffSelection(3, 5)
    assert model.acted(at, "swap", None, None) == DiffSelection(5, 1)
    assert model.acted(at, "previous", None, None) == DiffSelection(3, 5)
    assert model.acted(at, "follow", None, None) == DiffSelection(1)
    assert model.acted(DiffSelection(1), "follow", None, None) == DiffSelection(1, 6)


def test_a_missing_epoch_is_replaced_by_the_one_before_it(delays: History) -> None:
    """Every form of the view says so."""
    found = drawn(delays, a=4)
    assert found.sides is not None
    assert (found.sides[0].epoch, found.sides[0].asked, found.sides[1].asked) == (3, 4, None)
    view = DiffView(delays, 3, 6)
    view.look(between=(4, 6))
    assert "epoch 4 was not captured, showing epoch 3" in repr(view)
    assert resolved(-3, [2, 5]) == (-3, 2)


def test_live_follows_the_query(tmp_path: Path) -> None:
    """The later side is the newest epoch, and ``live - 1`` moves with it."""
    written = flights(tmp_path, epochs=3, gap=-1)
    view = DiffView(ss.open_store(tmp_path)["delays"], "live - 1")
    assert "epoch 1 → 2" in repr(view)
    state: State = dict(written.newest()["op0"])
    more_flights(state, 3)
    written.add({"op0": state})
    assert "epoch 2 → 3" in repr(view)


@pytest.mark.parametrize(
    ("action", "value"),
    [
        ("a", "everything"),
        ("b", None),
        ("page", [1]),
        ("sort", "key"),
        ("key", 99),
        ("key", "x"),
        ("mover", {}),
        ("mover", {"row": [-1]}),
        ("drop", "everything"),
    ],
)
def test_invalid_diff_actions_change_nothing(delays: History, action: str, value: Any) -> None:
    """Any message of a page is tolerated, even if its drawing is no longer known."""
    model = DiffModel(delays)
    for kept in (None, drawn(delays)):
        assert model.acted(DiffSelection(0, 6), action, value, kept) == DiffSelection(0, 6)


def test_sorting_by_an_unknown_column_is_ignored(delays: History) -> None:
    """A page can be older than the table that is shown."""
    assert drawn(delays, order_by="gone", mover="gone").keys == drawn(delays).keys


def test_a_diff_view_follows_linked_views(delays: History) -> None:
    """Two epochs are taken as they are; one epoch shows what led to it; live follows; unknown tables are ignored."""
    model, at = DiffModel(delays), DiffSelection(0, 3, page=1)
    assert model.focus(at) == Focus(between=(0, 3), table="op0")
    assert model.focus(DiffSelection(0)) == Focus(table="op0", live=True)
    assert model.focused(at, Focus(between=(1, 5))) == DiffSelection(1, 5)
    assert model.focused(at, Focus(epoch=5)) == DiffSelection(0, 5)
    assert model.focused(DiffSelection(3, 5), Focus(epoch=2)) == DiffSelection(1, 2)
    assert model.focused(at, Focus(live=True)) == DiffSelection(0)
    assert model.focused(at, Focus(key={"carrier": "x"})) == replace(at, key={"carrier": "x"})
    assert model.focused(at, Focus(table="op7")) == at


def test_unknown_diff_arguments_are_rejected(delays: History) -> None:
    """The error is raised before anything is shown, and lists the valid choices."""
    with pytest.raises(UnknownEpochError, match="3 and 5"):
        DiffView(delays, 4)
    with pytest.raises(InvalidArgumentError, match="live - 10"):
        DiffView(delays, "yesterday")
    with pytest.raises(UnknownTableError, match="op0"):
        DiffView(delays, 0, 1, "op7")


def test_a_diff_view_without_epochs_says_so(tmp_path: Path) -> None:
    """Every form says so, without an error."""
    Written(tmp_path, "young", {})
    view = DiffView(ss.open_store(tmp_path)["young"], "live - 3")
    assert repr(view) == "young: no epoch captured yet"
    assert "no epoch captured yet" in view._repr_mimebundle_()[0]["text/html"]


def test_the_static_form_has_counts_rows_and_a_picture(delays: History) -> None:
    """It is small and has no scripts."""
    html = DiffView(delays, 0, 6)._repr_mimebundle_()[0]["text/html"]
    assert "+6 ~17 −6" in html
    assert html.count("<tr") == 11
    assert "<svg" in html
    assert "<script" not in html
    assert len(html) < 200_000


def test_the_static_form_has_no_markup_from_the_state(stored: Path) -> None:
    """Names and values are escaped: only the view's own elements are present."""
    view = DiffView(ss.open_store(stored)["hostile"], 0, 1, "op0")
    html = view.model.html(view.model.drawing(view.selection))
    assert HOSTILE not in html
    assert set(_Tags(html).found) == {"style", "p", "strong", "table", "thead", "tbody", "tr", "th", "td"}


def test_columns_of_any_name_and_type(tmp_path: Path) -> None:
    """Column names that clash with a diff's own, times and infinities work; values that cannot be drawn have no bar."""
    kinds = {
        "value": pa.int64(),
        "value_old": pa.int64(),
        "value_delta": pa.float64(),
        "seen": pa.timestamp("us", "UTC"),
    }
    written = Written(tmp_path, "odd", {"op0": ({"a.b": pa.string(), **kinds}, 1)})
    later = START + dt.timedelta(minutes=90)
    written.add({"op0": {("x",): (1, 10, 0.0, START), ("y",): (2, 20, 0.0, START), ("z",): (2**62, 1, 0.5, START)}})
    written.add(
        {
            "op0": {
                ("x",): (1, 40, float("inf"), START),
                ("y",): (5, 20, float("nan"), later),
                ("z",): (-(2**62), 1, 0.25, START),
            }
        }
    )
    history = ss.open_store(tmp_path)["odd"]
    found = drawn(history, b=1)
    assert [value.moved for value in found.page.rows[2].values] == ["−9,223,372,036,854,775,808", "", "−0.25", ""]
    assert found.page.rows[1].values[3].moved == "+1:30:00"
    bars = {name: drawn(history, b=1, mover=name).movers for name in kinds}
    deltas = {name: [row["delta"] for row in bar.chart.rows] for name, bar in bars.items() if bar and bar.chart}
    assert deltas["value"] == [float(-(2**63)), 3.0]
    assert (deltas["value_old"], deltas["value_delta"], deltas["seen"]) == ([30.0], [-0.25], [5400.0])
    json.dumps(drawn(history, b=1, mover="value_delta").message(), allow_nan=False)
    assert drawn(history, b=1, order_by="value_old", descending=True).keys[0] == {"a.b": "x"}


def test_only_one_page_of_rows_is_sent(tmp_path: Path) -> None:
    """A message stays small however many rows differ."""
    written = Written(tmp_path, "large", {"op0": ({"key": pa.int64(), "n": pa.int64(), "text": pa.string()}, 1)})
    for epoch in range(2):
        written.add({"op0": {(key,): (key * epoch, "long " * 100) for key in range(20_000)}})
    found = drawn(ss.open_store(tmp_path)["large"], b=1, page=3, order_by="n", by_size=True, descending=True)
    assert found.counts["changed"] == 19_999
    assert [row.keys[0].text for row in found.page.rows] == [str(19_999 - at) for at in range(30, 40)]
    assert len(json.dumps(found.message())) < 20_000


def test_held_rows_are_released_without_a_viewer(delays: History) -> None:
    """The joined rows are dropped, and computed again when the view is shown again."""
    model = DiffModel(delays)
    before = model.drawing(DiffSelection(0, 6)).message
    model.release()
    assert model._held is None
    assert model.drawing(DiffSelection(0, 6)).message == before
