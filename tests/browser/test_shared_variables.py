"""A shared variable in a real JupyterLab: its slider is moved by keyboard, and its view shows the new version."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

import streamstate as ss
from browser.accessible import violations
from browser.lab import Lab

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]

SLIDER = """import streamstate as ss
%load_ext streamstate
limit = ss.shared("store", "limit", "double", init=60.0)
%shared limit --slider 0 120 --store store"""


def test_a_slider_that_is_moved_makes_a_version(lab: Lab) -> None:
    """The line below it and the view beside it say so; what is set in a cell moves it; unloading leaves its words."""
    lab.server.write("slider.ipynb", SLIDER, "limit", "")
    lab.open("slider.ipynb")
    lab.run_all()
    slider, view = lab.page.locator(".streamstate-live").first, lab.page.locator(".streamstate-live").nth(1)
    handle, line = slider.get_by_role("slider"), slider.locator(".sentence")
    expect(line).to_contain_text("limit = 60: version 0")
    expect(view.get_by_role("status").first).to_contain_text("version 0")
    handle.press("ArrowRight")
    expect(line).to_contain_text("limit = 61: version 1, set")
    expect(view.get_by_role("status").first).to_contain_text("limit is 61: version 1")
    assert ss.shared(lab.server.folder / "store", "limit").get() == 61.0
    assert not violations(slider)
    assert not violations(view)
    lab.set_source(2, "limit.set(30.0)")  # no conflict: the slider is this notebook's
    lab.run_cell(2)
    assert lab.failures() == []
    expect(handle).to_have_value("30")
    expect(line).to_contain_text("version 2")
    lab.set_source(2, "%unload_ext streamstate")
    lab.run_cell(2)
    expect(handle).to_have_count(0)
    expect(lab.page.get_by_text("limit = 30: version 2").first).to_be_visible()
