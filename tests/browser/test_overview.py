"""The store overview in JupyterLab, as a user operates it."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import expect

from browser.accessible import violations
from browser.epochs import entry, eventful, record
from browser.lab import Lab, wait_until
from browser.stores import flights, hostile

pytestmark = pytest.mark.browser

COUNTED = """() => {
    window.ticking = new Set();
    const [start, stop] = [window.setInterval, window.clearInterval];
    window.setInterval = (call, every, ...rest) => {
        const number = start(call, every, ...rest);
        if (every === 1000) window.ticking.add(number);
        return number;
    };
    window.clearInterval = (number) => { window.ticking.delete(number); stop(number); };
}"""
"""Records the timers that tick every second."""


def now() -> dt.datetime:
    """The current time."""
    return dt.datetime.now(dt.UTC)


@pytest.mark.slow
def test_a_store_at_a_glance(lab: Lab, tmp_path: Path) -> None:
    """Queries with their facts, forks below their parents, a broken query beside the others; new queries appear."""
    store = tmp_path / "store"
    flights(store)
    hostile(store)
    eventful(store)
    record(store, "bad", [entry(0)])
    log = store / "bad" / "_epochs" / "_delta_log"
    (log / f"{len(list(log.glob('*.json'))):020}.json").write_text("no JSON")
    record(store, "fresh", [replace(entry(0), committed_at=now(), captured_at=now())])
    code = "import streamstate as ss\nfrom streamstate.widgets import StoreOverview\n"
    code += f"overview = StoreOverview(ss.open_store({str(store)!r}))\noverview"
    lab.server.write("overview.ipynb", code, "print(overview.focus.query)", "overview.close()")
    lab.open("overview.ipynb")
    lab.page.evaluate(COUNTED)
    lab.run_cell(0)
    view = lab.page.locator(".streamstate-live")
    rows = view.get_by_role("table", name="Queries of the store").locator("tbody tr")
    expect(rows.locator("th button")).to_have_text(["bad", "delays", "fresh", "hostile", "trips", "trial"])
    expect(rows.nth(0)).to_contain_text("Cannot be read.")
    expect(rows.nth(1)).to_contain_text("1 gap")
    expect(rows.nth(5)).to_contain_text("fork of trips after epoch 40")
    assert violations(view) == []

    fresh = rows.nth(2).locator("[data-moment]")
    expect(fresh).to_contain_text(" s ago")
    before = fresh.inner_text()
    expect(fresh).not_to_have_text(before)  # the page updates the age without a message
    record(store, "fresh", [replace(entry(1), committed_at=now(), captured_at=now())])
    expect(rows.nth(2).locator("td").first).to_contain_text("1 ")

    name = view.get_by_role("button", name="hostile")
    name.focus()
    lab.page.keyboard.press("Enter")
    tables = view.get_by_role("table", name="State tables of hostile")
    expect(tables.locator("tbody th")).to_have_text(["op0", "op1_left"])
    expect(name).to_be_focused()
    lab.run_cell(1)
    expect(lab.page.locator(".jp-CodeCell").nth(1).locator(".jp-OutputArea-output")).to_have_text("hostile")
    assert violations(view) == []

    view.evaluate("node => { node.style.width = '400px'; }")
    assert view.locator(".overview").evaluate("node => node.scrollWidth <= node.clientWidth")
    assert lab.page.evaluate("() => window.ticking.size") > 0
    lab.run_cell(2)
    expect(view).to_have_count(0)
    wait_until(lambda: lab.page.evaluate("() => window.ticking.size") == 0, "the timers to stop")
