"""A notebook that was run, saved and opened again without a kernel: each output shows what was seen last."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from browser.accessible import violations
from browser.lab import CELLS, Lab, wait_until
from browser.stores import State, Written, flights, more_flights

pytestmark = [pytest.mark.browser, pytest.mark.slow]

BROWSER = """import streamstate as ss
from streamstate.widgets import *
history = ss.open_store({path!r})["delays"]
StateBrowser(history)"""
SLIDER = """limit = ss.shared({path!r}, "limit", "double", init=60.0)
VariableSlider(limit, 0, 120)"""
OUTPUTS = f"() => {CELLS}.map((cell) => JSON.stringify(cell.model.outputs.toJSON()))"


@pytest.fixture
def young(tmp_path: Path) -> Written:
    """A query of which no epoch is captured yet."""
    return flights(tmp_path / "store", epochs=0)


def add(written: Written, epochs: int) -> None:
    """Capture epochs."""
    state: State = {("HA", "JFK"): (1, 2.0)}
    for epoch in range(epochs):
        more_flights(state, epoch)
        written.add({"op0": dict(state)})


def stored(lab: Lab, cell: int) -> str:
    """The outputs of a cell, as JupyterLab would save them now."""
    return str(lab.page.evaluate(OUTPUTS)[cell])


def rows(table: Locator, values: str) -> list[list[str]]:
    """The texts of a table's rows."""
    return [row.locator(values).all_inner_texts() for row in table.locator("tbody tr").all()]


def test_each_output_shows_what_was_seen_last(lab: Lab, young: Written, tmp_path: Path) -> None:
    """After a restart of the kernel, and when the notebook is opened again; there are no dead controls or errors."""
    path = str(tmp_path / "store")
    cells = (BROWSER.format(path=path), "Timeline(history)", SLIDER.format(path=path))
    file = lab.server.write("saved.ipynb", *cells)
    lab.open("saved.ipynb")
    lab.run_all()
    live = lab.page.locator(".streamstate-live")
    expect(live).to_have_count(3)
    expect(live.first).to_contain_text("No epoch has been captured yet")
    add(young, 4)
    expect(live.first.locator(".epoch")).to_have_text("Epoch 3")
    live.nth(2).get_by_role("slider").press("ArrowRight")
    expect(live.nth(2)).to_contain_text("limit = 61: version 1")
    seen = rows(live.first.locator("table").first, "td .text")
    expect(lab.page.locator(".streamstate-static:visible")).to_have_count(0)
    wait_until(lambda: "epoch 3 (captured: 0–3)" in stored(lab, 0), "the browser to be stored")
    wait_until(lambda: "4 epochs captured" in stored(lab, 1), "the timeline to be stored")
    wait_until(lambda: "limit = 61" in stored(lab, 2), "the slider to be stored")
    lab.save()
    lab.restart()
    expect(live).to_have_count(0)
    expect_stills(lab, seen)
    lab.server.end_kernels()
    lab.open("saved.ipynb")
    expect_stills(lab, seen)
    sizes = [len(json.dumps(cell["outputs"])) for cell in json.loads(file.read_text())["cells"]]
    assert [size < limit for size, limit in zip(sizes, (15_000, 120_000, 12_000), strict=True)] == [True] * 3, sizes


def expect_stills(lab: Lab, seen: list[list[str]]) -> None:
    """Expect the browser with these rows, the timeline with its plots, and the slider, each with what to do."""
    stills = lab.page.locator(".streamstate-static:visible")
    expect(stills).to_have_count(3)
    expect(lab.page.get_by_text("Error displaying widget")).to_have_count(0)
    expect(stills.first.get_by_role("table", name="State table op0 of delays at epoch 3")).to_be_visible()
    assert rows(stills.first.locator("table"), "td:not(:first-child)") == seen
    expect(stills.nth(1).locator("svg path[aria-roledescription]").first).to_be_visible()
    expect(stills.nth(2).locator("meter")).to_have_attribute("value", "61.0")
    expect(stills.first).to_contain_text("Run this cell again to make it live.")
    expect(stills.nth(2)).to_contain_text("Run this cell again to set it.")
    for still in stills.all():
        assert not violations(still)
