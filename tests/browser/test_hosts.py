"""Every kind of view in every kind of notebook that can run here: JupyterLab, and what VS Code and Colab receive."""

from __future__ import annotations

from pathlib import Path

import pytest
from debug_sessions import original
from playwright.sync_api import expect

from browser.lab import Lab

pytestmark = [pytest.mark.browser, pytest.mark.slow]

VIEWS = """import os, sys, types
sys.path.insert(0, {tests!r})
import streamstate as ss
from debug_sessions import FakeSession
from streamstate.widgets import *
store = ss.open_store({path!r})
history = store["delays"]
views = [StateBrowser(history, epoch=3), Timeline(history), DiffView(history, 2, 9), StoreOverview(store),
         KeyHistoryView(history, "op0", {{"carrier": "UA", "origin": "EWR"}}), QueryDashboard(history, table="op0"),
         ComparisonView(history.compare(store["what_if"])), Debugger(FakeSession({path!r}, 1))]"""
LABELS = [
    "State of delays",
    "Timeline of delays",
    "Differences in delays",
    "Store overview",
    "Key history in delays",
    "Dashboard of delays",
    "Comparison of delays and what_if",
    "Debugger of what_if",
]
NOTEBOOKS = {
    "JupyterLab": "",
    "VS Code": 'os.environ["VSCODE_PID"] = "1"; os.environ.pop("JPY_SESSION_NAME", None)\n',
    "Colab": 'sys.modules["google.colab"] = types.ModuleType("google.colab")\n',
}
SHOW = "for view in views: display(view)"
WIDGETS = "widgets = [view.widget() for view in views]\nfor widget in widgets: display(widget)"


def test_every_view_is_live_in_every_notebook(lab: Lab, tmp_path: Path) -> None:
    """Views display themselves, as widgets if Panel's kernel connection is missing; widgets can be displayed too."""
    original(tmp_path / "store")
    original(tmp_path / "store", name="what_if")
    cells = [VIEWS.format(tests=str(Path(__file__).parents[1]), path=str(tmp_path / "store"))]
    cells += [WIDGETS, *(sign + SHOW for sign in NOTEBOOKS.values())]
    lab.server.write("hosts.ipynb", *cells)
    lab.open("hosts.ipynb")
    lab.run_cell(0)
    for number in range(1, len(cells)):
        lab.run_cell(number)
        frames = (
            lab.page.locator(".jp-CodeCell")
            .nth(number)
            .locator(".streamstate-live section[aria-label]:not([class*=part])")
        )
        for label in LABELS:
            expect(frames.and_(lab.page.get_by_role("region", name=label, exact=True))).to_be_visible()
