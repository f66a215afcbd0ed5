"""The query dashboard of a store alone, without Spark and without a browser."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from browser.stores import HOSTILE, Written, flights, more_flights

import streamstate as ss
from streamstate.errors import InvalidArgumentError, UnknownTableError
from streamstate.reports import Store
from streamstate.snapshots.spark.plan_graph import PlanGraph, PlanNode
from streamstate.snapshots.store.entries import Entry, TableEntry
from streamstate.widgets import Focus, QueryDashboard
from streamstate.widgets.dashboard import spread as spreading
from streamstate.widgets.dashboard.drawing import DashboardDrawing
from streamstate.widgets.dashboard.facts import troubles_of
from streamstate.widgets.dashboard.model import DashboardModel, DashboardSelection
from streamstate.widgets.dashboard.operators import from_plan
from streamstate.widgets.dashboard.spread import StateSpread, window
from streamstate.widgets.dashboard.watcher import QuerySample


@pytest.fixture(scope="module")
def opened_store(stored: Path) -> Store:
    """The store that the browser tests use."""
    return ss.open_store(stored)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a gap in one query, and untrusted text in another."""
    from browser.stores import hostile

    path = tmp_path_factory.mktemp("stored") / "store"
    flights(path)
    hostile(path)
    return path


def shown(dashboard: QueryDashboard) -> DashboardDrawing:
    """The dashboard's current drawing."""
    model = dashboard.model
    assert isinstance(model, DashboardModel)
    return model.view(dashboard.selection)


def test_heavy_keys_and_partitions_match_the_history(opened_store: Store) -> None:
    """They equal ``heavy_keys`` and ``skew`` over the stated window."""
    delays = opened_store["delays"]
    spread = shown(QueryDashboard(delays)).spread
    assert spread is not None
    assert (spread.since, spread.epochs) == (-1, 6)
    frame = delays.heavy_keys("op0", n=len(spread.keys))
    assert [(key.key["carrier"], key.key["origin"], key.writes, key.last) for key in spread.keys] == [
        tuple(row) for row in frame.itertuples(index=False, name=None)
    ]
    skew = delays.live().table("op0").skew()
    assert dict(spread.rows) == dict(zip(skew["partition"], skew["rows"], strict=True))
    assert sum(spread.writes.values()) == int(delays.heavy_keys("op0", n=10_000)["_writes"].sum())
    assert spread.bytes > 0


def test_the_window_shrinks_if_each_epoch_changes_many_keys() -> None:
    """This bounds the number of rows read; gaps do not count."""

    def entry(epoch: int, changes: int) -> Entry:
        return Entry(epoch, "captured", tables={"op0": TableEntry(1, changes, None)})

    few = [entry(epoch, 10) for epoch in range(100)]
    assert window(few, "op0") == (79, spreading.EPOCHS)
    many = [entry(epoch, spreading.WRITES // 2) for epoch in range(9)]
    assert window([*many, Entry.gap(9)], "op0") == (6, 2)


def test_an_uneven_partition_is_described_in_words() -> None:
    """The text names the partition, its share, and the even share."""
    uneven = StateSpread("op0", 9, 8, 1, rows={0: 41, 1: 19, 2: 20, 3: 20, 4: 0}, writes={1: 5})
    assert uneven.sentences[0].replace("\xa0", " ") == "Partition 0 holds 41 % of 100 rows (even would be 20 %)."
    assert "Partition 1 took 100" in uneven.sentences[1]
    assert replace(uneven, rows=dict.fromkeys(range(4), 25)).sentences[0].startswith("Even: ")
    assert replace(uneven, rows={}, writes={}).sentences == ["No rows.", "No writes in the newest epoch."]


def test_thousands_of_partitions_are_hundreds_of_cells() -> None:
    """Neighbouring partitions share a cell, which shows the fullest of them."""
    rows = dict.fromkeys(range(3_000), 1) | {17: 500}
    cells = [row for row in StateSpread("op0", 1, 0, 1, rows=rows).chart().rows if row["what"] == "rows"]
    assert len(cells) <= spreading.CELLS
    assert next(row["count"] for row in cells if row["partition"] == "15–29") == 500


def node(number: int, name: str, kind: str, *inputs: int, operator: int | None = None, **metrics: int) -> PlanNode:
    """One operator of a plan."""
    return PlanNode(number, name, kind, f"{name} [x]", metrics, operator, inputs)  # type: ignore[arg-type]


def test_inputs_are_drawn_above_their_consumer() -> None:
    """Boxes are one layer above their consumer, a join spans its inputs, operators without metrics are left out."""
    nodes = (
        node(0, "MicroBatchScan", "source", numOutputRows=3),
        node(1, "Project", "operator", 0),
        node(2, "Exchange", "exchange", 1, dataSize=2_000, shuffleRecordsWritten=3),
        node(3, "MicroBatchScan", "source", numOutputRows=1),
        node(4, "Join", "state", 2, 3, operator=1, numTotalStateRows=4, numUpdatedStateRows=2, commitTimeMs=1_500),
    )
    tables = ["op0", "op1_left", "op1_right", "op10"]
    progress = {
        "sources": [{"description": "Rate[a]"}, {"description": HOSTILE}],
        "sink": {"description": "Console[b]"},
    }
    boxes = from_plan(PlanGraph(7, nodes), complete=True, progress=progress, tables=tables).boxes
    assert [(box.label.split(":")[0], box.row, box.column, box.columns) for box in boxes] == [
        ("Source", 1, 1, 1),
        ("Exchange", 2, 1, 1),
        ("Source", 2, 2, 1),
        ("Join", 3, 1, 2),
        ("Sink", 4, 1, 2),
    ]
    assert boxes[3].tables == ("op1_left", "op1_right")
    assert (boxes[1].bytes, boxes[3].time, boxes[1].feeds) == ("2.0 kB shuffled", "1.5 s", "Join")


def test_a_click_refers_to_keys_by_number_only(opened_store: Store) -> None:
    """It sets the table and key of linked views; invalid numbers are ignored."""
    model = QueryDashboard(opened_store["delays"]).model
    drawing = model.drawing(DashboardSelection())
    chosen = model.acted(DashboardSelection(), "key", 0, drawing.kept)
    assert model.focus(chosen) == Focus(table="op0", key=drawing.kept.spread.keys[0].key)
    assert model.drawing(chosen).message["spread"]["keys"][0]["chosen"]
    for action, value in (("key", 10**6), ("key", "0"), ("key", -1), ("table", "op9"), ("drop", 1)):
        assert model.acted(DashboardSelection(), action, value, drawing.kept) == DashboardSelection()
    hostile = QueryDashboard(opened_store["hostile"])
    hostile.look(table="op0", epoch=0)
    assert hostile.selection == DashboardSelection(table="op0")


def test_only_a_new_epoch_triggers_a_drawing(tmp_path: Path) -> None:
    """The state is read once per epoch, with a minimum pause; the figures name their epoch."""
    written = flights(tmp_path, epochs=3, gap=9)
    model = QueryDashboard(ss.open_store(tmp_path)["delays"]).model
    first = model.drawing(DashboardSelection()).kept
    before = model.newest()
    assert before == model.newest()
    assert model.drawing(DashboardSelection()).kept.spread is first.spread
    state = written.newest()["op0"]
    more_flights(state, 3)
    written.add({"op0": state})
    assert model.newest() != before
    after = model.drawing(DashboardSelection()).kept
    assert after.epoch == 3
    assert after.spread.epoch in (2, 3)


def test_every_form_escapes_and_stays_small(opened_store: Store) -> None:
    """No form contains script or markup from the state, and the message size is bounded."""
    dashboard = QueryDashboard(opened_store["hostile"], table="op0")
    data, metadata = dashboard._repr_mimebundle_()
    assert metadata == {}
    assert "<script" not in data["text/html"]
    assert HOSTILE not in data["text/html"]
    assert len(data["text/html"]) < 200_000
    assert len(json.dumps(dashboard.model.drawing(dashboard.selection).message)) < 60_000
    assert data["text/plain"].startswith("hostile: epoch 1 · ")


def test_a_dashboard_without_epochs_says_so(tmp_path: Path) -> None:
    """Every form says so, without an error."""
    Written(tmp_path, "young", {})
    dashboard = QueryDashboard(ss.open_store(tmp_path)["young"])
    assert repr(dashboard) == "young: no epoch captured yet"
    assert dashboard.model.drawing(DashboardSelection()).message["operators"] is None
    assert "no epoch captured yet" in dashboard._repr_mimebundle_()[0]["text/html"]


def test_invalid_dashboard_arguments_are_rejected(opened_store: Store) -> None:
    """The error is raised before anything is shown, and says what is expected."""
    with pytest.raises(UnknownTableError, match="op0"):
        QueryDashboard(opened_store["delays"], table="op7")
    with pytest.raises(InvalidArgumentError, match="StreamingQuery"):
        QueryDashboard(opened_store["delays"], "delays")


def test_an_error_has_a_short_line_and_its_full_text() -> None:
    """The line leaves out Spark's text around the error; the full text is complete."""
    text = "[STREAM_FAILED] Query terminated with exception: disk full SQLSTATE: XXKST\n=== Streaming Query ===\nplan"
    [trouble] = troubles_of(QuerySample("failed", problem=text), None, late=False)
    assert (trouble.short, trouble.whole) == ("disk full", text)
    assert troubles_of(QuerySample("running"), None, late=False) == []
    assert [item.what for item in troubles_of(QuerySample("running"), None, late=True)] == ["Spark is busy"]
