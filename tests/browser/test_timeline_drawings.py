"""Timelines without a browser: measures, bins, marks, selections, and static forms."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import synthetic
from hypothesis import given, settings
from hypothesis import strategies as st

import streamstate as ss
from browser.epochs import entry, eventful, long, record
from browser.stores import HOSTILE, START, flights
from streamstate.errors import InvalidArgumentError
from streamstate.reports import History, Store
from streamstate.snapshots.store.entries import Entry
from streamstate.widgets import Focus, StateBrowser, Timeline, link
from streamstate.widgets.timeline.actions import ROWS, TimelineSelection, acted
from streamstate.widgets.timeline.charts import charts
from streamstate.widgets.timeline.drawing import TimelineDrawing
from streamstate.widgets.timeline.epochs import MEASURES, bin_width, binned, points
from streamstate.widgets.timeline.model import LIMIT, TimelineModel


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """``trips`` with a gap, a restart and a fork; ``trial``, the fork; and ``long``."""
    path = tmp_path_factory.mktemp("timeline") / "store"
    eventful(path)
    long(path)
    return ss.open_store(path)


def view(history: History, **chosen: Any) -> TimelineDrawing:
    """The drawing of a selection."""
    return TimelineModel(history).view(TimelineSelection(**chosen))


def test_points_match_the_manifest(store: Store) -> None:
    """Rows are summed over all tables; watermark lag and capture time are measured from the commit."""
    history = store["trips"]
    shown = {point.first: point for point in view(history).points}
    epochs: Any = history.epochs().set_index("epoch")
    lags: Any = history.watermark_lag().set_index("epoch")
    for epoch in history.captured():
        row, values = epochs.loc[epoch], shown[epoch].values
        assert (values["input"], values["rows"]) == (row["input_rows"], sum(row["rows"].values()))
        assert values["changes"] == sum(row["changes"].values())
        assert values["lag"] == lags.loc[epoch, "lag"].total_seconds()
        assert values["capture"] == (row["captured_at"] - row["committed_at"]).total_seconds()
        assert values["duration"] == 1 + epoch % 3


def test_a_gap_has_no_values_and_is_marked(store: Store) -> None:
    """Missing epochs are not drawn as zero."""
    shown = view(store["trips"])
    assert list(shown.marks.gaps) == [(20, 22)]
    assert {value for point in shown.points[20:23] for value in point.values.values()} == {None}


def test_restarts_are_marked_where_the_run_changes(store: Store) -> None:
    """There is one line where another run begins; epochs with an unknown run have none."""
    assert list(view(store["trips"]).marks.restarts) == [33]
    runs = ["a", None, "a", None, "b"]
    single = points([replace(entry(n), run_id=run) for n, run in enumerate(runs)])
    from streamstate.widgets.timeline.epochs import marks

    assert list(marks(single, single, []).restarts) == [4]


def test_forks_are_marked_on_both_sides(store: Store) -> None:
    """A query marks its forks, and the epoch at which it was forked itself."""
    assert list(map(str, view(store["trips"]).forks)) == ["Forked into trial after epoch 40."]
    assert list(map(str, view(store["trial"]).forks)) == ["Forked from trips after epoch 40."]
    assert "Forked into trial after epoch 40." in view(store["trips"]).caption()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=400), st.integers(1, 60), st.integers(0, 50))
def test_bins_hold_each_epoch_once_and_fold_its_values(there: list[bool], limit: int, first: int) -> None:
    """Sum, maximum and last value are aggregated as named; there are no more bins than the limit."""
    single = points([entry(n) if known else Entry.gap(n) for n, known in enumerate(there, first)])
    width = bin_width(first, single[-1].last, limit)
    bins = binned(single, width)
    assert len(bins) <= limit
    assert [epoch for point in bins for epoch in sorted(point.captured + point.gaps)] == [
        point.first for point in single
    ]
    for measure in MEASURES:
        folded = [point.values[measure.name] for point in bins if point.values[measure.name] is not None]
        known = [point.values[measure.name] for point in single if point.values[measure.name] is not None]
        whole = {"sum": sum, "max": lambda each: max(each, default=None), "last": lambda each: each[-1:]}[measure.fold]
        assert whole(folded) == whole(known)


def test_bins_begin_at_multiples_of_their_width() -> None:
    """A new epoch changes only the newest bin."""
    single = points([entry(n) for n in range(95, 131)])
    before, after = binned(single[:-1], 10), binned(single, 10)
    assert [(point.first, point.last) for point in after] == [(95, 99), (100, 109), (110, 119), (120, 129), (130, 130)]
    assert before == after[:-1]


def test_many_epochs_are_a_bounded_message(store: Store) -> None:
    """The full range is binned; a narrow window shows single epochs; the caption says which."""
    model = TimelineModel(store["long"])
    whole = model.drawing(TimelineSelection(window=None)).message
    assert len(whole["points"]["first"]) <= LIMIT
    assert len(whole["points"]["first"]) + len(whole["marks"]) < 1_000
    assert len(json.dumps(whole)) < 100_000
    assert "up to 5 epochs" in " ".join(whole["caption"])
    assert [measure["fold"] for measure in whole["measures"]][:2] == ["sum of 5", "last of 5"]
    newest = model.drawing(TimelineSelection(window=100)).message
    assert newest["points"]["first"] == list(range(2_245, 2_345))


def test_a_new_epoch_changes_only_data(tmp_path: Path) -> None:
    """The plot specifications stay equal, and without a new epoch there is nothing to draw."""
    record(tmp_path, "q", [entry(n) for n in range(30)])
    model = TimelineModel(ss.open_store(tmp_path)["q"])
    before, newest = model.drawing(TimelineSelection()).message, model.newest()
    assert model.newest() == newest
    record(tmp_path, "q", [entry(30)])
    after = model.drawing(TimelineSelection()).message
    assert model.newest() != newest
    assert (after["charts"], after["measures"]) == (before["charts"], before["measures"])
    assert after["points"]["first"] == [*before["points"]["first"], 30]


def test_epochs_dropped_by_retention_disappear(tmp_path: Path) -> None:
    """Cached measurements of dropped epochs are not shown either."""
    synthetic.write(tmp_path, [{"a": n} for n in range(12)], query="q")
    model = TimelineModel(ss.open_store(tmp_path)["q"])
    assert [point.first for point in model.view(TimelineSelection()).points] == list(range(12))
    ss.open_store(tmp_path)["q"].retain(last=4)
    assert [point.first for point in model.view(TimelineSelection()).points] == [8, 9, 10, 11]


def test_measures_that_were_not_recorded_are_named(tmp_path: Path) -> None:
    """A query of another process has no input rows: a note replaces the empty plot."""
    record(tmp_path, "q", [replace(entry(n), input_rows=None, began_at=None) for n in range(3)])
    shown = view(ss.open_store(tmp_path)["q"])
    assert [measure["name"] for measure in shown.message()["measures"]] == ["rows", "changes", "lag", "capture"]
    assert "Not recorded for these epochs: input rows, duration." in shown.caption()


def test_a_copied_checkpoint_has_no_durations(tmp_path: Path) -> None:
    """Its epochs have only the times of their offset files: when a batch began, not how long it took."""
    record(tmp_path, "q", [replace(entry(n), committed_at=entry(n).began_at, time_source="offsets") for n in range(3)])
    assert "Not recorded for these epochs: duration." in view(ss.open_store(tmp_path)["q"]).caption()


def test_an_initial_watermark_has_no_lag(tmp_path: Path) -> None:
    """Spark's watermark is 1970 until the first event: 56 years of lag would be wrong."""
    beginning = START.replace(year=1970)
    record(tmp_path, "q", [replace(entry(0), watermark=beginning), entry(1)])
    assert [point.values["lag"] for point in view(ss.open_store(tmp_path)["q"]).points] == [None, 61]


CAPTURED = [0, 1, 2, 3, 5, 6]


@pytest.mark.parametrize(
    ("action", "value", "chosen"),
    [
        ("epoch", 3, (None, 3)),
        ("epoch", 99, (None, 6)),
        ("between", [6, 1], (1, 6)),
        ("between", [4, 9], (5, 6)),
        ("between", [3, 4], (None, 3)),
        ("between", [-9, -3], (None, 0)),
        ("between", ["1", None], (None, None)),
        ("epoch", "everything", (None, None)),
        ("drop", 1, (None, None)),
    ],
)
def test_only_captured_epochs_can_be_selected(action: str, value: Any, chosen: tuple[int | None, int | None]) -> None:
    """An interval shrinks to the captured epochs in it; invalid actions are ignored."""
    now = acted(TimelineSelection(), action, value, CAPTURED)
    assert (now.start, now.epoch) == chosen


def test_the_focus_is_the_interval_and_its_later_end(store: Store) -> None:
    """Views that compare use both ends, other views use the later one."""
    model = TimelineModel(store["trips"])
    chosen = model.acted(TimelineSelection(), "between", [12, 40], None)
    assert model.focus(chosen) == Focus(40, (12, 40))
    assert model.focus(TimelineSelection()) == Focus()
    assert model.focused(chosen, Focus(40, live=False)) == chosen
    assert model.focused(chosen, Focus(41)) == TimelineSelection(epoch=41)
    assert model.focused(chosen, Focus(live=True)) == TimelineSelection()
    assert model.focused(TimelineSelection(), Focus(between=(3, 9))) == TimelineSelection(epoch=9, start=3)
    assert model.focused(chosen, Focus(3, query="another")) == chosen


def test_linked_views_follow_each_other(tmp_path: Path) -> None:
    """The browser shows the later end of an interval, and its epoch is marked in the timeline."""
    flights(tmp_path)
    history = ss.open_store(tmp_path)["delays"]
    timeline, browser = Timeline(history), StateBrowser(history)
    link(timeline, browser)
    timeline.look(between=(1, 5))
    assert timeline.selection.between == (1, 5)
    received: list[Focus] = []
    timeline.on_look(received.append)
    timeline._chosen(timeline.selection)
    assert received == [Focus(5, (1, 5))]
    assert browser.selection.epoch == 5
    browser._chosen(replace(browser.selection, epoch=2))
    assert timeline.selection == TimelineSelection(epoch=2)


def test_a_selection_is_described_in_words_and_numbers(store: Store) -> None:
    """The text has the interval, its gaps, and its totals."""
    selected = view(store["trips"], epoch=40, start=12).selected()
    assert selected is not None
    assert selected["text"] == "epochs 12–40 selected"
    read = sum(100 + epoch for epoch in range(12, 41) if epoch not in (20, 21, 22))
    assert selected["facts"][:2] == ["29 epochs, 3 of them gaps", f"{read:,} input rows"]
    outside = view(store["long"], epoch=3, window=100).selected()
    assert outside is not None
    assert outside["outside"]


def test_the_table_pages_through_all_epochs(store: Store) -> None:
    """Newest first, twenty per page, whatever the window; a page beyond the end shows the last page."""
    pages = [view(store["trips"], as_table=True, page=page).message()["table"] for page in range(3)]
    assert [row["epoch"] for page in pages for row in page["rows"]] == list(range(59, -1, -1))
    assert {len(page["rows"]) for page in pages} == {ROWS}
    assert view(store["trips"], as_table=True, page=99).message()["table"]["page"] == 2
    assert pages[0]["rows"][0]["cells"] == ["159", "1,069", "10", "3.0 s", "1 min 3 s", "500 ms"]
    assert view(store["trips"]).message()["table"] is None


def test_the_timeline_has_a_text_form(store: Store) -> None:
    """It describes the newest epoch."""
    assert repr(Timeline(store["trips"])).startswith("trips: 57 epochs captured · 3 gaps · newest 59, committed 2026")
    assert "state rows 1,069" in repr(Timeline(store["trips"]))


@pytest.mark.parametrize("query", ["trips", "trial", "long"])
def test_the_static_timeline_has_pictures_and_a_table(store: Store, query: str) -> None:
    """There is one labelled picture per measure, no script, and the size suits a notebook."""
    html = Timeline(store[query], window=None)._repr_mimebundle_()[0]["text/html"]
    assert html.count('<svg role="img"') + html.count('role="img"') >= len(MEASURES)
    assert "<script" not in html
    assert len(html) < 200_000
    assert "The newest epochs of" in html


def test_names_in_the_timeline_are_escaped(tmp_path: Path) -> None:
    """A fork's parent may have any name."""
    record(tmp_path, "q", [entry(n) for n in range(3)], fork_of=(HOSTILE, 1))
    shown = view(ss.open_store(tmp_path)["q"])
    assert HOSTILE in " ".join(shown.caption())
    assert HOSTILE not in shown.html()


def test_a_timeline_without_captured_epochs_says_so(tmp_path: Path) -> None:
    """Every form says so, also if there are only gaps."""
    record(tmp_path, "young", [])
    record(tmp_path, "purged", [Entry.gap(0)])
    for name in ("young", "purged"):
        timeline = Timeline(ss.open_store(tmp_path)[name])
        assert repr(timeline) == f"{name}: no epoch captured yet"
        assert "no epoch captured yet" in timeline._repr_mimebundle_()[0]["text/html"]
        assert timeline.model.drawing(timeline.selection).message == {"name": name, "waiting": True}


def test_time_axes_have_a_suitable_unit(tmp_path: Path) -> None:
    """A long lag is shown in days, and a short capture in milliseconds."""
    record(tmp_path, "q", [replace(entry(n), watermark=START - timedelta(days=6)) for n in range(3)])
    plots = {chart.label: json.dumps(chart.spec) for chart in charts("q", points([entry(0)]), 1)}
    assert "' ms'" in plots["Capture lag of q by epoch"]
    shown = view(ss.open_store(tmp_path)["q"])
    lag = next(chart for chart in charts("q", shown.points, 1) if "Watermark" in chart.label)
    assert "' d'" in json.dumps(lag.spec)


def test_an_unknown_window_is_rejected(store: Store) -> None:
    """The error lists the valid windows."""
    with pytest.raises(InvalidArgumentError, match="expected 100, 500, or None"):
        Timeline(store["trips"], window=7)
