"""One JupyterLab and one Chromium for all browser tests, and a new page for each test that needs one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, expect, sync_playwright
from playwright.sync_api import Error as PlaywrightError

from browser.lab import FLAGS, Lab, Server, Watched, chromium, serving
from browser.shown import Shown
from browser.stores import flights, hostile

expect.set_options(timeout=60_000)  # generous, for busy machines

REQUIRED = os.environ.get("STREAMSTATE_REQUIRE_BROWSER") == "1" or os.environ.get("CI") == "true"


@pytest.fixture(scope="session")
def chrome() -> Iterator[Browser]:
    """A headless Chromium; if it cannot start, the test is skipped, or fails if a browser is required."""
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        except PlaywrightError as error:
            reason = f"no Chromium can be started: {str(error).splitlines()[0]}"
            pytest.fail(reason) if REQUIRED else pytest.skip(reason)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A JupyterLab with default settings on a free port."""
    with serving(tmp_path_factory.mktemp("lab")) as server:
        yield server


@pytest.fixture(scope="session")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with ``delays``, which has a gap and several pages of rows, and ``hostile``."""
    path = tmp_path_factory.mktemp("stored") / "store"
    flights(path)
    hostile(path)
    return path


def watching(chrome: Browser) -> tuple[BrowserContext, Watched]:
    """A new browser context whose console messages, errors and requests are recorded."""
    context = chrome.new_context(viewport={"width": 1280, "height": 1200})
    context.set_default_timeout(60_000)
    watched = Watched()
    watched.watch(context)
    return context, watched


@pytest.fixture(scope="module")
def module_lab(chrome: Browser, server: Server) -> Iterator[Lab]:
    """A JupyterLab page shared by the tests of a module, because opening one takes seconds."""
    context, watched = watching(chrome)
    yield Lab(server, context.new_page(), watched)
    context.close()
    server.end_kernels()


@pytest.fixture
def lab(chrome: Browser, server: Server) -> Iterator[Lab]:
    """A JupyterLab page; checks that the console stays empty and that no request leaves this machine."""
    context, watched = watching(chrome)
    yield Lab(server, context.new_page(), watched)
    context.close()
    server.end_kernels()
    watched.assert_quiet()


Show = Callable[..., Shown]


@pytest.fixture(scope="module")
def opened(module_lab: Lab) -> Lab:
    """The shared page with a notebook open in it that has not run anything yet."""
    module_lab.server.write("shared.ipynb", "")
    module_lab.open("shared.ipynb")
    return module_lab


@pytest.fixture
def show(opened: Lab, stored: Path) -> Iterator[Show]:
    """Shows a query of ``stored`` in a notebook: ``show("delays", epoch=2)`` returns the browser on the page."""

    def shows(query: str, **arguments: object) -> Shown:
        keywords = "".join(f", {name}={value!r}" for name, value in arguments.items())
        code = "import streamstate as ss\nfrom streamstate.widgets import StateBrowser\n"
        code += f"browser = StateBrowser(ss.open_store({str(stored)!r})[{query!r}]{keywords})\nbrowser"
        opened.set_source(0, code)
        opened.run_all()
        shown = Shown(opened.page.locator(".streamstate-live").last)
        shown.wait()
        return shown

    yield shows
    opened.watched.assert_quiet()
