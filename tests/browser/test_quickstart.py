"""The first tutorials, used as the README describes: in JupyterLab, Run All Cells, then operate the views."""

from __future__ import annotations

import shutil
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Locator, expect

import streamstate as ss
from browser.lab import CELLS, Lab, wait_until
from browser.shown import Shown

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.notebook, pytest.mark.timeout(1800)]

TUTORIALS = Path(__file__).parents[2] / "tutorials"
LIMIT = 900
"""Time limit in seconds for all cells of a tutorial, for a slow machine."""
PROCESSES = """import os, psutil
print(os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True)))"""


def opened(lab: Lab, name: str) -> None:
    """Open a tutorial."""
    shutil.copy(TUTORIALS / f"{name}.ipynb", lab.server.folder)
    lab.open(f"{name}.ipynb")


def views(lab: Lab, kind: str) -> Locator:
    """The live views that contain an element of this class, in notebook order."""
    return lab.page.locator(".streamstate-live").filter(has=lab.page.locator(f".{kind}"))


def test_after_run_all_of_the_quickstart_its_slider_moves(lab: Lab) -> None:
    """The last view is in sight, moves while the query runs, and works as the text describes.

    Unloading stops it, and ending the kernel ends all its processes.
    """
    opened(lab, "00_quickstart")
    lab.run("notebook:run-all-cells")
    expect(views(lab, "browser").last).to_be_in_viewport(ratio=0.8, timeout=LIMIT * 1000)
    epochs = Shown(views(lab, "browser").last).seen()
    wait_until(lambda: len(epochs()) > 2, "the state to move")
    lab.wait_idle(LIMIT)
    assert lab.failures() == []
    lab.scroll_through()
    expect(lab.page.locator(".streamstate-live")).to_have_count(5)
    expect(views(lab, "key-history").get_by_role("region", name="Why the key changed")).to_contain_text("2013-01-09")
    history = ss.open_store(lab.server.folder / "streamstate-data" / "store")["delays"]
    wait_until(lambda: history.captured()[-1] == 29, "all files to be captured", LIMIT)
    shown = Shown(views(lab, "browser").last)
    shown.at(29)
    shown.expect_rows(history.live().result().head(10))
    shown.go(2)
    shown.at(2)
    shown.expect_rows(history.at(2).result().head(10))
    find_the_leap(shown)
    wait_until(lambda: "epoch 2 (captured: 0–29)" in stored(lab, "%state delays"), "the browser to be stored")
    lab.save()
    started = processes(lab)
    assert len(started) > 1
    run_at_the_end(lab, "%unload_ext streamstate")
    expect(lab.page.get_by_role("table", name="State table result of delays at epoch 2", exact=True)).to_be_visible()
    expect(lab.page.locator(".streamstate-live")).to_have_count(0)
    lab.server.end_kernels()
    wait_until(lambda: not any(map(alive, started)), "the kernel and what it started to end", 60)
    lab.open("00_quickstart.ipynb")  # as it was saved, while the query ran
    expect(lab.page.get_by_text("delays was running: captured up to epoch 29, 33 rows of state")).to_be_visible()
    expect(lab.page.get_by_text("Run this cell again to resume the query.")).to_be_visible()
    expect(lab.page.get_by_role("table", name="State table result of delays at epoch 2", exact=True)).to_be_visible()
    expect(lab.page.locator(".streamstate-live")).to_have_count(0)


def stored(lab: Lab, source: str) -> str:
    """The outputs of the last cell with this source, as JupyterLab would save them now."""
    at = max(at for at, code in lab.code_cells() if code == source)
    return str(lab.page.evaluate(f"at => JSON.stringify({CELLS}[at].model.outputs.toJSON())", at))


def find_the_leap(shown: Shown) -> None:
    """Sort by the largest average, open the history of its key, and ask why it changed by keyboard; Escape closes."""
    heading = shown.grid.get_by_role("columnheader", name="average_delay", exact=True)
    for direction in ("ascending", "descending"):
        heading.get_by_role("button").click()
        expect(heading).to_have_attribute("aria-sort", direction)
    expect(shown.rows.first).to_contain_text("HA")
    shown.rows.first.click()
    expect(shown.history).to_contain_text("1301")
    why = shown.button("Why did it change in epoch 2?")
    why.press("Enter")
    expect(shown.why.get_by_role("status")).to_have_text("3 input rows fell on it · cause: input")
    expect(shown.why.get_by_role("table", name="Input").locator("tbody tr")).to_have_count(3)
    expect(shown.why.get_by_role("table", name="Input")).to_contain_text("2013-01-09")
    shown.why.get_by_role("button", name="Earlier change of this key").click()
    expect(shown.why).to_contain_text("changed in epoch 1")
    shown.why.get_by_role("button", name="Close").press("Escape")
    expect(shown.why).to_be_hidden()


def run_at_the_end(lab: Lab, code: str) -> None:
    """Run a cell below the last one."""
    lab.run("notebook:insert-cell-below")
    last = lab.code_cells()[-1][0]
    lab.set_source(last, code)
    lab.run_cell(last)


def processes(lab: Lab) -> list[int]:
    """The kernel's process and its descendants, as listed by a cell at the end of the notebook."""
    run_at_the_end(lab, PROCESSES)
    return [int(pid) for pid in lab.outputs().last.inner_text().split()]


def alive(pid: int) -> bool:
    """Return whether a process is running."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.exhaustive
def test_after_run_all_of_watching_a_stream_its_views_follow_each_other(lab: Lab) -> None:
    """All seven views are live; an epoch selected in the state browser is marked in the linked timeline."""
    opened(lab, "03_watching_a_stream")
    lab.run_all(LIMIT)
    expect(lab.page.locator(".streamstate-live")).to_have_count(7)
    browser, timeline = Shown(views(lab, "browser")), views(lab, "timeline").first
    browser.wait()
    browser.go(16)
    browser.at(16)
    expect(timeline.locator(".pointed")).to_contain_text("16")
