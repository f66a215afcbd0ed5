"""A saved notebook holds the picture of a view that was drawn last, not the one that was displayed first."""

from __future__ import annotations

import math
import queue
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from browser.lab import wait_until
from browser.stores import State, Written, flights, more_flights
from nbclient import NotebookClient
from notebook_kernel import CellResult, Kernel, kernel  # noqa: F401 (a fixture)

from streamstate.widgets.live.hosts import TARGET
from streamstate.widgets.live.outputs import LONGEST, REST, Pace

LIMIT = 60
OPENED = """import streamstate as ss
from streamstate.widgets import StateBrowser, close_all
from streamstate.widgets.live import hosts"""


class Page:
    """The page of a notebook, which keeps what JupyterLab would save, and opens the live views."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.saved: dict[str, dict[str, Any]] = {}
        self.replaced = 0
        self._comms: list[str] = []

    def run(self, code: str) -> None:
        """Run a cell."""
        result = self.kernel.works(code)
        self._take(result.messages)

    def open_views(self) -> None:
        """Connect every live output to its view, as their scripts do."""
        for name, output in self.saved.items():
            for address in re.findall(rf'"{TARGET}", "(\w+)"', output.get("text/html", "")):
                self._send("comm_open", {"comm_id": name, "target_name": TARGET, "data": {"view": address}})
                self._comms.append(name)

    def choose(self, action: str, value: Any) -> None:
        """Do what a person would do in every live view."""
        for comm in self._comms:
            self._send("comm_msg", {"comm_id": comm, "data": {"do": action, "value": value, "n": 1}})

    def texts(self) -> list[str]:
        """The text of each still output, after everything that arrived until now."""
        while True:
            try:
                self._take([self.kernel.client.get_iopub_msg(timeout=0.1)])
            except queue.Empty:
                break
        return [output["text/plain"] for output in self.saved.values() if output["text/plain"]]

    def _send(self, kind: str, content: dict[str, Any]) -> None:
        session = self.kernel.client.session
        self.kernel.client.shell_channel.send(session.msg(kind, content))

    def _take(self, messages: list[dict[str, Any]]) -> None:
        for message in messages:
            kind, content = message["header"]["msg_type"], message["content"]
            if kind == "update_display_data":
                self.replaced += 1
            if kind in ("display_data", "update_display_data"):
                name = content["transient"].get("display_id", message["header"]["msg_id"])
                self.saved[name] = content["data"]


@pytest.fixture
def page(kernel: Kernel) -> Iterator[Page]:
    """A page of a notebook with the views imported."""
    page = Page(kernel)
    page.run(OPENED)
    yield page
    kernel.works("close_all()")
    page.texts()


@pytest.fixture
def young(tmp_path: Path) -> Written:
    """A query of which no epoch is captured yet."""
    return flights(tmp_path / "store", epochs=0)


def shown(path: Path) -> str:
    """A cell that shows the query."""
    return f"view = StateBrowser(ss.open_store({str(path / 'store')!r})['delays'])\nview"


def add(written: Written, epoch: int) -> None:
    """Capture the next epoch."""
    state: State = dict(written.newest()["op0"]) if epoch else {("HA", "JFK"): (1, 2.0)}
    more_flights(state, epoch)
    written.add({"op0": state})


def test_the_output_follows_what_a_page_shows(page: Page, young: Written, tmp_path: Path) -> None:
    """An epoch that is captured, and an epoch that a person chooses, are in the notebook a moment later."""
    page.run(shown(tmp_path))
    assert page.texts() == ["delays: no epoch captured yet"]
    page.open_views()
    add(young, 0)
    wait_until(lambda: "epoch 0 (captured: 0)" in page.texts()[0], "the epoch to be stored", LIMIT)
    add(young, 1)
    wait_until(lambda: "epoch 1 (captured: 0–1)" in page.texts()[0], "the next epoch to be stored", LIMIT)
    page.choose("epoch", 0)
    wait_until(lambda: "epoch 0 (captured: 0–1)" in page.texts()[0], "the choice to be stored", LIMIT)
    still, live = page.saved.values()
    assert "Run this cell again to make it live." in still["text/html"]
    assert ("<table" in still["text/html"], "<table" in live["text/html"]) == (True, False)


def test_outputs_are_replaced_when_drawings_rest() -> None:
    """While drawings keep coming, they are replaced every few seconds, and less often if that takes long."""
    now = 0.0
    pace = Pace(clock=lambda: now)
    assert pace.wait() == math.inf
    replaced = []
    for turn in range(1_100):
        now = turn / 100
        if turn % 20 == 0:
            pace.drawn()
        if pace.wait() == 0:
            replaced.append(now)
            pace.replaced(0.4 if len(replaced) == 2 else 0.001)
    assert replaced == [LONGEST, pytest.approx(2 * LONGEST + 0.2, abs=0.2), pytest.approx(2 * LONGEST + 4.2, abs=0.2)]
    now += REST
    assert pace.wait() == 0
    pace.replaced(0.001)
    assert pace.wait() == math.inf


def test_all_outputs_of_a_view_are_current_when_it_is_closed(page: Page, young: Written, tmp_path: Path) -> None:
    """A view that is displayed twice has two outputs, and both keep its last drawing."""
    page.run(shown(tmp_path))
    page.run("view")
    page.open_views()
    add(young, 0)
    wait_until(lambda: all("epoch 0 " in text for text in page.texts()), "both outputs", LIMIT)
    add(young, 1)
    page.run("view.close()")
    assert ["epoch 1 " in text for text in page.texts()] == [True, True]


def test_without_a_page_the_end_of_a_cell_replaces_the_output(page: Page, young: Written, tmp_path: Path) -> None:
    """As where a notebook is run by nbclient or papermill; without news nothing is sent."""
    page.run(shown(tmp_path))
    page.run("1")
    add(young, 0)
    page.run("hosts._next_catch_up = 0")
    assert ["epoch 0 (captured: 0)" in text for text in page.texts()] == [True]
    replaced = page.replaced
    page.run("hosts._next_catch_up = 0")
    assert page.replaced == replaced


RUN = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
import streamstate as ss
from browser.stores import flights
from streamstate.widgets import StateBrowser
written = flights(Path("store"), epochs=0)
StateBrowser(ss.open_store("store")["delays"])
"""


@pytest.mark.slow
def test_a_notebook_that_is_run_without_pages_keeps_the_newest_picture(tmp_path: Path) -> None:
    """As nbclient and papermill run it: no page draws the view, so the end of each cell does."""
    tests = str(Path(__file__).parents[1])
    cells = [RUN.format(tests=tests), "written.add({'op0': {('HA', 'JFK'): (1, 2.0)}})", "1 + 1"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=LIMIT, resources={"metadata": {"path": str(tmp_path)}}).execute()
    still, live = notebook.cells[0].outputs
    assert "epoch 0 (captured: 0)" in still.data["text/plain"]
    assert "HA" in still.data["text/html"]
    assert "<table" not in live.data["text/html"]
    assert len(nbformat.writes(notebook)) < 20_000


def test_closing_all_views_ends_the_drawing_after_cells(page: Page, young: Written, tmp_path: Path) -> None:
    """The shell is left as it was."""
    page.run(shown(tmp_path))
    page.run("1")
    page.run("close_all()")
    add(young, 0)
    page.run("1")
    assert page.texts() == ["delays: no epoch captured yet"]
