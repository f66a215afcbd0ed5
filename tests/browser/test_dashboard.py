"""The query dashboard in a real JupyterLab."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe  # it has no stubs
from playwright.sync_api import expect

from browser.lab import Lab

pytestmark = pytest.mark.browser

CODE = """import streamstate as ss
from streamstate.widgets import QueryDashboard, StateBrowser, link
store = ss.open_store({store!r})
dashboard = QueryDashboard(store["hostile"], table="op0")
dashboard"""


@pytest.mark.slow
def test_a_dashboard_works_by_mouse_and_keyboard_until_closed(lab: Lab, stored: Path) -> None:
    """Tables and keys respond to mouse and keyboard, also in a narrow window; axe finds nothing; closing stops it."""
    lab.server.write("dashboard.ipynb", CODE.format(store=str(stored)), "print(dashboard.focus)", "dashboard.close()")
    lab.open("dashboard.ipynb")
    lab.run_cell(0)
    view = lab.page.locator(".streamstate-live").last
    expect(view.get_by_role("heading", name="Spread of op0 at epoch 1")).to_be_visible()
    expect(view.locator(".box")).to_have_count(2)
    expect(view.locator(".plot svg:visible").first).to_be_visible()
    assert lab.page.evaluate("() => window.hacked") is None

    view.get_by_role("button", name="op1_left").click()
    expect(view.get_by_role("heading", name="Spread of op1_left")).to_be_visible()
    expect(view.get_by_role("button", name="op1_left")).to_have_attribute("aria-pressed", "true")
    row = view.get_by_role("table", name="Keys written most often").locator("tbody tr").nth(1)
    key = row.locator("td").first.inner_text()
    row.focus()
    lab.page.keyboard.press("Enter")
    expect(row).to_have_attribute("aria-current", "true")
    lab.run_cell(1)
    focus = lab.outputs().filter(has_text="Focus(").inner_text()
    assert re.search(rf"table='op1_left', key=\{{'k': {key}\}}", focus), focus

    lab.page.set_viewport_size({"width": 700, "height": 1000})
    expect(view.locator(".box").first).to_be_visible()
    wide, room = view.evaluate("node => [node.shadowRoot.querySelector('.dashboard').scrollWidth, node.clientWidth]")
    assert wide <= room
    found = Axe().run(lab.page, context=".streamstate-live")
    assert found.response["violations"] == [], found.generate_report()

    lab.run_cell(2)
    expect(view).to_have_count(0)
