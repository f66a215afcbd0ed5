"""The linked diff and key history views in JupyterLab, as a user operates them."""

from __future__ import annotations

from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, expect

import streamstate as ss
from browser.lab import Lab

pytestmark = pytest.mark.browser

VIEWS = """import streamstate as ss
from IPython.display import display
from streamstate.widgets import DiffView, KeyHistoryView, link
history = ss.open_store({store!r})[{query!r}]
diff = DiffView(history, 0, 6 if {query!r} == "delays" else 1, {table!r})
key = KeyHistoryView(history, {table!r})
link(diff, key)
display(diff, key)"""


def shown(lab: Lab, store: Path, query: str) -> tuple[Locator, Locator]:
    """Show the two views, linked."""
    lab.set_source(0, VIEWS.format(store=str(store), query=query, table="op0"))
    lab.run_all()
    views = lab.page.locator(".streamstate-live")
    expect(views).to_have_count(2)
    diff, key = views.nth(0), views.nth(1)
    expect(diff.locator("tbody tr").first).to_be_visible()
    return diff, key


def assert_accessible(lab: Lab) -> None:
    """Expect axe-core to have inspected the views and to have found no violations."""
    found = Axe().run(lab.page, context=".streamstate-live").response
    inside = [node for rule in found["passes"] for node in rule["nodes"] if isinstance(node["target"][0], list)]
    assert inside, "the audit inspected no element of the views"
    assert [(rule["id"], [node["html"] for node in rule["nodes"]]) for rule in found["violations"]] == []


@pytest.mark.slow
def test_a_click_on_a_mover_shows_its_key_history(opened: Lab, stored: Path) -> None:
    """The history opens beside the diff, and a click on an epoch in it moves the diff."""
    diff, key = shown(opened, stored, "delays")
    history = ss.open_store(stored)["delays"]
    expect(key).to_contain_text("Choose a key of op0 (carrier, origin)")
    largest = history.diff(0, 6).movers("flights", 1).iloc[0]
    diff.locator(".chart svg .mark-rect path").first.click()
    expect(key.get_by_label("carrier", exact=True)).to_have_value(largest["carrier"])
    expect(diff.locator("tr.chosen")).to_contain_text(largest["origin"])
    epochs = history.key_history("op0", carrier=largest["carrier"], origin=largest["origin"])["epoch"].tolist()[::-1]
    listed = key.locator("tbody button")
    expect(listed).to_have_text([f"epoch {epoch}" for epoch in epochs])
    expect(key.locator(".multiple svg")).to_have_count(2)
    listed.nth(1).click()
    expect(diff.get_by_label("To epoch").locator("input")).to_have_value(str(epochs[1]))
    expect(key.locator("tr.now")).to_contain_text(f"epoch {epochs[1]}")
    assert_accessible(opened)
    opened.watched.assert_quiet()


def test_sorting_and_searching_by_keyboard(opened: Lab, stored: Path) -> None:
    """A heading sorts by the absolute difference; kind and text filter the keys."""
    diff, _ = shown(opened, stored, "delays")
    history = ss.open_store(stored)["delays"]
    heading = diff.get_by_role("columnheader", name="flights")
    heading.get_by_role("button").focus()
    opened.page.keyboard.press("Enter")
    expect(heading).to_have_attribute("aria-sort", "descending")
    first = history.diff(0, 6).movers("flights", 1).iloc[0]
    cells = diff.locator("tbody tr").first.locator(".text")
    expect(cells.nth(0)).to_have_text(first["carrier"])
    expect(cells.nth(2)).to_have_text(str(first["flights_new"]))
    expect(diff.locator("tbody tr").first.locator(".was").first).to_have_text(str(first["flights_old"]))
    diff.get_by_role("button", name="−6 removed").click()
    diff.get_by_label("Text to find in the key").fill("c02")
    expect(diff.locator(".pager")).to_have_text("1–1 of 1")
    earlier = diff.get_by_label("From epoch").locator("input")
    earlier.select_text()
    opened.page.keyboard.type("4")
    opened.page.keyboard.press("Enter")
    expect(diff).to_contain_text("Epoch 4 was not captured: this is epoch 3.")
    diff.get_by_role("button", name="Swap").click()
    expect(earlier).to_have_value("6")
    opened.watched.assert_quiet()


def test_script_in_the_state_is_shown_as_text_in_diffs(opened: Lab, stored: Path) -> None:
    """Names, values and keys are escaped in tables and plots; an unknown key is reported."""
    diff, key = shown(opened, stored, "hostile")
    expect(diff.locator("tbody tr").first).to_contain_text("<img src=x")
    diff.locator("tbody tr").first.click()
    expect(key.locator(".multiple svg").first).to_contain_text("<img")
    key.get_by_label("key", exact=True).fill("nowhere")
    key.get_by_role("button", name="Show").click()
    expect(key).to_contain_text("The key key nowhere was not in op0 at any epoch")
    assert opened.page.evaluate("window.hacked") is None
    assert opened.page.locator(".streamstate-live img").count() == 0
    opened.watched.assert_quiet()
