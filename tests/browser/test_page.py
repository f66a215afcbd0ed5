"""Views outside a notebook's own line: the served page, the saved file, and the Jupyter widget."""

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
    """A browser profile in which nothing is said on the console and no request leaves this machine."""
    context, watched = watching(chrome)
    yield context
    context.close()
    watched.assert_quiet()


def opened(context: BrowserContext, served: Server, address: Address) -> tuple[Page, Shown]:
    """A tab at an address, and the browser in it."""
    page = context.new_page()
    page.goto(f"{served.url}&{address.text().removeprefix('?')}")
    shown = Shown(page.locator(".streamstate-live", has=page.locator(".browser")))
    shown.wait()
    return page, shown


def assert_accessible(page: Page) -> None:
    """The audit axe-core finds nothing wrong."""
    found = Axe().run(page)
    wrong = [(each["id"], node["html"][:120]) for each in found.response["violations"] for node in each["nodes"]]
    assert not wrong


def threads() -> list[str]:
    """The threads of views."""
    return [
        thread.name for thread in threading.enumerate() if thread.name.startswith(("streamstate-p", "streamstate-b"))
    ]


def test_a_link_leads_to_query_epoch_and_key_and_the_address_follows(context: BrowserContext, served: Server) -> None:
    """What is looked at is in the address, without the token; going back goes to where one was."""
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


def test_two_viewers_choose_for_themselves_and_leave_nothing(context: BrowserContext, served: Server) -> None:
    """Each has its own epoch; a tab that is closed ends its threads and its session."""
    wait_until(lambda: served.viewers == 0, "earlier tabs to be forgotten")
    first, one = opened(context, served, Address("delays", epoch=1))
    second, two = opened(context, served, Address("delays", epoch=5))
    one.at(1)
    two.at(5)
    one.button("Next epoch").click()
    one.at(2)
    two.at(5)
    assert served.viewers == 2
    first.close()
    second.close()
    wait_until(lambda: served.viewers == 0, "the sessions to end")
    wait_until(lambda: not [name for name in threads() if not name.startswith("streamstate-page_")], "threads to end")


def test_the_page_follows_a_live_query(context: BrowserContext, tmp_path: Path) -> None:
    """A captured epoch appears by itself; when the server stops, the page keeps what it shows and says so."""
    written = flights(tmp_path / "store", epochs=2, gap=-1)
    with serve(tmp_path / "store") as server:
        page, shown = opened(context, server, Address("delays"))
        shown.at(1)
        state: State = dict(written.newest()["op0"])
        more_flights(state, 2)
        written.add({"op0": state})
        shown.at(2)
    expect(page.get_by_text("The connection is lost").last).to_be_visible()


def test_what_is_wrong_is_said_in_the_page(context: BrowserContext, served: Server) -> None:
    """An address of something that does not exist; without the token, a plain page that says what to do."""
    page = context.new_page()
    page.goto(f"{served.url}&query=delay")
    expect(page.get_by_role("alert")).to_contain_text("delays")
    page.goto(f"{served.url}&query=delays&epoch=4")
    expect(page.get_by_role("alert")).to_contain_text("[3, 5]")


def test_without_the_token_a_plain_page_says_so(chrome: Browser, served: Server) -> None:
    """Chromium itself notes the status on the console."""
    page = chrome.new_page()
    answer = page.goto(f"http://127.0.0.1:{served.port}/?token=wrong")
    assert answer is not None
    assert answer.status == 403
    expect(page.get_by_role("heading")).to_have_text("Not allowed")
    page.close()


def test_it_fits_a_narrow_window_and_both_themes(context: BrowserContext, served: Server) -> None:
    """At 400 pixels nothing but tables scrolls sideways; in dark the paper is dark and the audit still clean."""
    page, shown = opened(context, served, Address("delays", epoch=3))
    shown.at(3)
    page.set_viewport_size({"width": 400, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(paper) != light
    assert_accessible(page)


def test_a_saved_file_slides_plays_and_says_what_it_lacks(
    context: BrowserContext, stored: Path, tmp_path: Path
) -> None:
    """From a file, without a server or a kernel; a value that is a script is text."""
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
    expect(page.locator(".note")).to_contain_text("does not hold")
    shown.button("Follow live").click()
    expect(page.locator(".note")).to_contain_text("nothing new")
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


def test_as_a_widget_it_lives_where_panel_does_not(lab: Lab, stored: Path) -> None:
    """In a layout of ipywidgets, by itself in VS Code, and closed without a trace."""
    lab.server.write("widget.ipynb", WIDGET.format(path=str(stored)), VSCODE, "again.close()\n" + CLOSE)
    lab.open("widget.ipynb")
    lab.run_cell(0)
    shown = Shown(lab.page.locator(".streamstate-live").first)
    shown.at(3)
    shown.button("Next epoch").click()
    shown.at(5)
    lab.run_cell(1)
    Shown(lab.page.locator(".streamstate-live").nth(1)).at(2)
    lab.run_cell(2)
    output = lab.page.locator(".jp-CodeCell").nth(2).locator(".jp-OutputArea-output")
    expect(output).to_contain_text("0 threads, 0 comms")


PANEL = """import streamstate as ss, panel as pn
from streamstate.widgets import StateBrowser
pn.extension(inline=True)
history = ss.open_store({path!r})["delays"]
pn.Row(StateBrowser(history, epoch=3), StateBrowser(history, epoch=2))"""


def test_two_views_stand_in_a_layout_of_panel(lab: Lab, stored: Path) -> None:
    """Each with a line of its own."""
    lab.server.write("panel.ipynb", PANEL.format(path=str(stored)))
    lab.open("panel.ipynb")
    lab.run_cell(0)
    one, two = (Shown(lab.page.locator(".streamstate-live").nth(at)) for at in (0, 1))
    one.at(3)
    two.at(2)
    two.button("Previous epoch").click()
    two.at(1)
    one.at(3)
