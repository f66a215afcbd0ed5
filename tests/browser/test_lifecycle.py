"""The life of a state browser: it follows the query, idles, resumes, closes, and stays readable in a saved notebook."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import nbformat
import pytest
from nbconvert import HTMLExporter
from playwright.sync_api import Browser, expect

import streamstate as ss
from browser.conftest import watching
from browser.lab import Lab, wait_until
from browser.shown import Shown
from browser.stores import State, Written, flights, more_flights

pytestmark = [pytest.mark.browser, pytest.mark.slow]

# Messages sent while a cell runs are answered if both sides support subshells; otherwise they wait.
SUBSHELLS = version("jupyterlab") >= "4.4" and int(version("ipykernel").split(".")[0]) >= 7
RUNNING = """import pathlib, time
pathlib.Path({started!r}).touch()
while not pathlib.Path({end!r}).exists():
    time.sleep(0.05)"""
LEFT = """import threading
comms = get_ipython().kernel.comm_manager.comms.values()
print(sum(thread.name.startswith("streamstate") for thread in threading.enumerate()), "threads,",
      sum(comm.target_name.startswith("streamstate") for comm in comms), "comms")"""


@pytest.fixture
def growing(tmp_path: Path) -> Written:
    """A store to which the test adds epochs."""
    return flights(tmp_path / "store", epochs=3, gap=-1)


def code(store: Path, query: str = "delays", arguments: str = "") -> str:
    """The source of a cell that shows a query of a store."""
    return (
        "import streamstate as ss\nfrom streamstate.widgets import StateBrowser, close_all\n"
        f"browser = StateBrowser(ss.open_store({str(store)!r})[{query!r}]{arguments})\nbrowser"
    )


def open_and_run(lab: Lab, *cells: str, name: str = "own.ipynb") -> Shown:
    """Open a notebook with these cells, run it, and return its browser."""
    lab.server.write(name, *cells)
    lab.open(name)
    lab.run_all()
    return Shown(lab.page.locator(".streamstate-live").last)


def run_last_cell(lab: Lab, source: str) -> str:
    """Run this source in the last cell and return its output."""
    last = lab.page.locator(".jp-CodeCell").count() - 1
    lab.set_source(last, source)
    lab.run_cell(last)
    return lab.page.locator(".jp-CodeCell").nth(last).locator(".jp-OutputArea-output").inner_text().strip()


def test_a_live_view_shows_each_new_epoch(lab: Lab, growing: Written, tmp_path: Path) -> None:
    """A captured epoch appears automatically; a selected epoch stays, and only the slider grows."""
    shown = open_and_run(lab, code(tmp_path / "store"))
    shown.at(2)
    history = ss.open_store(tmp_path / "store")["delays"]
    state: State = dict(growing.newest()["op0"])
    more_flights(state, 3)
    growing.add({"op0": state})
    shown.at(3)
    shown.expect_rows(history.at(3).table().head(10))
    shown.button("Previous epoch").click()
    shown.at(2)
    growing.add({"op0": {}})
    expect(shown.slider).to_have_attribute("max", "4")
    shown.at(2)
    shown.button("Follow live").click()
    shown.at(4)
    expect(shown.view.get_by_text("The state is empty at this epoch.")).to_be_visible()


@pytest.mark.exhaustive
def test_a_query_without_epochs_shows_a_notice_until_the_first(lab: Lab, growing: Written, tmp_path: Path) -> None:
    """The first captured epoch replaces the notice."""
    young = Written(tmp_path / "store", "young", growing.tables)
    shown = open_and_run(lab, code(tmp_path / "store", "young"))
    expect(shown.view.get_by_text("No epoch has been captured yet. The first one will appear here.")).to_be_visible()
    young.add({"op0": growing.newest()["op0"]})
    shown.at(0)
    shown.expect_rows(ss.open_store(tmp_path / "store")["young"].at(0).table().head(10))


@pytest.mark.exhaustive
def test_a_running_cell_does_not_block_the_view(lab: Lab, growing: Written, tmp_path: Path) -> None:
    """While a cell runs, new epochs are shown and actions are answered."""
    started, end = tmp_path / "started", tmp_path / "end"
    shown = open_and_run(lab, code(tmp_path / "store"), "")
    shown.at(2)
    shown.go(1)
    shown.at(1)
    shown.button("Follow live").click()
    shown.at(2)
    lab.set_source(1, RUNNING.format(started=str(started), end=str(end)))
    lab.start_cell(1)
    wait_until(started.exists, "the cell to run")
    growing.add(growing.newest())
    shown.at(3)
    shown.go(0)
    if not SUBSHELLS:
        expect(shown.view.locator(".stale")).to_be_visible()
        expect(shown.view.get_by_text("The kernel is busy.")).to_be_visible()
        end.touch()
    shown.at(0)
    expect(shown.view.locator(".stale")).to_have_count(0)
    expect(shown.view.get_by_text("The kernel is busy.")).to_be_hidden()
    end.touch()
    lab.wait_idle()


@pytest.mark.exhaustive
def test_a_read_error_is_shown_until_it_is_fixed(lab: Lab, growing: Written, tmp_path: Path) -> None:
    """The page shows the error, and continues once the store is readable again."""
    shown = open_and_run(lab, code(tmp_path / "store"))
    shown.at(2)
    log = tmp_path / "store" / "delays" / "_epochs" / "_delta_log"
    broken = log / f"{len(list(log.glob('*.json'))):020}.json"
    broken.write_text("no JSON")
    alert = shown.view.get_by_role("alert")
    expect(alert).to_be_visible()
    expect(alert).not_to_be_empty()
    broken.unlink()
    expect(alert).to_be_hidden()
    shown.at(2)


def test_closing_leaves_the_static_table_and_nothing_else(lab: Lab, growing: Written, tmp_path: Path) -> None:
    """``close`` and ``close_all`` end the thread and the comm; the static table of a saved notebook remains."""
    shown = open_and_run(lab, code(tmp_path / "store"), "")
    shown.at(2)
    assert run_last_cell(lab, LEFT) == "1 threads, 1 comms"
    assert run_last_cell(lab, f"browser.close()\n{LEFT}") == "0 threads, 0 comms"
    static_table = lab.page.locator(".streamstate-static").first
    expect(static_table).to_be_visible()
    expect(lab.page.locator(".streamstate-live")).to_have_count(0)
    lab.run_cell(0)
    shown.at(2)
    assert run_last_cell(lab, f"close_all()\n{LEFT}") == "0 threads, 0 comms"
    expect(static_table).to_be_visible()


@pytest.mark.exhaustive
def test_running_the_cell_again_leaves_one_view(lab: Lab, growing: Written, tmp_path: Path) -> None:
    """The replaced view ends its own thread and comm."""
    shown = open_and_run(lab, code(tmp_path / "store"), "")
    shown.at(2)
    for _ in range(2):
        lab.run_cell(0)
        shown.at(2)
    wait_until(lambda: run_last_cell(lab, LEFT) == "1 threads, 1 comms", "the replaced views to end")


@pytest.mark.exhaustive
def test_a_reloaded_page_is_live_again(lab: Lab, growing: Written, tmp_path: Path) -> None:
    """The kernel still has the browser: the saved output finds it, with the epoch that was selected."""
    shown = open_and_run(lab, code(tmp_path / "store"))
    shown.go(1)
    shown.at(1)
    lab.save()
    lab.open("own.ipynb")
    shown.at(1)
    shown.go(0)
    shown.at(0)


@pytest.mark.exhaustive
def test_a_second_view_of_the_output_is_live_as_well(lab: Lab, growing: Written, tmp_path: Path) -> None:
    """JupyterLab can show an output twice; both follow, and closing one does not affect the other."""
    first = Shown(lab.page.locator(".jp-Notebook .streamstate-live"))
    open_and_run(lab, code(tmp_path / "store"))
    first.at(2)
    lab.run("notebook:create-output-view")
    second = Shown(lab.page.locator(".jp-LinkedOutputView .streamstate-live"))
    second.at(2)
    second.go(0)
    second.at(0)
    first.at(0)
    lab.page.evaluate("() => { Object.values(window.PyViz.kernels)[0].second = true; }")
    lab.run("application:close")
    expect(second.view).to_have_count(0)
    lab.page.wait_for_function("() => Object.values(window.PyViz.kernels).some((kernel) => !kernel.second)")
    first.go(1)
    first.at(1)


@pytest.mark.exhaustive
def test_after_a_restart_the_static_table_remains(lab: Lab, growing: Written, tmp_path: Path) -> None:
    """After a kernel restart there are no controls without effect."""
    shown = open_and_run(lab, code(tmp_path / "store"))
    shown.at(2)
    lab.restart()
    expect(lab.page.locator(".streamstate-static")).to_be_visible(timeout=60_000)
    expect(lab.page.locator(".streamstate-live")).to_have_count(0)


@pytest.fixture
def saved(lab: Lab, growing: Written, tmp_path: Path) -> Path:
    """A notebook that was run, saved and closed, and whose kernel has ended."""
    shown = open_and_run(lab, code(tmp_path / "store"), name="saved.ipynb")
    shown.at(2)
    lab.save()
    lab.server.end_kernels()
    return lab.server.folder / "saved.ipynb"


@pytest.mark.exhaustive
def test_a_saved_notebook_shows_the_static_table(lab: Lab, saved: Path, tmp_path: Path) -> None:
    """It is shown with another kernel, without a kernel, and in an untrusted notebook."""
    assert saved.stat().st_size < 20_000
    first = ss.open_store(tmp_path / "store")["delays"].at(2).table().head(10).iloc[0]
    table = lab.page.get_by_role("table", name="State table op0 of delays at epoch 2")
    lab.open("saved.ipynb")
    expect(table.locator("tbody tr")).to_have_count(10)
    expect(table.locator("tbody tr").first).to_contain_text(f"{first['carrier']}")
    expect(lab.page.get_by_text("epoch 2 (captured: 0–2)")).to_be_visible()
    expect(lab.page.locator(".streamstate-live")).to_have_count(0)
    notebook = nbformat.read(saved, 4)
    notebook.cells[0].source += "\n# another hand"
    notebook.cells[0].metadata = {}
    nbformat.write(notebook, lab.server.folder / "foreign.ipynb")
    lab.open("foreign.ipynb")
    expect(lab.page.locator("table tbody tr")).to_have_count(10)


@pytest.mark.exhaustive
def test_exported_html_shows_the_static_table(chrome: Browser, saved: Path, tmp_path: Path) -> None:
    """The HTML that nbconvert writes, opened from disk without a network."""
    exporter = HTMLExporter(mathjax_url="", require_js_url="", jquery_url="")  # type: ignore[no-untyped-call]
    page_file = tmp_path / "saved.html"
    page_file.write_text(exporter.from_filename(str(saved))[0])
    context, watched = watching(chrome)
    page = context.new_page()
    page.goto(page_file.as_uri())
    expect(page.get_by_role("table", name="State table op0 of delays at epoch 2").locator("tbody tr")).to_have_count(10)
    expect(page.get_by_text("The first 10 of")).to_be_visible()
    context.close()
    watched.assert_quiet()
