"""Views outside a notebook's own connection: the served page, the saved file, and the Jupyter widget."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe  # it has no types
from playwright.sync_api import Browser, BrowserContext, Page, expect

import streamstate as ss
from browser.conftest import watching
from browser.lab import Lab, wait_until
from browser.shown import Shown
from browser.stores import HOSTILE, State, flights, more_flights
from streamstate.widgets import StateBrowser
from streamstate.widgets.page import Server, serve
from streamstate.widgets.page.address import Address

pytestmark = pytest.mark.browser
KEY = {"carrier": "C01", "origin": "LGA"}


@pytest.fixture(scope="module")
def served(stored: Path) -> Iterator[Server]:
    """A served store."""
    with serve(stored) as server:
        yield server


@pytest.fixture
def context(chrome: Browser) -> Iterator[BrowserContext]:
    """A browser context; checks that the console stays empty and that no request leaves this machine."""
    context, watched = watching(chrome)
    yield context
    context.close()
    watched.assert_quiet()


def opened(context: BrowserContext, served: Server, address: Address) -> tuple[Page, Shown]:
    """Open an address in a new tab, and return the tab and its browser."""
    page = context.new_page()
    page.goto(f"{served.url}&{address.text().removeprefix('?')}")
    shown = Shown(page.locator(".streamstate-live", has=page.locator(".browser")))
    shown.wait()
    return page, shown


def assert_accessible(page: Page) -> None:
    """Expect axe-core to find no violations."""
    found = Axe().run(page)
    violations = [(rule["id"], node["html"][:120]) for rule in found.response["violations"] for node in rule["nodes"]]
    assert not violations


def threads() -> list[str]:
    """The names of the threads of views."""
    return [
        thread.name for thread in threading.enumerate() if thread.name.startswith(("streamstate-p", "streamstate-b"))
    ]


@pytest.mark.slow
def test_a_link_opens_query_epoch_and_key_and_the_url_follows(context: BrowserContext, served: Server) -> None:
    """The URL reflects the selection without the token; Back returns to the previous selection."""
    page, shown = opened(context, served, Address("delays", epoch=3, key=KEY))
    shown.at(3)
    expect(shown.history).to_contain_text("carrier C01, origin LGA")
    assert "token" not in page.url
    shown.button("Previous epoch").click()
    shown.at(2)
    expect(page).to_have_url(re.compile("query=delays.*epoch=2"))
    expect(page).to_have_title("delays · epoch 2 · streamstate")
    page.get_by_role("link", name="hostile", exact=True).click()
    expect(shown.view.locator(".name")).to_have_text("hostile")
    expect(page).to_have_url(re.compile("query=hostile"))
    page.go_back()
    shown.at(2)
    page.go_back()
    shown.at(3)
    expect(shown.history).to_contain_text("carrier C01, origin LGA")
    page.reload()
    shown.at(3)
    shown.button("Close").click()
    expect(shown.history).to_be_hidden()
    assert_accessible(page)


def test_a_row_is_copied(context: BrowserContext, served: Server) -> None:
    """The text reaches the clipboard from a served page, too."""
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page, shown = opened(context, served, Address("delays", epoch=3))
    shown.rows.first.get_by_role("button", name="Copy as magic, SQL or Python").click()
    text = shown.view.get_by_role("group", name="As SQL").inner_text()
    shown.button("Copy as SQL").click()
    expect(shown.view.get_by_text("Copied.")).to_be_visible()
    assert "VERSION AS OF 3 WHERE" in text
    assert page.evaluate("navigator.clipboard.readText()") == text


@pytest.mark.slow
def test_a_reload_shows_what_a_person_chose(context: BrowserContext, served: Server) -> None:
    """The filter and the order of the rows, the key that was typed, and the result of the statement that was run."""
    page, shown = opened(context, served, Address("delays", epoch=3))
    shown.grid.get_by_role("columnheader", name="mean").get_by_role("button").click()
    shown.view.get_by_label("Text to filter for").fill("C01")
    expect(page).to_have_url(re.compile("order_by=mean.*text=C01"))
    page.reload()
    expect(shown.grid.get_by_role("columnheader", name="mean")).to_have_attribute("aria-sort", "ascending")
    expect(shown.view.get_by_label("Text to filter for")).to_have_value("C01")
    expect(shown.pager).to_have_text("1–2 of 2")
    page.get_by_role("link", name="Key", exact=True).click()
    fields = page.get_by_role("form", name="Key").get_by_role("textbox")
    expect(fields).to_have_count(2)
    for field, text in zip(fields.all(), KEY.values(), strict=True):
        field.fill(text)
    fields.last.press("Enter")
    expect(page).to_have_url(re.compile("section=key.*key="))
    page.reload()
    expect(page.get_by_role("table", name="Changes of carrier C01, origin LGA")).to_be_visible()
    page.get_by_role("link", name="SQL", exact=True).click()
    statement = page.get_by_label("SQL statement")
    statement.fill("SELECT count(*) AS n FROM delays VERSION AS OF 3")
    statement.press("Control+Enter")
    result = page.get_by_role("table", name="Result")
    expect(result.locator("tbody td")).to_have_text("27")
    expect(page).to_have_url(re.compile("section=sql.*sql=SELECT"))
    page.reload()
    expect(result.locator("tbody td")).to_have_text("27")
    expect(statement).to_have_value("SELECT count(*) AS n FROM delays VERSION AS OF 3")
    assert_accessible(page)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_two_viewers_are_independent_and_leave_no_threads(context: BrowserContext, served: Server) -> None:
    """Each viewer has their own epoch; closing a tab ends its threads and its session."""
    wait_until(lambda: served.viewers == 0, "earlier tabs to close")
    first, first_shown = opened(context, served, Address("delays", epoch=1))
    second, second_shown = opened(context, served, Address("delays", epoch=5))
    first_shown.at(1)
    second_shown.at(5)
    first_shown.button("Next epoch").click()
    first_shown.at(2)
    second_shown.at(5)
    assert served.viewers == 2
    first.close()
    second.close()
    wait_until(lambda: served.viewers == 0, "the sessions to end")
    wait_until(lambda: not [name for name in threads() if not name.startswith("streamstate-page_")], "threads to end")


@pytest.mark.slow
def test_the_page_follows_a_live_query(context: BrowserContext, tmp_path: Path) -> None:
    """A captured epoch appears automatically; when the server stops, the page keeps its content and says so."""
    written = flights(tmp_path / "store", epochs=2, gap=-1)
    with serve(tmp_path / "store") as server:
        page, shown = opened(context, server, Address("delays"))
        shown.at(1)
        state: State = dict(written.newest()["op0"])
        more_flights(state, 2)
        written.add({"op0": state})
        shown.at(2)
    expect(page.get_by_text("The connection is lost").last).to_be_visible()


@pytest.mark.slow
def test_errors_are_shown_in_the_page(context: BrowserContext, served: Server) -> None:
    """The address of something that does not exist shows an error in the page."""
    page = context.new_page()
    page.goto(f"{served.url}&query=delay")
    expect(page.get_by_role("alert")).to_contain_text("delays")
    page.goto(f"{served.url}&query=delays&epoch=4")
    expect(page.get_by_role("alert")).to_contain_text("3 and 5")


def test_without_the_token_a_plain_page_explains_it(chrome: Browser, served: Server) -> None:
    """Chromium itself logs the status to the console."""
    page = chrome.new_page()
    answer = page.goto(f"http://127.0.0.1:{served.port}/?token=wrong")
    assert answer is not None
    assert answer.status == 403
    expect(page.get_by_role("heading")).to_have_text("Not allowed")
    page.close()


@pytest.mark.slow
def test_a_link_from_another_site_opens_the_page(chrome: Browser, served: Server) -> None:
    """It works with the token and later without it; the other site's request carries no cookie."""
    context = chrome.new_context()
    page = context.new_page()
    for address in (f"{served.url}&query=delays&epoch=2", f"http://127.0.0.1:{served.port}/?query=delays&epoch=3"):
        page.goto(f"http://localhost:{served.port}/")  # another site to the browser
        page.evaluate("address => { location.href = address }", address)
        Shown(page.locator(".streamstate-live", has=page.locator(".browser"))).at(int(address[-1]))
        assert "token" not in page.url
    context.close()


@pytest.mark.exhaustive
@pytest.mark.slow
def test_plots_are_drawn_under_the_content_security_policy(context: BrowserContext, served: Server) -> None:
    """The plot library is part of the view and is not loaded from another host."""
    page = context.new_page()
    page.goto(f"{served.url}&query=delays&section=timeline")
    expect(page.locator(".streamstate-live figure svg").first).to_be_visible()


@pytest.mark.exhaustive
def test_the_page_fits_a_narrow_window_and_both_themes(context: BrowserContext, served: Server) -> None:
    """At 400 pixels only tables scroll sideways; the dark theme has a dark background, and the audit still passes."""
    page, shown = opened(context, served, Address("delays", epoch=3))
    shown.at(3)
    page.set_viewport_size({"width": 400, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(paper) != light
    assert_accessible(page)


@pytest.mark.slow
def test_a_saved_file_works_without_a_server(context: BrowserContext, stored: Path, tmp_path: Path) -> None:
    """It opens from disk, without a server or a kernel; a value that contains script is shown as text."""
    store = ss.open_store(stored)
    report = StateBrowser(store["delays"], epoch=3).save(tmp_path / "delays.html")
    page = context.new_page()
    page.goto(report.path.as_uri())
    shown = Shown(page.locator(".streamstate-live"))
    shown.at(3)
    shown.go(0)
    shown.at(0)
    shown.expect_rows(store["delays"].at(0).table().head(10))
    shown.button("Next page").click()
    expect(shown.pager).to_have_text("11–20 of 27")
    shown.button("Last epoch").click()
    shown.at(6)
    seen = shown.seen()
    shown.button("First epoch").click()
    shown.button("Play").click()
    wait_until(lambda: "Epoch 6" in seen(), "it to play to the end")
    assert [epoch for epoch in ("Epoch 1", "Epoch 2", "Epoch 3", "Epoch 5", "Epoch 6") if epoch not in seen()] == []
    shown.view.get_by_label("Text to filter for").fill("C01")
    expect(page.locator(".note")).to_contain_text("does not contain")
    shown.button("Follow live").click()
    expect(page.locator(".note")).to_contain_text("no new epochs")
    page.locator("summary").click()
    expect(page.locator("footer li").last).to_contain_text("Filters")
    assert_accessible(page)
    page.goto(StateBrowser(store["hostile"]).save(tmp_path / "hostile.html").path.as_uri())
    expect(page.locator(".streamstate-live td").filter(has_text=HOSTILE[:20]).first).to_be_visible()
    assert page.evaluate("window.hacked") is None


WIDGET = """import streamstate as ss, ipywidgets, threading
from streamstate.widgets import StateBrowser
browser = StateBrowser(ss.open_store({path!r})["delays"], epoch=3)
ipywidgets.VBox([browser.widget()])"""
CLOSE = """browser.close()
comms = get_ipython().kernel.comm_manager.comms.values()
print(sum(thread.name.startswith("streamstate") for thread in threading.enumerate()), "threads,",
      sum(comm is browser.widget().comm for comm in comms), "comms")"""
VSCODE = """import os
os.environ["VSCODE_PID"] = "1"; os.environ.pop("JPY_SESSION_NAME", None)
again = StateBrowser(browser.model.history, epoch=2)
again"""


@pytest.mark.exhaustive
def test_the_widget_works_without_panel(lab: Lab, stored: Path) -> None:
    """It works in an ipywidgets layout and in VS Code, and closing it leaves nothing behind."""
    lab.server.write("widget.ipynb", WIDGET.format(path=str(stored)), VSCODE, "again.close()\n" + CLOSE)
    lab.open("widget.ipynb")
    lab.run_cell(0)
    shown = Shown(lab.page.locator(".streamstate-live").first)
    shown.at(3)
    shown.button("Next epoch").click()
    shown.at(5)
    lab.run_cell(1)
    Shown(lab.page.locator(".streamstate-live").nth(1)).at(2)
    expect(lab.page.locator(".streamstate-static:visible")).to_have_count(0)
    lab.run_cell(2)
    expect(lab.page.locator(".streamstate-static:visible")).to_contain_text("epoch 2 (captured: 0–3, 5–6)")
    output = lab.page.locator(".jp-CodeCell").nth(2).locator(".jp-OutputArea-output")
    expect(output).to_contain_text("0 threads, 0 comms")


PANEL = """import streamstate as ss, panel as pn
from streamstate.widgets import StateBrowser
pn.extension(inline=True)
history = ss.open_store({path!r})["delays"]
pn.Row(StateBrowser(history, epoch=3), StateBrowser(history, epoch=2))"""


@pytest.mark.exhaustive
def test_two_views_work_in_a_panel_layout(lab: Lab, stored: Path) -> None:
    """Each has its own connection."""
    lab.server.write("panel.ipynb", PANEL.format(path=str(stored)))
    lab.open("panel.ipynb")
    lab.run_cell(0)
    first, second = (Shown(lab.page.locator(".streamstate-live").nth(at)) for at in (0, 1))
    first.at(3)
    second.at(2)
    second.button("Previous epoch").click()
    second.at(1)
    first.at(3)
