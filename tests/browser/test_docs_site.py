"""The documentation in a real browser, opened as files: nothing is fetched from elsewhere, and the search works."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from docs_site import build
from playwright.sync_api import Browser, Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built from nothing."""
    folder = tmp_path_factory.mktemp("docs")
    done = build(folder)
    assert done.returncode == 0, done.stderr
    return folder / "site"


class Opened:
    """A page, and all that it asked for or complained about."""

    def __init__(self, page: Page, site: Path) -> None:
        self.page, self._site = page, site
        self.asked: list[str] = []
        self.said: list[str] = []
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))

    def go(self, address: str) -> None:
        """Open a page of the site."""
        self.page.goto(f"{self._site.as_uri()}/{address}")

    @property
    def elsewhere(self) -> list[str]:
        """What was asked for that is no file of the site."""
        return [url for url in self.asked if not url.startswith((self._site.as_uri(), "data:"))]


@pytest.fixture(params=["light", "dark"])
def opened(chrome: Browser, site: Path, request: pytest.FixtureRequest) -> Iterator[Opened]:
    """A page in one of the two themes."""
    context = chrome.new_context(color_scheme=request.param)
    yield Opened(context.new_page(), site)
    context.close()


PAGES = [
    "index.html",
    "start/quickstart.html",
    "reference/magics/state-line.html",
    "reference/api/history.html",
    "guides/cost.html",
]


@pytest.mark.parametrize("address", PAGES)
def test_a_page_asks_for_nothing_from_elsewhere_and_says_nothing(opened: Opened, address: str) -> None:
    """No request leaves the folder, and the console stays empty."""
    opened.go(address)
    expect(opened.page.locator("h1").first).to_be_visible()
    assert opened.elsewhere == []
    assert opened.said == []


@pytest.mark.parametrize("address", PAGES)
def test_a_narrow_window_is_wide_enough(opened: Opened, address: str) -> None:
    """On a telephone's width no page has to be pushed sideways; what is wide scrolls by itself."""
    opened.page.set_viewport_size({"width": 360, "height": 700})
    opened.go(address)
    assert opened.page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0


@pytest.mark.parametrize("address", PAGES)
def test_a_page_can_be_read_with_a_keyboard_and_a_screen_reader(opened: Opened, address: str) -> None:
    """The audit finds nothing serious: names, contrast, what scrolls, the order of headings."""
    opened.go(address)
    expect(opened.page.locator("h1").first).to_be_visible()
    audit = import_module("axe_playwright_python.sync_playwright").Axe()  # it has no types
    found = audit.run(opened.page).response["violations"]
    assert [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")] == []


def test_the_search_works_without_a_server(opened: Opened) -> None:
    """A word leads to the pages that have it, and a name of the API to its entry."""
    opened.go("index.html")
    box = opened.page.get_by_placeholder("Search")
    box.fill("watermark_lag")
    box.press("Enter")
    found = opened.page.get_by_role("link", name="streamstate.History.watermark_lag")
    expect(found).to_be_visible()
    found.click()
    expect(opened.page.locator("h1")).to_contain_text("History")
    assert opened.elsewhere == []
    assert opened.said == []


def test_the_picture_is_that_of_the_theme(opened: Opened) -> None:
    """One of the two screenshots is shown, and it is there."""
    opened.go("start/quickstart.html")
    shown = [one for one in opened.page.locator("img.screenshot").all() if one.is_visible()]
    assert len(shown) == 1
    assert shown[0].evaluate("image => image.complete && image.naturalWidth > 0")
