"""Take the pictures of the README: ``python -m scripts.screenshots``.

Runs the first tutorial in a real JupyterLab and a headless Chromium until its query has read everything, looks at the
epoch that the tutorial is about, and leaves the pictures in ``docs/screenshots``. It takes about a minute.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from browser.lab import FLAGS, Lab, Watched, chromium, serving  # noqa: E402 (the tests are no package of ours)
from browser.shown import Shown  # noqa: E402

NOTEBOOK = ROOT / "tutorials" / "00_quickstart.ipynb"
PICTURES = ROOT / "docs" / "screenshots"
THEMES = {"quickstart": "JupyterLab Light", "quickstart-dark": "JupyterLab Dark"}


def run_until_captured(lab: Lab) -> Shown:
    """The tutorial's cells up to the one that waits for the query; the browser that they show."""
    shutil.copy(NOTEBOOK, lab.server.folder)
    lab.open(NOTEBOOK.name)
    for at, source in lab.code_cells():
        lab.run_cell(at, timeout=300)
        if source.startswith("%stream wait"):
            break
    return Shown(lab.page.locator(".streamstate-live"))


def look_at_the_leap(shown: Shown) -> None:
    """Epoch 2, the latest departures first, and the history of the first of them."""
    shown.go(2)
    shown.at(2)
    heading = shown.grid.get_by_role("columnheader", name="max", exact=True)
    for way in ("ascending", "descending"):
        heading.get_by_role("button").click()
        expect(heading).to_have_attribute("aria-sort", way)
    shown.rows.first.click()
    shown.history.wait_for()


def main() -> None:
    """Take the pictures."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home, serving(Path(home)) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        context = browser.new_context(viewport={"width": 1100, "height": 900}, device_scale_factor=1.5)
        lab = Lab(server, context.new_page(), Watched())
        shown = run_until_captured(lab)
        lab.run("application:toggle-left-area")
        look_at_the_leap(shown)
        for name, theme in THEMES.items():
            lab.theme(theme)
            shown.view.evaluate("node => node.closest('.jp-CodeCell').scrollIntoView()")
            lab.page.mouse.move(0, 0)
            lab.page.screenshot(path=PICTURES / f"{name}.png")
            print(PICTURES / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
