"""Reads and operates a live state browser on a page."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
from playwright.sync_api import Locator, expect

from streamstate.state_inspect.cell_text import cell
from streamstate.state_inspect.frames import frame_tuples


class Shown:
    """One live browser on a page."""

    def __init__(self, view: Locator) -> None:
        self.view = view
        self.slider = view.get_by_label("Epoch", exact=True)
        self.epoch = view.locator(".epoch")
        self.grid = view.locator("table").first
        self.rows = self.grid.locator("tbody tr")
        self.history = view.get_by_role("region", name="History of one key")
        self.why = view.get_by_role("region", name="Why the key changed")
        self.counts = view.locator(".head .count")
        self.pager = view.locator(".pager")

    def wait(self) -> None:
        """Wait until the view is drawn."""
        expect(self.view.locator(".browser")).to_be_visible()

    def button(self, name: str) -> Locator:
        """A button by its name."""
        return self.view.get_by_role("button", name=name, exact=True)

    def at(self, epoch: int) -> None:
        """Expect this epoch to be selected and its rows to be shown."""
        expect(self.epoch).to_have_text(f"Epoch {epoch}")
        expect(self.grid).to_have_attribute("aria-label", re.compile(rf" at epoch {epoch}$"))

    def seen(self) -> Callable[[], list[str]]:
        """Record every epoch that is shown from now on; call the result to get them."""
        watch = """node => {
            node.seen = [];
            const changed = () => { if (node.seen.at(-1) !== node.textContent) node.seen.push(node.textContent); };
            new MutationObserver(changed).observe(node, {childList: true, characterData: true, subtree: true});
        }"""
        self.epoch.evaluate(watch)
        return lambda: list(self.epoch.evaluate("node => node.seen"))

    def go(self, position: int) -> None:
        """Move the slider to a position."""
        self.slider.fill(str(position))

    def expect_rows(self, frame: pd.DataFrame) -> None:
        """Expect exactly the rows of a frame, as text and in order."""
        expected = [[cell(value).text for value in row] for row in frame_tuples(frame)]
        expect(self.rows).to_have_count(len(expected))
        for row, texts in zip(self.rows.all(), expected, strict=True):
            expect(row.locator("td:not(.mark) .text")).to_have_text(texts)

    def marks(self) -> Sequence[str]:
        """The change sign of each row."""
        return [mark.inner_text() for mark in self.rows.locator("td.mark [aria-hidden]").all()]

    def change_counts(self) -> list[Any]:
        """The counts of changes as shown: added, changed, removed."""
        return [text.split()[0] for text in self.counts.all_inner_texts()]
