"""The documentation in a real browser, opened as files: nothing is fetched from other hosts, and search works."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from docs_site import built
from playwright.sync_api import Browser, Page, expect
from sampling import sampled

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site."""
    return built(tmp_path_factory)


class OpenedSite:
    """A page with its requests and console messages."""

    def __init__(self, page: Page, site: Path) -> None:
        self.page, self._site = page, site
        self.requests: list[str] = []
        self.messages: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.messages.append(message.text))
        page.on("pageerror", lambda error: self.messages.append(str(error)))

    def go(self, address: str) -> None:
        """Open a page of the site."""
        self.page.goto(f"{self._site.as_uri()}/{address}")

    @property
    def external_requests(self) -> list[str]:
        """Requests for anything but files of the site."""
        return [url for url in self.requests if not url.startswith((self._site.as_uri(), "data:"))]


@pytest.fixture(params=["light", pytest.param("dark", marks=pytest.mark.exhaustive)])
def opened(chrome: Browser, site: Path, request: pytest.FixtureRequest) -> Iterator[OpenedSite]:
    """A page in one of the two themes."""
    context = chrome.new_context(color_scheme=request.param)
    yield OpenedSite(context.new_page(), site)
    context.close()


PAGES = [
    "index.html",
    "start/quickstart.html",
    "reference/magics/state-line.html",
    "reference/api/history.html",
    "explanation/performance.html",
    "reference/glossary.html",
    "tutorials/00_quickstart.html",
    "contributing/index.html",
]


@pytest.mark.parametrize("address", sampled(PAGES, 4))
def test_a_page_loads_nothing_from_other_hosts_and_logs_nothing(opened: OpenedSite, address: str) -> None:
    """All requests are for files of the site, and the console stays empty."""
    opened.go(address)
    expect(opened.page.locator("h1").first).to_be_visible()
    assert opened.external_requests == []
    assert opened.messages == []


@pytest.mark.parametrize("address", sampled(PAGES, 2))
def test_a_page_fits_a_narrow_window(opened: OpenedSite, address: str) -> None:
    """At a phone's width no page scrolls sideways; wide elements scroll on their own."""
    opened.page.set_viewport_size({"width": 360, "height": 700})
    opened.go(address)
    assert opened.page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0


@pytest.mark.parametrize("opened", ["light", "dark"], indirect=True)
@pytest.mark.parametrize("address", sampled(PAGES, 2))
def test_a_page_can_be_read_with_a_keyboard_and_a_screen_reader(opened: OpenedSite, address: str) -> None:
    """The audit finds no serious violation in names, contrast, scrollable regions or heading order."""
    opened.go(address)
    expect(opened.page.locator("h1").first).to_be_visible()
    audit = import_module("axe_playwright_python.sync_playwright").Axe()  # it has no types
    found = audit.run(opened.page).response["violations"]
    assert [(rule["id"], rule["nodes"][0]["html"]) for rule in found if rule["impact"] in ("serious", "critical")] == []


def test_the_search_works_without_a_server(opened: OpenedSite) -> None:
    """A word finds the pages that contain it, and an API name finds its entry."""
    opened.go("index.html")
    box = opened.page.get_by_placeholder("Search")
    box.fill("watermark_lag")
    box.press("Enter")
    found = opened.page.get_by_role("link", name=re.compile(r"\bHistory\.watermark_lag"))
    expect(found).to_be_visible()
    found.click()
    expect(opened.page.locator("h1")).to_contain_text("History")
    assert opened.external_requests == []
    assert opened.messages == []


@pytest.mark.parametrize(
    ("words", "title"),
    [
        ("late rows vanish", "Symptoms"),
        ("install on a cluster", "Install"),
        ("state grows", "Symptoms"),
        ("number doubled", "Symptoms"),
        ("cannot restart", "Symptoms"),
        ("unknown key", "Symptoms"),
        ("capture is slow", "Symptoms"),
    ],
)
def test_a_symptom_finds_what_to_do_about_it(chrome: Browser, site: Path, words: str, title: str) -> None:
    """The first page that the search lists, before the tutorials and what is for contributors."""
    context = chrome.new_context()
    opened = OpenedSite(context.new_page(), site)
    opened.go(f"search.html?q={words.replace(' ', '+')}")
    expect(opened.page.locator("#search-results ul.search a").first).to_have_text(re.compile(f"^{title}"))
    assert opened.messages == []
    context.close()


@pytest.mark.parametrize("opened", ["light", "dark"], indirect=True)
def test_the_screenshots_match_the_theme(opened: OpenedSite) -> None:
    """Exactly one of the two of each picture is visible, and it loads."""
    opened.go("start/quickstart.html")
    images = opened.page.locator("img.screenshot").all()
    shown = [image for image in images if image.is_visible()]
    assert 2 * len(shown) == len(images) > 0
    dark = [(image.get_attribute("src") or "").endswith("-dark.png") for image in shown]
    assert len(set(dark)) == 1
    assert all(image.evaluate("image => image.complete && image.naturalWidth > 0") for image in shown)
