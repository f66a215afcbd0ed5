"""The panel that explains a change in the key history, in diffs and in the browser, over a query that Spark ran."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from inputs.streams import EPOCHS, JOINED, START, read, right_of, rows_of_file, run, write_files
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from served_viewer import Tab, Visitor
from synthetic import write

import streamstate as ss
from streamstate.errors import UnknownEpochError
from streamstate.reports import History
from streamstate.state_inspect.cell_text import cell
from streamstate.state_inspect.temporal_index.query_interrupts import QueryStopped, RunningStatements
from streamstate.widgets import DiffView, KeyHistoryView, StateBrowser
from streamstate.widgets.diffs.actions import DiffSelection
from streamstate.widgets.diffs.model import DiffModel
from streamstate.widgets.key_history.actions import KeySelection
from streamstate.widgets.key_history.model import KeyHistoryModel
from streamstate.widgets.model import Drawing
from streamstate.widgets.page import serve
from streamstate.widgets.page.address import Address
from streamstate.widgets.state_browser.actions import BrowserSelection
from streamstate.widgets.state_browser.model import BrowserModel
from streamstate.widgets.view import View
from streamstate.widgets.why import WhyPanel, _jobs

HOUR = {"start": START + pd.Timedelta("1h"), "end": START + pd.Timedelta("2h")}
KEY = {"hour": HOUR, "user": "a"}
"""A window that gets rows in epochs 1 and 2 and ends in epoch 3."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The input of two sources."""
    made = tmp_path_factory.mktemp("why_view")
    for side, seed in (("left", 0), ("right", 100)):
        write_files(made / side, [rows_of_file(epoch, seed) for epoch in range(EPOCHS)])
    return made


@pytest.fixture(scope="module")
def history(spark: SparkSession, folder: Path) -> History:
    """Counts by hour and user, in append mode."""
    query = read(spark, folder / "left").groupBy(F.window("ts", "1 hour").alias("hour"), "user").count()
    return run(query, folder, "append")[0]


def input_of(folder: Path, epoch: int) -> list[str]:
    """The ids of the rows that fell on the key, by brute force."""
    rows = pd.read_parquet(folder / "left" / f"{epoch}.parquet")
    return rows[(rows.user == "a") & (rows.ts >= HOUR["start"]) & (rows.ts < HOUR["end"])].id.astype(str).tolist()


def explained(drawing: Drawing) -> WhyPanel:
    """The panel of a drawing, which a page can be sent."""
    json.dumps(drawing.message, allow_nan=False)
    panel = drawing.kept.why
    assert isinstance(panel, WhyPanel)
    return panel


def column(panel: WhyPanel, title: str, name: str) -> list[str]:
    """A column of a table of the panel."""
    table = next(table for table in panel.tables if table.title == title)
    return [row.cells[table.columns.index(name)].text for row in table.rows if row.cells]


def test_a_change_of_a_key_is_explained_after_the_rest_is_drawn(history: History, folder: Path) -> None:
    """Before, after and all rows of the input that fell on the key; what was read is not read again."""
    model = KeyHistoryModel(history)
    at = KeySelection(key=KEY)
    assert model.drawing(at).message["why_not"] == ""
    at = model.acted(at, "why", 2, None)
    assert model.focus(at).epoch == 2
    first = model.quick(at)
    assert first.unfinished
    assert explained(first).busy
    panel = explained(model.drawing(at))
    assert (panel.busy, panel.problem, panel.nearest) == (False, "", (1, 3))
    assert sorted(column(panel, "Input", "id")) == sorted(input_of(folder, 2))
    counts = [len(input_of(folder, 1)), len(input_of(folder, 1) + input_of(folder, 2))]
    assert column(panel, "Before and after", "count") == [cell(count).text for count in counts]
    assert panel.summary == f"{len(input_of(folder, 2))} input rows fell on it · cause: input"
    assert not model.quick(at).unfinished
    assert model.acted(at, "why", None, None).why is None
    assert model.acted(at, "typed", ["x"], None).why is None


def test_a_window_that_ended_shows_the_row_that_moved_the_watermark(history: History, folder: Path) -> None:
    """The key is absent afterwards; a saved notebook has the same tables, without scripts."""
    view = KeyHistoryView(history, key=KEY, why=3)
    bundle, _ = view._repr_mimebundle_()
    panel = explained(view.model.drawing(view.selection))
    latest = pd.read_parquet(folder / "left" / "2.parquet").sort_values("ts").iloc[-1]
    assert column(panel, "The row of epoch 2 that moved the watermark", "id") == [str(latest.id)]
    assert len(column(panel, "Before and after", "count")) == 1
    assert "why at epoch 3" in bundle["text/plain"]
    assert "The row of epoch 2 that moved the watermark" in bundle["text/html"]
    assert "absent" in bundle["text/html"]
    assert "<script" not in bundle["text/html"]
    with pytest.raises(UnknownEpochError):
        KeyHistoryView(history, key=KEY, why=99)


def test_a_row_of_a_diff_leads_to_its_last_change(history: History, folder: Path) -> None:
    """Over several epochs the panel has the change before it as well."""
    model = DiffModel(history)
    at = DiffSelection(0, 2, size=100)
    drawing = model.drawing(at)
    row = next(row for row, key in enumerate(drawing.kept.keys) if key["user"] == "a" and key["hour"] == HOUR)
    assert drawing.message["page"]["rows"][row]["epochs"] == "1–2"
    at = model.acted(at, "why", {"row": [row]}, drawing.kept)
    assert (at.why, at.key) == (2, drawing.kept.keys[row])
    panel = explained(model.drawing(at))
    assert sorted(column(panel, "Input", "id")) == sorted(input_of(folder, 2))
    before = panel.nearest[0]
    assert sorted(column(explained(model.drawing(model.acted(at, "why", before, None))), "Input", "id")) == sorted(
        input_of(folder, 1)
    )
    assert model.acted(at, "key", row - 1 if row else 1, drawing.kept).why is None
    assert model.acted(at, "why", {"row": [999]}, drawing.kept) == at
    assert "why at epoch 2" in model.view(at).text()


def test_the_history_of_a_row_in_the_browser_is_explained(history: History, folder: Path) -> None:
    """Another key closes the panel."""
    model = BrowserModel(history)
    at = model.acted(BrowserSelection(epoch=2, key=KEY), "why", 1, None)
    assert model.quick(at).unfinished
    assert sorted(column(explained(model.drawing(at)), "Input", "id")) == sorted(input_of(folder, 1))
    assert "Why hour" in model.view(at).html()
    kept = model.drawing(at).kept
    other = next(row for row, key in enumerate(kept.page.keys) if key["user"] != "a")
    assert model.acted(at, "key", other, kept).why is None


def test_files_that_are_gone_are_named_and_can_be_asked_for_again(history: History, folder: Path) -> None:
    """The panel shows the error and does not try again by itself."""
    model = KeyHistoryModel(history)
    at = model.acted(KeySelection(key=KEY), "why", 1, None)
    file = folder / "left" / "1.parquet"
    file.rename(folder / "1.parquet")
    try:
        failed = explained(model.drawing(at))
        assert "1.parquet" in failed.problem
        assert "1.parquet" in failed.html()
        assert not model.quick(at).unfinished
    finally:
        (folder / "1.parquet").rename(file)
    assert explained(model.drawing(model.acted(at, "why", 1, None))).problem == ""


def test_a_served_page_says_that_it_shows_no_input(history: History) -> None:
    """Also if the process knows the plan: viewers see what the store holds, and run nothing on Spark."""
    views: list[View[Any]] = [KeyHistoryView(history, key=KEY), DiffView(history, 0, 2), StateBrowser(history)]
    for view in views:
        view.model.serve()
        assert "The owner of a query sees" in view.model.drawing(view.selection).message["why_not"]
    model = KeyHistoryModel(history)
    model.serve()
    drawing = model.drawing(KeySelection(key=KEY))
    assert model.acted(KeySelection(key=KEY), "change", {"row": [0]}, drawing.kept).why is None
    assert "The owner of a query sees" in explained(model.drawing(KeySelection(key=KEY, why=2))).problem


def test_the_owner_of_a_served_page_sees_the_input(history: History, folder: Path) -> None:
    """The same address shows it to the owner, and to a viewer why not."""
    at = Address(history.name, "key", key=KEY, view={"why": "2"}).text()
    with serve(history.recorded.layout.root, why=True) as server:
        with Tab(Visitor(server, url=server.owner_url), at) as tab:
            while (why := tab.shown()["why"])["busy"]:
                pass
            rows = next(table for table in why["tables"] if table["title"] == "Input")
            at_id = rows["columns"].index("id")
            assert sorted(row["cells"][at_id]["text"] for row in rows["rows"]) == sorted(input_of(folder, 2))
        with Tab(Visitor(server), at) as tab:
            while (why := tab.shown()["why"])["busy"]:
                pass
            assert (why["tables"], "The owner of a query sees" in why["problem"]) == ([], True)


def test_without_a_plan_the_view_says_how_to_give_it(tmp_path: Path) -> None:
    """No button leads to an error."""
    write(tmp_path, [{"a": 1}, {"a": 2}])
    drawing = KeyHistoryModel(ss.open_store(tmp_path)["q"]).drawing(KeySelection("op0", {"key": "a"}))
    assert 'streamstate.open_store(store)["q"].describe(build_query)' in drawing.message["why_not"]


def test_a_newer_request_cancels_the_jobs_of_an_older_one(spark: SparkSession) -> None:
    """A job that would run for hours ends at once, and jobs of other threads go on."""
    task, ended = RunningStatements(), []

    def work() -> None:
        try:
            with task.active(), _jobs(spark):
                spark.range(10**15).where("id * id % 7 = 9").count()
        except QueryStopped:
            ended.append("stopped")

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    tracker = spark.sparkContext.statusTracker()
    while not tracker.getActiveJobsIds():
        assert thread.is_alive()
    task.stop()
    thread.join(60)
    assert ended == ["stopped"]
    assert spark.range(3).count() == 3


@pytest.mark.slow
def test_a_join_shows_the_changes_and_the_input_of_both_sides(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    """A key of a join has many rows, so that there is no single one before and after."""
    (tmp_path / "left").symlink_to(folder / "left")
    right = right_of(lambda side, delay: read(spark, folder / side, delay))
    query = read(spark, folder / "left").join(right, F.expr(JOINED))
    history, _ = run(query, tmp_path, "append")
    key: Any = {"field0": "a", "index": 0}
    panel = explained(KeyHistoryModel(history).drawing(KeySelection("op0_left", key, why=2)))
    assert panel.problem == ""
    titles = [table.title for table in panel.tables]
    assert {"Changes of op0_left", "Input, left side", "Input, right side"} <= {*titles}
    watermark = history.at(1).watermark
    assert watermark is not None
    for side in ("left", "right"):
        rows = pd.read_parquet(folder / side / "2.parquet")
        expected = rows[(rows.user == "a") & (rows.ts > watermark)].id
        assert sorted(column(panel, f"Input, {side} side", "id"), key=int) == [
            str(number) for number in sorted(expected)
        ]
