"""The magics in JupyterLab: a progress bar that becomes a line, the status table, and Tab completion."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from nbconvert import HTMLExporter
from playwright.sync_api import expect
from sampling import sampled

from browser.lab import Lab, wait_until

pytestmark = pytest.mark.browser

WORKING = """import pathlib, time
from streamstate.widgets import progress
progress.SHOW_AFTER = 0
with progress.working(get_ipython(), stays="all is well.") as shown:
    shown.say("Loading delays.op0: 1,200,000 of 4,000,000 rows", 1.2, 4)
    while not pathlib.Path({end!r}).exists():
        time.sleep(0.05)
    shown.line = "Loaded 4,000,000 rows of delays.op0 in 2.1 s. Later queries reuse them."
"""
STATUS = """from streamstate.launch.query_status import QueryStatus
from streamstate.launch.query_status import status_table
facts = dict(behind=0, freshness=0.4, rate=18234.6, rows=1204331, capture="running", error=None)
full = "StoreError: The store /data/store cannot be read or written: [Errno 28] No space left on device, and so on"
status_table([
    QueryStatus("delays", "running", epoch=1204, **facts),
    QueryStatus("weather", "running", epoch=88, **facts | {"error": full, "behind": 12, "freshness": 31.2}),
    QueryStatus("rotations", "stopped", epoch=410, **facts | {"rate": None}),
    QueryStatus("broken", "failed", epoch=None, **facts | {"error": "ValueError: <b>late</b>", "rate": None}),
    QueryStatus("backfill", "finished", epoch=99, **facts | {"rate": None, "rows": 12}),
    QueryStatus("theirs", "followed", epoch=7, **facts | {"rate": None, "rows": None}),
])"""


def picture(lab: Lab, name: str) -> None:
    """Take a screenshot, if a folder for screenshots is set."""
    if folder := os.environ.get("STREAMSTATE_PICTURES"):
        lab.page.screenshot(path=Path(folder) / f"{name}.png")


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_bar_becomes_a_line_that_a_saved_notebook_keeps(lab: Lab, tmp_path: Path) -> None:
    """While the cell runs there is a bar with a hint how to stop; afterwards only text, in the file and its HTML."""
    end = tmp_path / "end"
    written = lab.server.write("bar.ipynb", "%load_ext streamstate", WORKING.format(end=str(end)))
    lab.open("bar.ipynb")
    lab.run_cell(0)
    lab.start_cell(1)
    output = lab.page.locator(".jp-OutputArea-output")  # the cell's source contains the same text
    expect(output.get_by_text("1,200,000 of 4,000,000 rows")).to_be_visible()
    expect(output.locator("progress")).to_be_visible()
    expect(output.get_by_text("interrupt the kernel")).to_be_visible()
    picture(lab, "bar")
    end.touch()
    expect(output.get_by_text("Loaded 4,000,000 rows of delays.op0")).to_be_visible()
    lab.wait_idle()
    expect(lab.page.locator(".jupyter-widgets")).to_have_count(0)
    picture(lab, "settled")
    lab.save()
    wait_until(lambda: "Loaded 4,000,000 rows" in written.read_text(), "the notebook to be saved")
    saved = json.loads(written.read_text())
    assert "widgets" not in saved["metadata"] or not saved["metadata"]["widgets"]
    assert "widget-view" not in written.read_text()
    exporter: Any = HTMLExporter  # nbconvert is not typed
    body, _ = exporter().from_filename(str(written))
    assert "Loaded 4,000,000 rows of delays.op0" in body


@pytest.mark.exhaustive
@pytest.mark.parametrize("theme", sampled(["JupyterLab Light", "JupyterLab Dark"], 1))
def test_the_status_is_readable_in_light_and_dark_themes(lab: Lab, theme: str) -> None:
    """Every sign differs from the background, and shortened text is complete in a title."""
    lab.server.write("status.ipynb", "%load_ext streamstate", STATUS)
    lab.open("status.ipynb")
    lab.theme(theme)
    lab.run_all()
    table = lab.page.locator(".jp-OutputArea-output table")
    expect(table.get_by_text("delays")).to_be_visible()
    picture(lab, f"status-{theme.rsplit(maxsplit=1)[-1].lower()}")
    signs = table.locator("span[aria-hidden]")
    assert signs.all_inner_texts() == ["●", "●", "■", "✕", "✓", "◌"]
    behind = lab.page.evaluate("() => getComputedStyle(document.querySelector('.jp-Notebook')).backgroundColor")
    assert behind not in signs.evaluate_all("found => found.map(one => getComputedStyle(one).color)")
    expect(table.locator("td[title*='and so on']")).to_have_count(1)
    lab.theme("JupyterLab Light")


@pytest.mark.slow
def test_tab_completes_in_the_middle_of_a_cell(lab: Lab, stored: Path) -> None:
    """The selected completion replaces only the text being completed."""
    lab.server.write("tab.ipynb", f"%load_ext streamstate\n%config StreamState.store = {str(stored)!r}", "")
    lab.open("tab.ipynb")
    lab.run_cell(0)
    lab.set_source(1, "x = 1\ny = %state delays d")
    editor = lab.page.locator(".jp-Notebook-cell").nth(1).locator(".cm-content")
    editor.click()
    lab.page.keyboard.press("Control+End")
    lab.page.keyboard.press("Tab")
    choices = lab.page.locator(".jp-Completer-match")
    expect(choices.first).to_be_visible()
    picture(lab, "tab")
    assert {"dashboard", "diff"} <= {*choices.all_inner_texts()}  # JupyterLab adds words of the cell
    choices.get_by_text("diff").click()
    wait_until(lambda: editor.inner_text().endswith("y = %state delays diff"), "the completion")
    assert editor.inner_text() == "x = 1\ny = %state delays diff"
