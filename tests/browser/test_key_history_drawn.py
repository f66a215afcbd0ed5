"""What a key history view shows, without a browser: a key's story against brute force, its plots, and its forms."""

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
from streamstate.snapshots.errors import InvalidArgumentError, UnknownColumnError, UnknownTableError
from streamstate.widgets import Focus, KeyHistoryView
from streamstate.widgets.key_life.drawing import KeyDrawing
from streamstate.widgets.key_life.model import KeyLifeModel
from streamstate.widgets.key_life.plots import GAPS, column_chart
from streamstate.widgets.key_life.runs import Run, binned, kind_of, runs_of
from streamstate.widgets.key_life.selection import PLOTS, Selection
from streamstate.widgets.key_life.story import Epochs, story_of

KEY = {"carrier": "C01", "origin": "JFK"}


@pytest.fixture
def delays(stored: Path) -> ss.History:
    """A query of epochs 0 to 6 with a gap at epoch 4."""
    return ss.open_store(stored)["delays"]


def drawn(history: ss.History, key: dict[str, Any] | None = None, **chosen: Any) -> KeyDrawing:
    """What a selection shows."""
    found = KeyLifeModel(history).drawing(Selection(key=key, **chosen)).kept
    assert isinstance(found, KeyDrawing)
    return found


def told(history: ss.History, **key: Any) -> tuple[Any, Epochs]:
    """A key's story, and the epochs."""
    epochs = Epochs.of(history.entries())
    committed = {entry.epoch: entry.committed_at for entry in history.entries()}
    return story_of(history.key_history(**key), epochs, committed), epochs


@EXAMPLES
@given(HISTORIES, st.integers(0, 3))
def test_the_spells_are_the_states(states: list[dict[str, int] | None], keyframe_every: int) -> None:
    """At each captured epoch the plot has the key's value, or nothing where it is not there; never in a gap."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), states, keyframe_every=keyframe_every)
        history = ss.open_store(folder)["q"]
        for key in "abc":
            story, _ = told(history, key=key)
            held: dict[int, int] = {}
            for spell in story.spells:
                held |= dict.fromkeys(range(spell.start, spell.end), story.changes[spell.change].values[0])
            assert held == {epoch: state[key] for epoch, state in enumerate(states) if state and key in state}
            run_held = {at: run.value for run in runs_of(story, 0) for at in range(run.start, run.end)} if held else {}
            assert run_held == held


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3), st.integers(-5, 5)), min_size=1), st.integers(1, 20))
def test_bins_leave_nothing_out(steps: list[tuple[int, int, int]], limit: int) -> None:
    """At most so many; each run is in one, between its lowest and highest value, and the last one's value stays."""
    runs, at = [], 0
    for number, (length, absent, value) in enumerate(steps):
        runs.append(Run(at, at + length, value, number))
        at += length + absent
    bins = binned(runs, limit)
    assert len(bins) <= limit or bins == runs
    assert len(bins) <= max(limit, 1)
    assert sum(one.count for one in bins) == len(runs)
    for one in bins:
        inside = [run for run in runs if one.start <= run.start and run.end <= one.end]
        assert one.value == inside[-1].value
        if one.count > 1:
            assert (one.low, one.high) == (min(run.value for run in inside), max(run.value for run in inside))


def test_a_key_lost_in_a_gap_is_said_to_be_gone(tmp_path: Path) -> None:
    """The log has no removal, but after a gap it has all keys that are there: the plot breaks off."""
    write(tmp_path, [{"a": 1, "b": 1}, {"a": 2, "b": 1}, None, {"b": 1}, {"a": 3, "b": 1}])
    found = drawn(ss.open_store(tmp_path)["q"], {"key": "a"})
    assert [(row.epoch, row.mark, row.said) for row in found.page.rows] == [
        (4, "+", "added"),
        (3, "−", "gone after a gap"),
        (1, "~", "changed"),
        (0, "+", "added"),
    ]
    stays = drawn(ss.open_store(tmp_path)["q"], {"key": "b"})
    assert [(row.epoch, row.mark, row.said) for row in stays.page.rows] == [
        (3, "", "the same after a gap"),
        (0, "+", "added"),
    ]


def test_the_changes_are_those_of_the_key_history(delays: ss.History) -> None:
    """Newest first, with causes, and what each changed."""
    found = drawn(delays, KEY, size=50)
    frame = delays.key_history("op0", **KEY)
    assert [row.epoch for row in found.page.rows] == frame["epoch"].tolist()[::-1]
    assert [row.cause for row in found.page.rows] == frame["cause"].tolist()[::-1]
    flights = frame["flights"].tolist()
    differ = [new != old for old, new in zip([None, *flights], flights, strict=False)][1:]
    assert [0 in row.differ for row in found.page.rows[::-1]][1:] == differ


def test_columns_are_drawn_by_what_they_hold(tmp_path: Path) -> None:
    """Numbers and times as steps, all else as labelled stretches; null is not a number."""
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
    story, epochs = told(ss.open_store(tmp_path)["q"], key="a")
    assert [kind_of(story, at) for at in range(5)] == ["number", "time", "other", "other", "other"]
    rows = column_chart(story, 0, epochs, (), 50).rows
    assert [(row["epoch"], row["y"], row["before"]) for row in rows if row["kind"] == "value"] == [(0, 0, 0), (2, 2, 2)]
    assert [(row["epoch"], row["to"]) for row in rows if row["kind"] == "null"][1:] == [(1, 2)]
    for at in range(5):
        chart = column_chart(story, at, epochs, (1,), 50)
        json.dumps(chart.message(), allow_nan=False)
        assert chart.svg().startswith("<svg")


def test_a_plot_tells_the_cause(delays: ss.History) -> None:
    """Of each run, when it is pointed at; a click on it is a click on its change."""
    found = drawn(delays, KEY)
    rows = [row for row in found.plots.charts[0].rows if row["kind"] == "value"]
    frame = delays.key_history("op0", **KEY).set_index("epoch")
    assert [row["cause"] for row in rows] == [frame["cause"][row["epoch"]] for row in rows]
    clicked = KeyLifeModel(delays).acted(Selection(key=KEY), "change", {"row": [rows[-1]["row"]]}, found)
    assert clicked.marked == (rows[-1]["epoch"],)
    listed = KeyLifeModel(delays).acted(Selection(key=KEY), "epoch", 0, found)
    assert listed.marked == (found.page.rows[0].epoch,)


def test_thousands_of_changes_are_few_rows(tmp_path: Path) -> None:
    """All are drawn, several by one mark, and the plot says so; the table has pages."""
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


def test_a_key_that_was_never_there_is_told_with_keys_like_it(delays: ss.History) -> None:
    """Not an empty plot; in every form."""
    view = KeyHistoryView(delays, "op0", {"carrier": "C1", "origin": "JFK"})
    assert "The key carrier C1, origin JFK was never in op0, from epoch 0 to 6." in repr(view)
    assert "carrier C01, origin JFK" in drawn(delays, {"carrier": "C1", "origin": "JFK"}).like


def test_what_cannot_be_a_key_is_refused_by_name(delays: ss.History) -> None:
    """Before anything is shown, with the choices."""
    with pytest.raises(UnknownColumnError, match="Did you mean 'carrier'"):
        KeyHistoryView(delays, "op0", {"carier": "UA", "origin": "JFK"})
    with pytest.raises(InvalidArgumentError, match="origin"):
        KeyHistoryView(delays, "op0", {"carrier": "UA"})
    with pytest.raises(UnknownTableError, match="op0"):
        KeyHistoryView(delays, "op7", KEY)


def test_a_typed_key_has_its_columns_types(stored: Path) -> None:
    """A number is understood as one; what is none stays in the field, and the view says what would be right."""
    history = ss.open_store(stored)["hostile"]
    model, at = KeyLifeModel(history), Selection("op1_left")
    assert model.acted(at, "typed", ["7"], None).key == {"k": 7}
    wrong = model.drawing(model.acted(at, "typed", ["seven"], None)).kept
    assert wrong.told == "k is of type int64, and 'seven' is no such value."
    assert wrong.fields[0].text == "seven"
    assert model.acted(Selection("op1_left", {"k": 7}), "typed", None, None).key == {"k": 7}


def test_the_table_may_be_left_out(stored: Path) -> None:
    """The first whose keys have these columns; without a key the view says how to choose one."""
    history = ss.open_store(stored)["hostile"]
    assert drawn(history, {"k": 3}).table == "op1_left"
    assert drawn(history).told.startswith("Choose a key of op0 (key)")


def test_linked_views_look_at_the_same(delays: ss.History) -> None:
    """A key with its table, epochs as marks; a table alone changes nothing, for it has other keys."""
    model, at = KeyLifeModel(delays), Selection("op0", KEY, page=2)
    assert model.focused(at, Focus(key={"k": 1}, table="op1")) == Selection("op1", {"k": 1})
    assert model.focused(at, Focus(epoch=3)).marked == (3,)
    assert model.focused(at, Focus(between=(1, 3), key=KEY)) == Selection("op0", KEY, (1, 3), page=2)
    assert model.focused(Selection("op0", KEY, (1,)), Focus(live=True)).marked == ()
    assert model.focused(at, Focus(table="op1")) == at
    assert model.focus(Selection("op0", KEY, (3,))) == Focus(3, table="op0", key=KEY)
    other = model.drawing(Selection("op0", {"k": 1})).kept
    assert other.told == "The key k is not one of op0, whose key is carrier, origin. Choose another."


def test_the_change_in_force_is_marked(delays: ss.History) -> None:
    """That of the newest change at or before the epoch looked at, on whichever page it is."""
    found = drawn(delays, KEY, marked=(4,))
    assert found.page.now is not None
    assert found.page.rows[found.page.now].epoch == 3
    marks = [row for row in found.plots.charts[0].rows if row["kind"] == "marked" and row["there"]]
    assert [row["epoch"] for row in marks] == [4]


def test_it_follows_the_query(tmp_path: Path) -> None:
    """A new epoch's change is there, and without one the last value goes on."""
    write(tmp_path, [{"a": 1}])
    view = KeyHistoryView(ss.open_store(tmp_path)["q"], "op0", {"key": "a"})
    assert "1 change · added at epoch 0" in repr(view)
    write(tmp_path, [{"a": 1}, {"a": 1, "b": 2}, {"b": 2}])
    assert "2 changes · removed at epoch 2" in repr(view)
    assert "not there now" in repr(view)


def test_a_query_without_an_epoch_says_so(tmp_path: Path) -> None:
    """In every form, and without an error."""
    Written(tmp_path, "young", {})
    view = KeyHistoryView(ss.open_store(tmp_path)["young"], "op0", {"key": "a"})
    assert repr(view) == "young: No epoch is captured yet. The key's changes will show here."


def test_the_static_form_holds_no_markup_of_the_state(stored: Path) -> None:
    """Names and values are escaped, in the pictures too: only our own elements are there."""
    view = KeyHistoryView(ss.open_store(stored)["hostile"], "op0", {"key": HOSTILE})
    html = view.model.html(view.model.drawing(view.selection))
    assert HOSTILE not in html
    assert not {"img", "script"} & set(_Tags(html).found)


def test_state_may_hold_anything(tmp_path: Path) -> None:
    """A table without values, and columns that are called as the history's own."""
    names = {"epoch": pa.int64(), "cause": pa.string(), "change": pa.string()}
    written = Written(tmp_path, "odd", {"op0": ({"k": pa.string(), **names}, 1), "op1": ({"k": pa.string()}, 1)})
    states: list[State] = [{("a",): (1, "x", "y")}, {("a",): (2, "x", "z")}]
    for state in states:
        written.add({"op0": state, "op1": {("a",): ()}})
    history = ss.open_store(tmp_path)["odd"]
    found = drawn(history, {"k": "a"}, table="op0")
    assert (list(found.columns), found.page.rows[0].differ) == (["epoch", "cause", "change"], [0, 2])
    assert drawn(history, {"k": "a"}, table="op1").plots.notes == [
        "This table has no value columns: its keys are all it holds."
    ]
