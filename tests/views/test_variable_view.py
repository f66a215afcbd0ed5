"""The views of shared variables, and the values that the slider sets, without a browser or Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bound_store import QUERY, BoundQuery, merge
from browser.lab import wait_until
from notebook_shell import Shell, bare_shell  # noqa: F401 (a fixture)

import streamstate as ss
from streamstate.errors import InvalidArgumentError, VariableConflictError
from streamstate.reports import History, SharedVariable
from streamstate.snapshots.checkpoint.bindings import Version
from streamstate.variables.notifications import Change
from streamstate.widgets import Timeline, VariableSlider, VariableView
from streamstate.widgets.charts_and_words import ChartsAndWords
from streamstate.widgets.model import NoSelection
from streamstate.widgets.timeline.actions import TimelineSelection
from streamstate.widgets.timeline.drawing import TimelineDrawing
from streamstate.widgets.timeline.model import TimelineModel


@pytest.fixture
def limit(tmp_path: Path) -> SharedVariable:
    """A control variable."""
    return ss.shared(tmp_path / "store", "limit", "double", init=60.0)


@pytest.fixture
def query(limit: SharedVariable, tmp_path: Path) -> BoundQuery:
    """A query whose epochs 0 to 5 saw 60, then 45 from epoch 3 on."""
    query = BoundQuery(tmp_path / "store")
    for epoch in range(6):
        if epoch == 3:
            limit.set(45.0)
        query.epoch(limit)
    return query


def shown(variable: SharedVariable | History, **arguments: Any) -> ChartsAndWords:
    """The view's drawing."""
    view = VariableView(variable, **arguments)
    drawn = view.model.drawing(view.selection).kept
    assert isinstance(drawn, ChartsAndWords)
    return drawn


def points(drawn: ChartsAndWords, chart: int = 0) -> list[tuple[Any, Any]]:
    """Return the epochs or versions at which a plot's values begin to hold, and the values."""
    return [(row["from"], row["y"]) for row in drawn.charts[chart].rows if row.get("dot") is not None]


def timeline(history: History) -> TimelineDrawing:
    """The timeline's drawing."""
    return TimelineModel(history).view(TimelineSelection())


def test_a_number_is_drawn_by_version(limit: SharedVariable) -> None:
    """The words name the newest version and who set it; the plot has a step for each version."""
    for value in (45.0, 30.0):
        limit.set(value)
    drawn = shown(limit)
    assert points(drawn) == [(0, 60.0), (1, 45.0), (2, 30.0)]
    assert drawn.text().startswith("limit: limit is 30: version 2, set by ")
    assert drawn.label == "Shared variable limit"
    assert drawn.charts[0].label == "limit, by version"


def test_beside_a_query_a_number_is_drawn_by_the_epochs_that_saw_it(limit: SharedVariable, query: BoundQuery) -> None:
    """The state rows of the same epochs stand below; the words say from which epoch on it held."""
    drawn = shown(limit, query=query.history)
    assert points(drawn) == [(0, 60.0), (3, 45.0)]
    assert "delays saw it from epoch 3 on." in drawn.sentences
    state = [(row["x"], row["y"]) for row in drawn.charts[1].rows if row["kind"] == "value"]
    assert state == [(epoch, 1_010 + epoch) for epoch in range(6)]
    ends = [[row["x"] for row in chart.rows if row["kind"] == "end"] for chart in drawn.charts]
    assert ends == [[-0.5, 5.5]] * 2
    limit.set(20.0)
    waiting = shown(limit, query=query.history)
    assert "delays has not seen it yet: its newest captured epoch, 5, saw version 1." in waiting.sentences


def test_a_new_version_changes_only_data(limit: SharedVariable, query: BoundQuery) -> None:
    """A page draws a plot anew only if its specification differs; without a new version there is nothing to draw."""
    model = VariableView(limit, query=query.history).model
    before, newest = model.drawing(NoSelection()).message, model.newest()
    assert model.newest() == newest
    limit.set(20.0)
    assert model.newest() != newest
    query.epoch(limit)
    after = model.drawing(NoSelection()).message
    assert [chart["spec"] for chart in after["charts"]] == [chart["spec"] for chart in before["charts"]]
    assert after["charts"] != before["charts"]


def test_a_counters_increments_are_bars_at_their_epochs(tmp_path: Path) -> None:
    """Operators only add to it, so the epochs are those that contributed; another query's do not count."""
    counter = ss.shared(tmp_path / "store", "late", "counter", access="write-mostly")
    query = BoundQuery(tmp_path / "store")
    for epoch in range(5):
        query.epoch(late=None)
        if epoch != 2:
            merge(counter, epoch, 10 * epoch)
            merge(counter, epoch, 1, query="another")
    drawn = shown(counter, query=query.history)
    bars = {row["first"] + 0.5: row["y"] for row in drawn.charts[0].rows if row["kind"] == "bar"}
    assert bars == {0: 0, 1: 10, 3: 30, 4: 40}
    assert "late is 84: version 8, merged from 2 tasks of epoch 4 of another" in drawn.text()
    assert "delays adds to it, and does not read it." in drawn.sentences
    assert len([row for row in shown(counter).charts[0].rows if row["kind"] == "bar"]) == 8


def test_a_lists_newest_items_are_listed_with_their_epochs(tmp_path: Path) -> None:
    """Newest first, also if the list is full and items repeat; what was set has no epoch."""
    alerts = ss.shared(tmp_path / "store", "alerts", "list<string>", merge="append(5)", init=["first"])
    BoundQuery(tmp_path / "store")
    for epoch, items in enumerate((["a", "b"], ["b"], ["<b>", "d", "e"])):
        merge(alerts, epoch, items)
    listing = shown(alerts).listing
    assert listing is not None
    rows = [[cell.text for cell in row[:3]] for row in listing.rows]
    assert rows == [["e", "2", QUERY], ["d", "2", QUERY], ["<b>", "2", QUERY], ["b", "1", QUERY], ["b", "0", QUERY]]
    assert listing.label == "The newest items of alerts, 5 of 5"
    assert "alerts has 5 items: version 3" in shown(alerts).text()
    html = VariableView(alerts)._repr_mimebundle_()[0]["text/html"]
    assert "&lt;b&gt;" in html
    assert "<b>" not in html
    alerts.set(["x", "y"])
    assert [row[1].text for row in shown(alerts).listing.rows] == ["set", "set"]  # type: ignore[union-attr]


def test_the_numbers_of_a_model_have_a_plot_each(tmp_path: Path) -> None:
    """A struct's fields, and the coefficients of a regression."""
    store = tmp_path / "store"
    moments = ss.shared(store, "moments", "struct<n: bigint, mean: double, variance: double>", merge="moments")
    merge(moments, 0, {"n": 2, "mean": 3.0, "m2": 2.0})
    assert [chart.label for chart in shown(moments).charts] == [
        f"{field} of moments, by version" for field in ("n", "mean", "variance")
    ]
    line = ss.shared(store, "line", "list<double>", merge="regression")
    merge(line, 0, {"xtx": [2.0, 1.0, 1.0, 1.0], "xty": [4.0, 3.0]})
    assert [chart.label.partition(",")[0] for chart in shown(line).charts] == [
        "intercept of line",
        "coefficient 1 of line",
    ]


def test_other_values_are_text(tmp_path: Path) -> None:
    """A text, a set; of a map the number of entries, and some of them; and a variable without a value."""
    store = tmp_path / "store"
    ss.shared(store, "mode", "string", init="fast<i>")
    assert "mode is fast<i>: version 0, declared" in shown(ss.shared(store, "mode")).text()
    means = ss.shared(store, "means", "map<string, double>")
    means.set({f"c{n:02}": float(n) for n in range(30)})
    drawn = shown(means)
    assert "means has 30 entries: version 1" in drawn.text()
    assert drawn.listing is not None
    assert [cell.text for cell in drawn.listing.rows[1]] == ["c01", "1"]
    assert len(drawn.listing.rows) == 20
    empty = shown(ss.shared(store, "nothing", "double"))
    assert "nothing is null" in empty.text()
    assert not empty.charts


def test_a_history_shows_what_the_store_has(limit: SharedVariable, query: BoundQuery) -> None:
    """Without the variable itself, such as on another machine; a query's history is no variable."""
    store = ss.open_store(limit.store)
    assert points(shown(store["shared.limit"])) == [(0, 60.0), (1, 45.0)]
    with pytest.raises(InvalidArgumentError, match="delays is a query"):
        VariableView(query.history)
    with pytest.raises(InvalidArgumentError, match="Invalid variable 45"):
        VariableView(45)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="Invalid query='delays'"):
        VariableView(limit, query=QUERY)  # type: ignore[arg-type]


def test_the_still_form_has_pictures_without_scripts(limit: SharedVariable, query: BoundQuery) -> None:
    """Each picture is labelled."""
    html = VariableView(limit, query=query.history)._repr_mimebundle_()[0]["text/html"]
    assert html.count('role="img" aria-label="') == html.count("<svg") == 2
    assert "<script" not in html


def test_a_timeline_marks_the_epochs_from_which_a_set_version_held(limit: SharedVariable, query: BoundQuery) -> None:
    """Not those from which a merged one did, nor the first value; a gap delays the mark to the next captured epoch."""
    query.gap()
    limit.set(30.0)
    query.gap()
    query.epoch(limit)
    drawn = timeline(query.history)
    assert [(mark.epoch, mark.text) for mark in drawn.marks.variables] == [(3, "limit = 45"), (8, "limit = 30")]
    assert drawn.message()["legend"]["variables"]
    assert "limit = 30 from epoch 8 on." in drawn.caption()
    assert "a shared variable was set" in drawn.html()
    marked = [row["epoch"] for row in drawn.message()["marks"] if row["kind"] == "variable" and "text" in row]
    assert marked == [2.5, 7.5]


def test_a_timeline_has_no_marks_for_merges_and_forks_own_versions(tmp_path: Path) -> None:
    """Nor for a query without variables; among merges, the version that was set is the one that is named."""
    total = ss.shared(tmp_path / "store", "total", "bigint", init=0, merge="sum")
    query = BoundQuery(tmp_path / "store")
    for epoch in range(8):
        merge(total, query.epoch(total), 1)
        if epoch == 4:
            total.set(100)
            merge(total, epoch, 7, query="another")
    query.epoch(total=Version(99, "fork"))
    drawn = timeline(query.history)
    assert [(mark.epoch, mark.text) for mark in drawn.marks.variables] == [(5, "total = 100")]
    assert len(drawn.marks.variables) == 1
    own = BoundQuery(tmp_path / "other")
    own.epoch()
    assert not timeline(own.history).marks.variables


def test_a_timeline_waits_for_versions_that_the_store_lacks(limit: SharedVariable, query: BoundQuery) -> None:
    """An epoch may be captured before the version that it saw is recorded; the mark comes with that."""
    limit.log.set(15.0, "ana", None)  # not recorded yet
    query.epoch(limit)
    model = TimelineModel(query.history)
    waiting, newest = model.view(TimelineSelection()), model.newest()
    assert [mark.epoch for mark in waiting.marks.variables] == [3]
    limit.record()
    assert model.newest() != newest
    assert [mark.text for mark in model.view(TimelineSelection()).marks.variables] == ["limit = 45", "limit = 15"]


def test_a_timeline_starts_over_after_retention(limit: SharedVariable, query: BoundQuery) -> None:
    """Marks of epochs that were dropped are not kept."""
    model = TimelineModel(query.history)
    assert [mark.epoch for mark in model.view(TimelineSelection()).marks.variables] == [3]
    ss.open_store(limit.store)[QUERY].retain(last=2)
    assert [mark.epoch for mark in model.view(TimelineSelection()).marks.variables] == [4]


def test_only_the_newest_versions_are_read_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the message stays small, whatever the number of versions."""
    monkeypatch.setattr("streamstate.widgets.variables.model.NEWEST", 50)
    counter = ss.shared(tmp_path / "store", "events", "counter")
    for epoch in range(120):
        counter.log.merge("q", epoch, 1, 1)
    rows = shown(counter).charts[0].rows
    assert [row["first"] + 0.5 for row in rows if row["kind"] == "bar"] == list(range(72, 121))


def place(slider: VariableSlider) -> float:
    """Return the slider's position, as a page draws it."""
    return float(slider.model.drawing(slider.selection).message["value"])


def move(slider: VariableSlider, to: object) -> None:
    """Move the slider, as a page reports it."""
    slider.model.acted(slider.selection, "set", to, None)


def test_a_slider_sets_the_variable(limit: SharedVariable, query: BoundQuery) -> None:
    """A value that a person chooses is a version; the words say which, by whom, and which epoch saw it first."""
    slider = VariableSlider(limit, 0, 120, query=query.history)
    assert (slider.value, place(slider)) == (45.0, 45.0)
    assert "limit = 45: version 1" in repr(slider)
    assert "delays saw it from epoch 3 on" in repr(slider)
    move(slider, 90)
    assert limit.get() == 90.0
    assert "version 2" in repr(slider)
    assert "no captured epoch of delays has seen it yet" in repr(slider)
    before = slider.model.newest()
    query.epoch(limit)
    assert slider.model.newest() != before
    assert "delays saw it from epoch 6 on" in repr(slider)
    limit.set(10.0)  # no conflict: the slider is the notebook's own


def test_a_slider_follows_what_is_set_elsewhere(limit: SharedVariable) -> None:
    """And sets nothing by itself, also if the value is beyond its ends."""
    slider = VariableSlider(limit, 0, 120)
    before = slider.model.newest()
    ss.shared(limit.store, "limit").set(500.0)
    assert slider.model.newest() != before
    assert (slider.value, place(slider)) == (500.0, 120.0)
    assert "limit = 500" in repr(slider)
    assert (limit.get(), limit.version) == (500.0, 1)


def test_a_slider_says_that_another_was_faster(limit: SharedVariable) -> None:
    """Nothing is set, the slider moves to the newest value, and the next choice is set."""
    slider = VariableSlider(limit, 0, 120)
    assert place(slider) == 60.0
    ss.shared(limit.store, "limit").set(30.0)
    move(slider, 90.0)
    assert (limit.get(), limit.version) == (30.0, 1)
    assert place(slider) == 30.0
    assert "Not set: another had set it meanwhile" in repr(slider)
    move(slider, 80.0)
    assert limit.get() == 80.0
    assert "Not set" not in repr(slider)


def test_a_sliders_words_are_escaped_and_errors_are_words(tmp_path: Path) -> None:
    """A value that the type does not hold is refused, and the slider goes back."""
    tiny = ss.shared(tmp_path / "store", "tiny", "tinyint", init=5)
    slider = VariableSlider(tiny, 0, 1000)
    move(slider, 900)
    assert tiny.get() == place(slider) == 5
    assert "Not set: Invalid value 900" in repr(slider)
    tiny.log.set(7, "<script>", None)
    assert slider.value == 7
    assert "<script>" not in slider._repr_mimebundle_()[0]["text/html"]


@pytest.mark.parametrize("sent", [float("nan"), 121, -1, "9", None, True, [1], 10**400])
def test_a_page_can_set_only_numbers_between_the_ends(limit: SharedVariable, sent: object) -> None:
    """Anything else is ignored."""
    slider = VariableSlider(limit, 0, 120)
    move(slider, sent)
    assert (limit.get(), limit.version) == (60.0, 0)


def test_a_saved_notebook_shows_where_the_slider_was(limit: SharedVariable) -> None:
    """In words and as a bar; it needs no widget, whose state a notebook does not keep."""
    bundle, _ = VariableSlider(limit, 0, 120)._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"}
    assert '<meter aria-label="limit" min="0.0" max="120.0" value="60.0">' in bundle["text/html"]
    assert "limit = 60: version 0, declared" in bundle["text/html"]
    assert "Run this cell again to set it." in bundle["text/html"]


@pytest.mark.parametrize(
    ("type_", "ends", "message"),
    [
        ("string", (0, 1), "a slider sets a number"),
        ("decimal(5, 2)", (0, 1), "a slider sets a number"),
        ("double", (2, 1), "the least value comes first"),
        ("double", (0, float("inf")), "Invalid end inf"),
        ("double", (True, 2), "Invalid end True"),
    ],
)
def test_what_no_slider_can_set_is_refused(tmp_path: Path, type_: str, ends: Any, message: str) -> None:
    """The error says what would be right."""
    with pytest.raises(InvalidArgumentError, match=message):
        VariableSlider(ss.shared(tmp_path / "store", "it", type_), *ends)


def test_a_change_is_heard_while_a_slider_moves(limit: SharedVariable) -> None:
    """A slider's versions are versions like any other."""
    heard: list[Change] = []
    subscription = limit.on_change(heard.append, interval=0.02)
    move(VariableSlider(limit, 0, 120), 12.0)
    wait_until(lambda: heard, "the change to be heard")
    subscription.stop()
    assert (heard[0].value, heard[0].kind) == (12.0, "set")


def test_objects_show_their_views() -> None:
    """A variable, and the history of one, at the end of a notebook's cell."""
    from streamstate.extension import _VIEWS

    assert ("streamstate.variables.shared_variable", "SharedVariable") in _VIEWS


def test_a_variables_history_shows_the_view_of_the_variable(limit: SharedVariable, query: BoundQuery) -> None:
    """And a query's its timeline."""
    from streamstate import widgets
    from streamstate.extension import _VIEWS

    view = _VIEWS["streamstate.state_inspect.history", "History"]
    assert isinstance(view(widgets, ss.open_store(limit.store)["shared.limit"]), VariableView)
    assert isinstance(view(widgets, query.history), Timeline)


def test_the_magic_shows_a_slider_of_the_notebooks_own_variable(
    bare_shell: Shell, limit: SharedVariable, query: BoundQuery
) -> None:
    """Values that it or the magic sets do not conflict with a value set in a cell; another notebook's value does."""
    bare_shell.names["limit"] = limit
    slider = bare_shell.run(f"%shared limit --slider 0 120 --query delays --store {limit.store}")
    assert isinstance(slider, VariableSlider)
    assert "delays saw it from epoch 3 on" in repr(slider)
    move(slider, 90.0)
    bare_shell.run("limit.set(80.0)\n%shared limit 70\nlimit.set(60.0)")
    assert limit.version == 5
    ss.shared(limit.store, "limit").set(50.0)
    assert "was set to 50.0 by another" in bare_shell.fails("limit.set(40.0)", VariableConflictError)
