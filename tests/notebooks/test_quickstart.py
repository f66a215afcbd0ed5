"""The quickstart finds the flight that distorts an average, as its text says."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

import streamstate as ss
from notebooks.running import RUNS, Shown, first_row, latest_run, output_of

pytestmark = [pytest.mark.slow, pytest.mark.notebook, pytest.mark.timeout(5400)]  # may run all of it


@pytest.fixture(scope="module")
def quickstart() -> Shown:
    """The outputs of its cells."""
    return latest_run("00_quickstart")


@pytest.fixture(scope="module")
def folder(quickstart: Shown) -> Path:
    """The folder in which it ran."""
    return RUNS / "00_quickstart"


@pytest.fixture(scope="module")
def notebook(quickstart: Shown) -> nbformat.NotebookNode:
    """The notebook with its outputs."""
    ran: nbformat.NotebookNode = nbformat.read(RUNS / "00_quickstart.ipynb", as_version=4)
    return ran


def test_the_quickstart_captures_every_file_as_an_epoch(quickstart: Shown, folder: Path) -> None:
    """One epoch for each file that was read until the kernel ended, none missing or repeated."""
    assert "epoch " in output_of(quickstart, "%stream wait")
    captured = ss.open_store(folder / "streamstate-data" / "store")["delays"].captured()
    assert captured == list(range(len(captured)))
    assert len(captured) > 3


def test_the_quickstart_finds_the_airline(quickstart: Shown) -> None:
    """The first row of its first question, as the text says."""
    assert first_row(quickstart, "%%statesql --at 3") == ["HA", "JFK", "12", "124.7"]


def test_the_quickstart_finds_the_flight(quickstart: Shown, notebook: nbformat.NotebookNode, folder: Path) -> None:
    """The cells show what the text says: in epoch 2 a flight that was 1301 minutes late made the average jump."""
    assert output_of(quickstart, "history.first") == "2"
    assert "why at epoch 2: 3 input rows" in output_of(quickstart, "KeyHistoryView")
    # On a busy machine, another output before the view says how long the call took.
    (outputs,) = [cell.outputs for cell in notebook.cells if "KeyHistoryView(" in cell.source]
    shown = "".join(output.data.get("text/html", "") for output in outputs if "data" in output)
    assert "2013-01-09" in shown
    assert "1301" in shown
    assert "count_2" not in nbformat.writes(notebook)
    table = [ss.open_store(folder / "streamstate-data" / "store")["delays"].at(epoch).result() for epoch in (1, 2)]
    before, after = (state.lookup(carrier="HA", origin="JFK") for state in table)
    assert before is not None
    assert after is not None
    assert before["maximum_delay"] < after["maximum_delay"] == 1301
    assert "HA" in first_row(quickstart, "AS average_after")


def test_python_and_sql_agree_on_an_epoch(quickstart: Shown, folder: Path) -> None:
    """One key at one epoch, read by the notebook's Python code and by SQL."""
    store = ss.open_store(folder / "streamstate-data" / "store")
    (row,) = store.sql("SELECT * FROM delays.result VERSION AS OF 2 WHERE carrier = 'HA'").to_arrow().to_pylist()
    assert row == store["delays"].at(2).result().lookup(carrier="HA", origin="JFK")
    assert f"'average_delay': {row['average_delay']}" in output_of(quickstart, "history.at(1)")


def test_the_quickstart_waits_for_its_reader(quickstart: Shown) -> None:
    """The prediction and the reader's own line are not answered yet, and nothing is revealed."""
    said = [text for source, text in quickstart if "P00." in source and "P00.progress" not in source]
    assert {text.split()[0] for text in said} == {"…"}
    assert len(said) == 3
