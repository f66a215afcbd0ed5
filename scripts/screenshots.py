"""Take the pictures of the README and the documentation: ``python -m scripts.screenshots``.

Runs the first tutorial in a real JupyterLab and a headless Chromium until its query has read everything, looks at the
epoch that the tutorial is about, shows every other view of the same query, and opens the store's page. Then it shows
the timelines of queries with troubles, and the overview of a store: only these with ``python -m scripts.screenshots
symptoms``, or ``overview``. The pictures go into ``docs/screenshots``, light and dark. It takes about three minutes.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Literal

import nbformat
from nbformat.v4 import new_code_cell, new_notebook
from playwright.sync_api import Browser, FloatRect, Locator, ViewportSize, expect, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from browser.lab import FLAGS, Lab, Watched, chromium, serving  # noqa: E402 (the tests are no package of ours)
from browser.shown import Shown  # noqa: E402
from recorded.examples import examples  # noqa: E402

from scripts.symptoms import SYMPTOMS  # noqa: E402

NOTEBOOK = ROOT / "tutorials" / "00_quickstart.ipynb"
PICTURES = ROOT / "docs" / "screenshots"
THEMES = {"": "JupyterLab Light", "-dark": "JupyterLab Dark"}
SETUP = """import streamstate as ss
from streamstate.widgets import ComparisonView, Debugger, DiffView, KeyHistoryView
from streamstate.widgets import QueryDashboard, Timeline
store = ss.open_store("streamstate-data/store")
history = store["delays"]
from streamstate.extension import loaded
running = loaded(get_ipython()).notebook.query("delays")
session = ss.Checkpoint(running.checkpoint).debug(lambda: running.launch.frame, at=1, store=store.layout.root,
name="what_if")
session.watch("count(*)")
session.step(2)
session.back()
session.step()
without = ss.Checkpoint(running.checkpoint).fork("streamstate-data/lost", at=4, edit="DELETE FROM op0 WHERE origin =
'JFK'")
without.step(lambda: running.launch.frame, epochs=6, store=store.layout.root, name="jfk_lost")
from pyspark.sql import functions as F
def by_carrier():
    rows = flights.flights(spark, data).groupBy("carrier")
    return rows.agg(F.avg("dep_delay").alias("average_delay"), F.max("dep_delay"), F.min("dep_delay"))"""
VIEWS = {
    "timeline": "Timeline(history)",
    "diff": "DiffView(history, 1, 2)",
    "key": "KeyHistoryView(history, 'result', {'carrier': 'HA', 'origin': 'JFK'}, why=2)",
    "dashboard": "QueryDashboard(history, running)",
    "debugger": "Debugger(session)",
    "branches": "DiffView(history, 8, 8, other=store['jfk_lost'])",
    "comparison": "ComparisonView(history.compare(store['jfk_lost']))",
    "mapping": "ss.Checkpoint(running.checkpoint).propose_mapping(by_carrier, store=store)",
}
"""Each view's picture and the cell that shows it."""
QUICKSTART: FloatRect = {"x": 0, "y": 0, "width": 1100, "height": 1095}
WINDOW: ViewportSize = {"width": 1100, "height": 1600}
"""High enough for a whole view."""
SETTLED = 1500
"""Milliseconds in which plots are drawn and laid out."""


def run_until_captured(lab: Lab) -> Shown:
    """The tutorial's cells up to the one that waits for the query, and the browser once all files are captured."""
    shutil.copy(NOTEBOOK, lab.server.folder)
    lab.open(NOTEBOOK.name)
    for at, source in lab.code_cells():
        lab.run_cell(at, timeout=300)
        if source.startswith("%stream wait"):
            break
    last = lab.code_cells()[-1][0]
    lab.set_source(last, "%stream wait delays --epoch 29")
    lab.run_cell(last, timeout=300)
    return Shown(lab.page.locator(".streamstate-live"))


def look_at_the_leap(shown: Shown) -> None:
    """Epoch 2, the largest averages first, the history of the first of them, and the input behind its change."""
    shown.go(2)
    shown.at(2)
    heading = shown.grid.get_by_role("columnheader", name="average_delay", exact=True)
    for way in ("ascending", "descending"):
        heading.get_by_role("button").click()
        expect(heading).to_have_attribute("aria-sort", way)
    shown.rows.first.click()
    shown.history.wait_for()
    shown.button("Why did it change in epoch 2?").click()
    expect(shown.why).to_contain_text("3 input rows")


def look_at_each_view(lab: Lab) -> None:
    """A cell for each view, and its picture."""
    last, folder = lab.code_cells()[-1][0], lab.server.folder
    lab.set_source(last, SETUP)
    lab.run_cell(last)
    for name, code in VIEWS.items():
        lab.set_source(last, code)
        lab.run_cell(last)
        cell = lab.page.locator(".jp-CodeCell").nth(lab.code_cells().index((last, code)))
        view = cell.locator(".streamstate-live, .streamstate-report")
        view.wait_for()
        for line in cell.locator(".streamstate-report > p").all():
            line.evaluate("(node, folder) => { node.innerHTML = node.innerHTML.replace(folder, '') }", f"{folder}/")
        picture(lab, view, name)


def look_at_symptoms(lab: Lab, folder: Path) -> None:
    """The timeline of each query that has a trouble, with the advice on it; their stores are in a folder."""
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    notebook = new_notebook(cells=[new_code_cell("")], metadata=kernel)
    (lab.server.folder / "symptoms.ipynb").write_text(nbformat.writes(notebook))
    lab.open("symptoms.ipynb")
    lab.run("application:toggle-left-area")
    for name in SYMPTOMS:
        code = "import streamstate as ss\nfrom streamstate.widgets import Timeline\n"
        lab.set_source(0, f"{code}Timeline(ss.open_store({str(folder / name / 'store')!r})[{name!r}])")
        lab.run_cell(0)
        view = lab.page.locator(".streamstate-live")
        expect(view.get_by_role("list", name="Advice")).to_be_visible(timeout=60_000)
        expect(view.locator(".plot svg").last).to_be_visible(timeout=60_000)
        picture(lab, view, f"symptom-{name}")


def picture(lab: Lab, view: Locator, name: str) -> None:
    """One view in both themes."""
    for suffix, theme in THEMES.items():
        lab.theme(theme)
        lab.page.mouse.move(0, 0)
        lab.page.wait_for_timeout(SETTLED)
        view.screenshot(path=PICTURES / f"{name}{suffix}.png")
        print(PICTURES / f"{name}{suffix}.png")


def look_at_the_page(browser: Browser, store: Path) -> None:
    """The store's page, as a colleague opens it."""
    from streamstate.widgets.page import serve
    from streamstate.widgets.page.address import Address

    with serve(str(store)) as server:
        schemes: dict[str, Literal["light", "dark"]] = {"": "light", "-dark": "dark"}
        for suffix, scheme in schemes.items():
            page = browser.new_page(
                viewport={"width": 1100, "height": 900}, device_scale_factor=1.5, color_scheme=scheme
            )
            page.goto(server.url + Address("delays", epoch=2).text().replace("?", "&"))
            page.wait_for_timeout(2 * SETTLED)
            page.screenshot(path=PICTURES / f"page{suffix}.png")
            print(PICTURES / f"page{suffix}.png")


def look_at_the_fleet(browser: Browser, folder: Path) -> None:
    """The overview of the recorded queries: one whose capture is behind, and one that cannot be read."""
    from streamstate.widgets.page import serve

    store = queries_of_a_fleet(folder)
    with serve(str(store)) as server:
        schemes: dict[str, Literal["light", "dark"]] = {"": "light", "-dark": "dark"}
        for suffix, scheme in schemes.items():
            page = browser.new_page(viewport=WINDOW, device_scale_factor=1.5, color_scheme=scheme)
            page.goto(server.url)
            page.wait_for_timeout(2 * SETTLED)
            page.locator(".streamstate-live").last.screenshot(path=PICTURES / f"overview{suffix}.png")
            print(PICTURES / f"overview{suffix}.png")


def queries_of_a_fleet(folder: Path) -> Path:
    """Capture the recorded queries as if they had just committed; returns their store."""
    import streamstate as ss

    recorded = examples(folder)
    shutil.rmtree(recorded / "store")
    for checkpoint in sorted((recorded / "checkpoints").iterdir()):
        newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda commit: int(commit.name))
        newest.touch()
        ss.Checkpoint(checkpoint).capture(recorded / "store", checkpoint.name, verify="never")
        if checkpoint.name == "sessions":
            for later in (1, 2):
                shutil.copyfile(newest, newest.with_name(f"{int(newest.name) + later}"))
    max((recorded / "store/payments/_epochs/_delta_log").glob("*.json")).write_text("damaged")
    return recorded / "store"


def main() -> None:
    """Take the pictures, or only those of troubles, or of the overview."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    names = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        if not names or names == ["symptoms"]:
            # A process of its own: Spark's threads and Playwright's do not mix.
            subprocess.run([sys.executable, "-m", "scripts.symptoms", folder], cwd=ROOT, check=True)
        take(Path(folder), names)


def take(symptoms: Path, names: Collection[str]) -> None:
    """Take the pictures, all or some; ``symptoms`` has the stores of queries with troubles."""
    with tempfile.TemporaryDirectory() as home, serving(Path(home)) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        context = browser.new_context(viewport=WINDOW, device_scale_factor=1.5)
        lab = Lab(server, context.new_page(), Watched())
        if not names or "overview" in names:
            look_at_the_fleet(browser, Path(home))
        if not names:
            look_at_the_tutorial(lab)
            look_at_the_page(browser, server.folder / "streamstate-data" / "store")
        if not names or "symptoms" in names:
            look_at_symptoms(lab, symptoms)
        browser.close()


def look_at_the_tutorial(lab: Lab) -> None:
    """The first tutorial's browser, and every other view of its query."""
    shown = run_until_captured(lab)
    lab.run("application:toggle-left-area")
    look_at_the_leap(shown)
    for suffix, theme in THEMES.items():
        lab.theme(theme)
        shown.view.evaluate("node => node.closest('.jp-CodeCell').scrollIntoView()")
        lab.page.mouse.move(0, 0)
        lab.page.screenshot(path=PICTURES / f"quickstart{suffix}.png", clip=QUICKSTART)
        print(PICTURES / f"quickstart{suffix}.png")
    look_at_each_view(lab)


if __name__ == "__main__":
    main()
