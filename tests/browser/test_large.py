"""The state browser with large states: a million keys, two hundred columns, and text in both directions."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from playwright.sync_api import expect

import streamstate as ss
from benchmarks.large_stores import made
from browser.lab import Lab
from browser.shown import Shown
from browser.stores import Written

pytestmark = [pytest.mark.browser, pytest.mark.slow]

RIGHT_TO_LEFT = "שלום עולם"
FAMILY = "👩‍👩‍👧 🇮🇹"


def browse(lab: Lab, store: Path, query: str, name: str) -> Shown:
    """Show the browser of a query in a new notebook."""
    code = "import streamstate as ss\nfrom streamstate.widgets import StateBrowser\n"
    lab.server.write(name, f"{code}StateBrowser(ss.open_store({str(store)!r})[{query!r}])")
    lab.open(name)
    lab.run_all()
    return Shown(lab.page.locator(".streamstate-live").last)


@pytest.mark.exhaustive
def test_a_million_keys_can_be_paged_sorted_and_filtered(lab: Lab, tmp_path: Path) -> None:
    """The view matches the history at any position."""
    made(tmp_path / "store", keys=1_000_000, changes=50_000, epochs=3, columns=4)
    history = ss.open_store(tmp_path / "store")["load"]
    shown = browse(lab, tmp_path / "store", "load", "million.ipynb")
    shown.at(2)
    expect(shown.pager).to_have_text("1–10 of 1,000,000")
    shown.go(0)
    shown.at(0)
    shown.expect_rows(history.at(0).table().head(10))
    shown.go(2)
    shown.at(2)
    heading = shown.grid.get_by_role("columnheader", name="count")
    for _ in range(2):
        heading.get_by_role("button").click()
    shown.expect_rows(history.at(2).table().page(limit=10, order_by="count", descending=True))
    key = history.at(2).table().page(777_777, 1).iloc[0]["key"]
    shown.view.get_by_label("Text to filter for").fill(key)
    expect(shown.pager).to_have_text("1–1 of 1")
    shown.rows.first.click()
    expect(shown.history).to_contain_text(key)


@pytest.mark.exhaustive
def test_two_hundred_columns_are_shown_in_windows(lab: Lab, tmp_path: Path) -> None:
    """The key stays visible, the other columns move, and a column can be found by name."""
    made(tmp_path / "store", keys=2_000, changes=100, epochs=3, columns=200)
    shown = browse(lab, tmp_path / "store", "load", "wide.ipynb")
    shown.at(2)
    expect(shown.grid.get_by_role("columnheader", name="key")).to_be_visible()
    expect(shown.grid.get_by_role("columnheader")).not_to_have_count(200)
    shown.view.get_by_label("Column name to look for").fill("value_150")
    expect(shown.grid.get_by_role("columnheader", name="value_150")).to_be_visible()
    expect(shown.grid.get_by_role("columnheader", name="key")).to_be_visible()


@pytest.mark.exhaustive
def test_text_keeps_its_direction(lab: Lab, tmp_path: Path) -> None:
    """Right-to-left text and joined emoji are shown unchanged, and do not affect the text around them."""
    written = Written(tmp_path, "words", {"op0": ({"word": pa.string(), "n": pa.int64()}, 1)})
    written.add({"op0": {(RIGHT_TO_LEFT,): (1,), (FAMILY,): (2,)}})
    shown = browse(lab, tmp_path, "words", "words.ipynb")
    shown.at(0)
    for word, number in ((RIGHT_TO_LEFT, "1"), (FAMILY, "2")):
        row = shown.rows.filter(has_text=word)
        expect(row.locator("td:not(.mark) .text")).to_have_text([word, number])
    direction = "node => getComputedStyle(node).direction"
    assert shown.rows.filter(has_text=RIGHT_TO_LEFT).locator(".text").first.evaluate(direction) == "rtl"
    assert shown.rows.filter(has_text=FAMILY).locator(".text").first.evaluate(direction) == "ltr"
