"""The view of a query's load, without a browser or Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from load.stores import busy, entry, kafka, of_states, written

from streamstate.errors import InvalidArgumentError
from streamstate.reports import History
from streamstate.snapshots.store.epoch_load import EpochLoad
from streamstate.widgets import LoadView
from streamstate.widgets.charts_and_words import ChartsAndWords
from streamstate.widgets.load_charts import BINS


def shown(history: History, **limits: int | str) -> ChartsAndWords:
    """The view's drawing."""
    view = LoadView(history, **limits)  # type: ignore[arg-type]  # the names of limits
    drawn = view.model.drawing(view.selection).kept
    assert isinstance(drawn, ChartsAndWords)
    view.close()
    return drawn


@pytest.fixture(name="busy")
def of_a_busy_query(tmp_path: Path) -> History:
    """The history of :func:`busy`."""
    return busy(tmp_path)


def test_each_question_has_a_plot_with_the_numbers_of_the_load(busy: History) -> None:
    """Rates, phases, backlog, latency, state, tasks and shed rows; the values are those of the frame."""
    rates, phases, backlog, latency, state, tasks, shed = shown(busy).charts
    frame = busy.load().to_pandas()
    for chart, column in ((backlog, "backlog_rows"), (latency, "latency_seconds"), (state, "state_bytes")):
        values = [row["y"] for row in chart.rows if row["kind"] == "value"]
        assert values[1:] == frame[column].tolist()[1:]
    arrive = [row["y"] for row in rates.rows if row.get("what") == "arrive"]
    assert arrive[0] is None
    assert arrive[1:] == frame["arrival_rate"].tolist()[1:]
    runs = [row["y"] for row in phases.rows if row.get("what") == "run"]
    assert runs == pytest.approx([4 + epoch / 10 - 1 for epoch in range(20)])
    assert [row["y"] for row in tasks.rows if row.get("what") == "slowest task"][-2:] == [3.0, 3.0]
    dropped = [row for row in shed.rows if row.get("what") == "dropped"]
    assert [(row["epoch"], row["from"], row["to"]) for row in dropped] == [(18, 70, 100), (19, 70, 100)]


def test_a_forecast_is_drawn_towards_its_limit(busy: History) -> None:
    """Dashed, up to some epochs after the newest; the limit is a line if it is near."""
    drawn = shown(busy, backlog=500, state=1_000)
    backlog = next(chart for chart in drawn.charts if "wait" in chart.label)
    path = [(row["x"], row["y"]) for row in backlog.rows if row["kind"] == "path"]
    assert path[0] == (19, 380)
    assert path[-1] == pytest.approx((22, 440), rel=0.02)
    assert [row["y"] for row in backlog.rows if row["kind"] == "limit"] == [500]
    assert "At epoch 19 the backlog is 380 rows, and reaches 500 rows at" in " ".join(drawn.sentences)
    ends = {tuple(row["x"] for row in chart.rows if row["kind"] == "end") for chart in drawn.charts}
    assert len(ends) == 1, "the plots share an axis"


def test_without_a_limit_the_state_is_forecast_to_double(tmp_path: Path) -> None:
    """So that a growing state is seen without a question."""
    loads = [EpochLoad(1.0, operators=(kafka(1, 0, size=10**6 * (epoch + 20)).operators)) for epoch in range(20)]
    drawn = shown(written(tmp_path, [entry(epoch, load) for epoch, load in enumerate(loads)]))
    assert any("the state is 39.00 MB, and reaches 78.00 MB at" in sentence for sentence in drawn.sentences)


def test_epochs_without_a_report_show_what_is_known(tmp_path: Path) -> None:
    """Their durations are bars of their own, and a sentence says what is missing."""
    drawn = shown(written(tmp_path, [entry(epoch, None) for epoch in range(4)]))
    assert [chart.label for chart in drawn.charts] == ["Seconds by phase of q, by epoch"]
    assert {row["what"] for row in drawn.charts[0].rows if row["kind"] == "bar"} == {"whole epoch"}
    assert any("was not at hand" in sentence for sentence in drawn.unknown)
    assert "<details><summary>Not known</summary><p>Spark" in drawn.html()


def test_many_epochs_are_folded(tmp_path: Path) -> None:
    """A page gets at most so many points of a line."""
    drawn = shown(of_states(tmp_path, range(1, 1_001)))
    state = next(chart for chart in drawn.charts if "state" in chart.label)
    values = [row for row in state.rows if row["kind"] == "value"]
    assert len(values) <= BINS
    assert "5 epochs per point" in state.label


def test_it_is_json_text_and_html(busy: History) -> None:
    """The forms that every view has."""
    view = LoadView(busy)
    json.dumps(view.model.drawing(view.selection).message)
    assert repr(view).startswith("q: Epoch 19 took 5.9 s and read 100 rows.")
    bundle, _ = view._repr_mimebundle_()
    assert bundle["text/html"].count("<svg") == 7
    view.close()


def test_it_follows_new_epochs(tmp_path: Path) -> None:
    """The newest epoch is what it looks for."""
    from streamstate.snapshots.store.layout import Layout
    from streamstate.snapshots.store.manifest import Manifest

    view = LoadView(of_states(tmp_path, [1, 2]))
    before = view.model.newest()
    Manifest(Layout.at(tmp_path), "q").append([entry(2, kafka(1, 0))], "q/_epochs")
    assert view.model.newest() != before
    assert "Epoch 2 took" in repr(view)
    view.close()


def test_a_wrong_limit_is_an_error(busy: History) -> None:
    """When the view is made or drawn, in words."""
    with pytest.raises(InvalidArgumentError, match="expected a size such as '10GB'"):
        shown(busy, state="much")
