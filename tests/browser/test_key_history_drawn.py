"""Key history views without a browser: histories against brute force, plots, and static forms."""

from __future__ import annotations

import datetime as dt
import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading.test_histories import EXAMPLES, HISTORIES
from synthetic import write

import streamstate as ss
from browser.stores import HOSTILE, START, State, Written
from browser.test_views import _Tags
from streamstate.errors import InvalidArgumentError, UnknownColumnError, UnknownTableError
from streamstate.reports import History
from streamstate.widgets import Focus, KeyHistoryView
from streamstate.widgets.key_history.actions import PLOTS, KeySelection
from streamstate.widgets.key_history.drawing import KeyHistoryDrawing
from streamstate.widgets.key_history.model import KeyHistoryModel
from streamstate.widgets.key_history.plots import GAPS, column_chart
from streamstate.widgets.key_history.story import EpochRuns, Story, ValueRun, binned, kind_of, runs_of, story_of

KEY = {"carrier": "C01", "origin": "JFK"}


@pytest.fixture
def delays(stored: Path) -> History:
    """A query of epochs 0 to 6 with a gap at epoch 4."""
    return ss.open_store(stored)["delays"]


def drawn(history: History, key: dict[str, Any] | None = None, **chosen: Any) -> KeyHistoryDrawing:
    """The drawing of a selection."""
    found = KeyHistoryModel(history).drawing(KeySelection(key=key, **chosen)).kept
    assert isinstance(found, KeyHistoryDrawing)
    return found


def key_story(history: History, **key: Any) -> Story:
    """A key's story."""
    return story_of(history.key_history_arrow(**key), EpochRuns.of(history.recorded.entries()))


@EXAMPLES
@given(HISTORIES, st.integers(0, 3))
def test_spells_match_the_states(states: list[dict[str, int] | None], keyframe_every: int) -> None:
    """The plot has the key's value at each captured epoch, nothing while the key is absent, and nothing in a gap."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), states, keyframe_every=keyframe_every)
        history = ss.open_store(folder)["q"]
        for key in "abc":
            story = key_story(history, key=key)
            held: dict[int, int] = {}
            for spell in story.spells:
                held |= dict.fromkeys(range(spell.start, spell.end), story.changes[spell.change].values[0])
            assert held == {epoch: state[key] for epoch, state in enumerate(states) if state and key in state}
            run_held = {at: run.value for run in runs_of(story, 0) for at in range(run.start, run.end)} if held else {}
            assert run_held == held


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3), st.integers(-5, 5)), min_size=1), st.integers(1, 20))
def test_bins_cover_every_run(steps: list[tuple[int, int, int]], limit: int) -> None:
    """Each run is in one of at most ``limit`` bins, within its minimum and maximum, and the last value is kept."""
    runs, at = [], 0
    for number, (length, absent, value) in enumerate(steps):
        runs.append(ValueRun(at, at + length, value, number))
        at += length + absent
    bins = binned(runs, limit)
    assert len(bins) <= limit or bins == runs
    assert len(bins) <= max(limit, 1)
    assert sum(bucket.count for bucket in bins) == len(runs)
    for bucket in bins:
        inside = [run for run in runs if bucket.start <= run.start and run.end <= bucket.end]
        assert bucket.value == inside[-1].value
        if bucket.count > 1:
            assert (bucket.low, bucket.high) == (min(run.value for run in inside), max(run.value for run in inside))


def test_a_key_lost_in_a_gap_is_shown_as_removed(tmp_path: Path) -> None:
    """The changelog has no removal, but the keyframe after the gap has all keys: the plot ends at the gap."""
    write(tmp_path, [{"a": 1, "b": 1}, {"a": 2, "b": 1}, None, {"b": 1}, {"a": 3, "b": 1}])
    found = drawn(ss.open_store(tmp_path)["q"], {"key": "a"})
    assert [(row.epoch, row.mark, row.description) for row in found.page.rows] == [
        (4, "+", "added"),
        (3, "−", "gone after a gap"),
        (1, "~", "changed"),
        (0, "+", "added"),
    ]
    stays = drawn(ss.open_store(tmp_path)["q"], {"key": "b"})
    assert [(row.epoch, row.mark, row.description) for row in stays.page.rows] == [
        (3, "", "unchanged after a gap"),
        (0, "+", "added"),
    ]


def test_changes_match_the_key_history(delays: History) -> None:
    """Newest first, with their causes and the values that they changed."""
    found = drawn(delays, KEY, size=50)
    frame = delays.key_history("op0", **KEY)
    assert [row.epoch for row in found.page.rows] == frame["epoch"].tolist()[::-1]
    assert [row.cause for row in found.page.rows] == frame["cause"].tolist()[::-1]
    flights = frame["flights"].tolist()
    differ = [new != old for old, new in zip([None, *flights], flights, strict=False)][1:]
    assert [0 in row.differ for row in found.page.rows[::-1]][1:] == differ


def test_columns_are_drawn_by_type(tmp_path: Path) -> None:
    """Numbers and times are drawn as steps, other types as labelled spans; null is not a number."""
    kinds = {
        "n": pa.int64(),
        "at": pa.timestamp("us", "UTC"),
        "yes": pa.bool_(),
        "none": pa.int64(),
        "nan": pa.float64(),
    }
    written = Written(tmp_path, "q", {"op0": ({"key": pa.string(), **kinds}, 1)})
    for epoch in range(3):
        row = (None if epoch == 1 else epoch, START + dt.timedelta(hours=epoch), epoch > 0, None, float("nan"))
        written.add({"op0": {("a",): row}})
    story = key_story(ss.open_store(tmp_path)["q"], key="a")
    assert [kind_of(story, at) for at in range(5)] == ["number", "time", "other", "other", "other"]
    rows = column_chart(story, 0, (), 50).rows
    assert [(row["epoch"], row["y"], row["before"]) for row in rows if row["kind"] == "value"] == [(0, 0, 0), (2, 2, 2)]
    assert [(row["epoch"], row["to"]) for row in rows if row["kind"] == "null"][1:] == [(1, 2)]
    for at in range(5):
        chart = column_chart(story, at, (1,), 50)
        json.dumps(chart.message(), allow_nan=False)
        assert chart.svg().startswith("<svg")


def test_a_plot_shows_the_cause(delays: History) -> None:
    """Each run's tooltip has its cause; a click on the run selects its change."""
    found = drawn(delays, KEY)
    rows = [row for row in found.plots.charts[0].rows if row["kind"] == "value"]
    frame = delays.key_history("op0", **KEY).set_index("epoch")
    assert [row["cause"] for row in rows] == [frame["cause"][row["epoch"]] for row in rows]
    clicked = KeyHistoryModel(delays).acted(KeySelection(key=KEY), "change", {"row": [rows[-1]["row"]]}, found)
    assert clicked.marked == (rows[-1]["epoch"],)
    listed = KeyHistoryModel(delays).acted(KeySelection(key=KEY), "epoch", 0, found)
    assert listed.marked == (found.page.rows[0].epoch,)


@pytest.mark.exhaustive
def test_thousands_of_changes_are_few_rows(tmp_path: Path) -> None:
    """All changes are drawn, several per mark, and the plot says so; the table has pages."""
    columns = {"key": pa.string(), **{f"c{at}": pa.int64() for at in range(8)}}
    written = Written(tmp_path, "q", {"op0": (columns, 1)})
    for epoch in range(400):
        gap = epoch % 5 == 3
        written.add(None if gap else {"op0": {} if epoch % 7 == 0 else {("a",): tuple(range(epoch, epoch + 8))}})
    found = drawn(ss.open_store(tmp_path)["q"], {"key": "a"}, page=2)
    assert sum(len(chart.rows) for chart in found.plots.charts) < 1_000
    assert "each for several" in found.plots.charts[0].label
    assert found.plots.notes[0] == f"The {GAPS} longest of 80 gaps are shown."
    assert (len(found.plots.charts), found.plots.total) == (PLOTS, 8)
    assert (found.page.offset, len(found.page.rows)) == (20, 10)
    view = KeyHistoryView(ss.open_store(tmp_path)["q"], "op0", {"key": "a"})
    html = view._repr_mimebundle_()[0]["text/html"]
    assert len(html) < 200_000
    assert f"Pictures of {html.count('<svg')} of 8 columns." in html
    assert "<svg" in html
    later = drawn(ss.open_store(tmp_path)["q"], {"key": "a"}, column=PLOTS)
    assert [chart.label.partition(":")[0] for chart in later.plots.charts] == ["c6", "c7"]


def test_an_unknown_key_is_reported_with_similar_keys(delays: History) -> None:
    """Every form reports it instead of showing an empty plot."""
    view = KeyHistoryView(delays, "op0", {"carrier": "C1", "origin": "JFK"})
    assert "The key carrier C1, origin JFK was not in op0 at any epoch from 0 to 6." in repr(view)
    assert "carrier C01, origin JFK" in drawn(delays, {"carrier": "C1", "origin": "JFK"}).like


def test_invalid_keys_are_rejected(delays: History) -> None:
    """The error is raised before anything is shown, and lists the valid choices."""
    with pytest.raises(UnknownColumnError, match="Did you mean 'carrier'"):
        KeyHistoryView(delays, "op0", {"carier": "UA", "origin": "JFK"})
    with pytest.raises(InvalidArgumentError, match="origin"):
        KeyHistoryView(delays, "op0", {"carrier": "UA"})
    with pytest.raises(UnknownTableError, match="op0"):
        KeyHistoryView(delays, "op7", KEY)


def test_a_typed_key_has_its_columns_types(stored: Path) -> None:
    """A number is parsed as one; invalid text stays in the field, and the view says what is expected."""
    history = ss.open_store(stored)["hostile"]
    model, at = KeyHistoryModel(history), KeySelection("op1_left")
    assert model.acted(at, "typed", ["7"], None).key == {"k": 7}
    wrong = model.drawing(model.acted(at, "typed", ["seven"], None)).kept
    assert wrong.why_empty == "Invalid k=seven: expected a value of type int64.\nFor example: k 0"
    assert wrong.fields[0].text == "seven"
    assert model.acted(KeySelection("op1_left", {"k": 7}), "typed", None, None).key == {"k": 7}


def test_the_table_is_optional(stored: Path) -> None:
    """The first table with these key columns is used; without a key, the view says how to select one."""
    history = ss.open_store(stored)["hostile"]
    assert drawn(history, {"k": 3}).table == "op1_left"
    assert drawn(history).why_empty.startswith("Choose a key of op0 (key)")


def test_a_key_history_follows_linked_views(delays: History) -> None:
    """It takes a key with its table, and epochs as marks; a table alone changes nothing, because its keys differ."""
    model, at = KeyHistoryModel(delays), KeySelection("op0", KEY, page=2)
    assert model.focused(at, Focus(key={"k": 1}, table="op1")) == KeySelection("op1", {"k": 1})
    assert model.focused(at, Focus(epoch=3)).marked == (3,)
    assert model.focused(at, Focus(between=(1, 3), key=KEY)) == KeySelection("op0", KEY, (1, 3), page=2)
    assert model.focused(KeySelection("op0", KEY, (1,)), Focus(live=True)).marked == ()
    assert model.focused(at, Focus(table="op1")) == at
    assert model.focus(KeySelection("op0", KEY, (3,))) == Focus(3, table="op0", key=KEY)
    mismatch = model.drawing(KeySelection("op0", {"k": 1})).kept
    assert mismatch.why_empty == "op0 has no key k: its key columns are carrier, origin. Choose another key."


def test_the_change_in_force_is_marked(delays: History) -> None:
    """The newest change at or before the selected epoch is marked, whichever page it is on."""
    found = drawn(delays, KEY, marked=(4,))
    assert found.page.now is not None
    assert found.page.rows[found.page.now].epoch == 3
    marks = [row for row in found.plots.charts[0].rows if row["kind"] == "marked" and row["there"]]
    assert [row["epoch"] for row in marks] == [4]


def test_a_key_history_follows_the_query(tmp_path: Path) -> None:
    """A new epoch's change appears; without a change the last value continues."""
    write(tmp_path, [{"a": 1}])
    view = KeyHistoryView(ss.open_store(tmp_path)["q"], "op0", {"key": "a"})
    assert "1 change · added at epoch 0" in repr(view)
    write(tmp_path, [{"a": 1}, {"a": 1, "b": 2}, {"b": 2}])
    assert "2 changes · removed at epoch 2" in repr(view)
    assert "not in the state now" in repr(view)


def test_a_key_history_view_without_epochs_says_so(tmp_path: Path) -> None:
    """Every form says so, without an error."""
    Written(tmp_path, "young", {})
    view = KeyHistoryView(ss.open_store(tmp_path)["young"], "op0", {"key": "a"})
    assert repr(view) == "young: No epoch has been captured yet. The key's changes will appear here."


def test_the_static_key_history_has_no_markup_from_the_state(stored: Path) -> None:
    """Names and values are escaped, in the pictures too: only the view's own elements are present."""
    view = KeyHistoryView(ss.open_store(stored)["hostile"], "op0", {"key": HOSTILE})
    html = view.model.html(view.model.drawing(view.selection))
    assert HOSTILE not in html
    assert not {"img", "script"} & set(_Tags(html).found)


def test_a_key_history_allows_any_columns(tmp_path: Path) -> None:
    """A table may have no values, or columns named like those of the history."""
    names = {"epoch": pa.int64(), "cause": pa.string(), "change": pa.string()}
    written = Written(tmp_path, "odd", {"op0": ({"k": pa.string(), **names}, 1), "op1": ({"k": pa.string()}, 1)})
    states: list[State] = [{("a",): (1, "x", "y")}, {("a",): (2, "x", "z")}]
    for state in states:
        written.add({"op0": state, "op1": {("a",): ()}})
    history = ss.open_store(tmp_path)["odd"]
    found = drawn(history, {"k": "a"}, table="op0")
    assert (list(found.columns), found.page.rows[0].differ) == (["epoch", "cause", "change"], [0, 2])
    assert drawn(history, {"k": "a"}, table="op1").plots.notes == ["This table has no value columns, only keys."]
