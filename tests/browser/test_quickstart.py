"""The first tutorial, as a newcomer goes through it: in JupyterLab, cell by cell, looking at the state on the way."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from playwright.sync_api import expect

import streamstate as ss
from browser.lab import Lab
from browser.shown import Shown

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]

NOTEBOOK = Path(__file__).parents[2] / "tutorials" / "00_quickstart.ipynb"


def test_the_quickstart_runs_and_its_slider_moves(lab: Lab) -> None:
    """Every cell runs; the browser follows the query, the slider shows past epochs, and a table is left at the end."""
    shutil.copy(NOTEBOOK, lab.server.folder / "quickstart.ipynb")
    lab.open("quickstart.ipynb")
    cells = lab.code_cells()
    (look,) = (at for at, source in cells if source.strip() == "%state delays")
    (wait,) = (at for at, source in cells if source.startswith("%stream wait"))
    shown = Shown(lab.page.locator(".streamstate-live"))
    for at, _ in cells:
        lab.run_cell(at, timeout=300)
        assert lab.failures() == []
        if at == look:
            expect(shown.slider).not_to_have_attribute("max", "0", timeout=120_000)  # it follows the running query
        if at == wait:
            move_the_slider(shown, ss.open_store(lab.server.folder / "streamstate-data" / "store")["delays"])
    still = lab.page.get_by_role("table", name="State table op0 of delays at epoch 2")
    expect(still).to_be_visible()
    expect(lab.page.locator(".streamstate-live")).to_have_count(0)


def move_the_slider(shown: Shown, history: ss.History) -> None:
    """To the newest epoch, which has everything, and back to one in which a number leapt."""
    shown.at(history.captured()[-1])
    shown.expect_rows(history.live().table().head(10))
    shown.go(2)
    shown.at(2)
    shown.expect_rows(history.at(2).table().head(10))
