"""The height of a notebook with live views: as high as its content, before it has been scrolled."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from browser.lab import Lab

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SETUP = """import streamstate as ss
from streamstate.widgets import *
history = ss.open_store({store!r})["delays"]
key = {{"carrier": "C08", "origin": "JFK"}}"""
FAR = "import time\ntime.sleep(3)\nprint('line\\n' * 100)"
"""Runs as long as a query would, and scrolls the cells around it out of view."""

VIEWS = ("StateBrowser(history)", "Timeline(history)", "DiffView(history, 1, 2)", "KeyHistoryView(history, 'op0', key)")
MARGIN = 20
"""Pixels that JupyterLab adds around the cells."""


@pytest.mark.exhaustive
def test_after_run_all_a_notebook_is_as_high_as_its_content(lab: Lab, stored: Path) -> None:
    """Views below the visible part start at their final height: no blank space, and no growth while scrolling.

    JupyterLab adds one page below the last cell of every notebook ("Scroll past last cell"), and nothing else does.
    """
    lab.server.write("heights.ipynb", SETUP.format(store=str(stored)), FAR, *VIEWS, FAR)
    lab.open("heights.ipynb")
    lab.run_all()
    live = lab.page.locator(".streamstate-live")
    expect(live).to_have_count(len(VIEWS))
    for at in (1, 3):  # the views with plots
        expect(live.nth(at).locator(".plot svg").last).to_be_visible()
    before = lab.heights()
    assert before.scroll - before.cells == pytest.approx(before.page, abs=MARGIN)
    lab.scroll_through()
    after = lab.heights()
    assert after.cells == pytest.approx(before.cells, abs=MARGIN)
    assert after.scroll - after.cells == pytest.approx(after.page, abs=MARGIN)
