"""Take the pictures of the README: ``python -m scripts.screenshots STORE``, with the store that ``make demo`` leaves.

A real JupyterLab shows the store's queries in a headless Chromium; the pictures go to ``docs/screenshots``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from browser.lab import FLAGS, Lab, Watched, chromium, serving  # noqa: E402
from browser.shown import Shown  # noqa: E402

PICTURES = ROOT / "docs" / "screenshots"
CODE = """import streamstate as ss
from streamstate.widgets import StateBrowser
StateBrowser(ss.open_store({store!r})[{query!r}])"""
THEMES = {"state-browser": "JupyterLab Light", "state-browser-dark": "JupyterLab Dark"}


@contextmanager
def showing(store: Path, query: str) -> Iterator[tuple[Lab, Shown]]:
    """JupyterLab with a notebook that shows a query as a reader of the README would."""
    with tempfile.TemporaryDirectory() as home, serving(Path(home)) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        context = browser.new_context(viewport={"width": 1180, "height": 790}, device_scale_factor=2)
        lab = Lab(server, context.new_page(), Watched())
        server.write("state.ipynb", CODE.format(store=str(store), query=query))
        lab.open("state.ipynb")
        lab.run("application:toggle-left-area")
        lab.run_all()
        shown = Shown(lab.page.locator(".streamstate-live"))
        shown.wait()
        yield lab, shown
        browser.close()


def main(arguments: list[str]) -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", type=Path)
    parser.add_argument("--query", default="delays")
    chosen = parser.parse_args(arguments)
    PICTURES.mkdir(parents=True, exist_ok=True)
    with showing(chosen.store, chosen.query) as (lab, shown):
        shown.go(int(shown.slider.get_attribute("max") or 0) * 2 // 3)
        shown.rows.nth(3).click()
        shown.history.wait_for()
        for name, theme in THEMES.items():
            lab.theme(theme)
            lab.page.mouse.move(0, 0)
            lab.page.screenshot(path=PICTURES / f"{name}.png")
            print(PICTURES / f"{name}.png")


if __name__ == "__main__":
    main(sys.argv[1:])
