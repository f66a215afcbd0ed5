"""The timeline in JupyterLab, as a user operates it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from advice.stores import DEDUPLICATION, growing, stored
from playwright.sync_api import Locator, expect
from synthetic import write

import streamstate as ss
from browser.accessible import violations
from browser.epochs import entry, eventful, long, record
from browser.lab import Lab
from browser.shown import Shown
from browser.stores import START, flights
from streamstate.widgets.timeline.drawing import value_text
from streamstate.widgets.timeline.epochs import MEASURES, points
from streamstate.widgets.timeline.model import LIMIT

pytestmark = pytest.mark.browser

EDGES = """node => {
    const edges = (each) => { const box = each.getBoundingClientRect(); return [box.left, box.right]; };
    const plots = [...node.shadowRoot.querySelectorAll(".plot svg path.background")];
    return plots.map(edges).filter(([left, right]) => right > left);
}"""
"""The left and right edges of the plots, as Vega drew them."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``trips`` with a gap, a restart and a fork; ``long``; and ``delays``, which has state."""
    path = tmp_path_factory.mktemp("timeline") / "store"
    eventful(path)
    long(path)
    flights(path)
    return path


Show = Callable[..., Locator]


@pytest.fixture
def show(opened: Lab, path: Path) -> Iterator[Show]:
    """Shows a timeline, and optionally other views, in a notebook, and returns the timeline."""

    def shows(code: str, store: Path = path, plots: bool = True) -> Locator:
        head = "import streamstate as ss\nfrom streamstate.widgets import *\nfrom IPython.display import display\n"
        opened.set_source(0, f"{head}store = ss.open_store({str(store)!r})\n{code}")
        opened.run_all()
        view = opened.page.locator(".streamstate-live").filter(has=opened.page.locator(".timeline")).last
        expect(view.locator(".plot svg").last if plots else view).to_be_visible()
        return view

    yield shows
    opened.watched.assert_quiet()


def x_of(view: Locator, epoch: float, span: Sequence[int]) -> tuple[float, float]:
    """The page position of an epoch in the first plot; ``span`` is the first and last epoch shown."""
    box = view.locator(".surface").bounding_box()
    assert box is not None
    share = (epoch - span[0] + 0.5) / (span[1] - span[0] + 1)
    return box["x"] + share * box["width"], box["y"] + 40


def drag(view: Locator, start: int, end: int, span: Sequence[int]) -> None:
    """Drag from one epoch to another."""
    view.scroll_into_view_if_needed()
    mouse = view.page.mouse
    mouse.move(*x_of(view, start, span))
    mouse.down()
    mouse.move(*x_of(view, (start + end) / 2, span))
    mouse.move(*x_of(view, end, span))
    mouse.up()


def values(view: Locator) -> list[str]:
    """The values shown beside the plot titles."""
    return view.locator(".measure .value").all_inner_texts()


@pytest.mark.exhaustive
def test_plots_share_one_x_axis(show: Show) -> None:
    """There is one plot per measure, and all start and end at the same pixel, as does the pointer area."""
    view = show("Timeline(store['trips'])")
    expect(view.locator("figure")).to_have_count(len(MEASURES))
    box = view.locator(".surface").bounding_box()
    assert box is not None
    edges = [box["x"], box["x"] + box["width"]]
    assert all(edge == pytest.approx(edges, abs=1.5) for edge in view.evaluate(EDGES))
    hatched = view.locator(".hatches i").first.bounding_box()
    assert hatched is not None
    assert hatched["x"] == pytest.approx(x_of(view, 19.5, (0, 59))[0], abs=1.5)
    assert hatched["x"] + hatched["width"] == pytest.approx(x_of(view, 22.5, (0, 59))[0], abs=1.5)
    expect(view.locator(".sign")).to_have_text(["gap", "restart", "fork"])
    assert violations(view) == []


@pytest.mark.slow
def test_a_label_near_the_end_moves_no_plot(show: Show, tmp_path: Path) -> None:
    """Epoch 500 of 502 has its label at the very end of the axis: the last plot still ends where the others do."""
    record(tmp_path, "q", [entry(n) for n in range(503)])
    edges = show("Timeline(store['q'], window=None)", tmp_path).evaluate(EDGES)
    assert edges == [edges[0]] * len(MEASURES)


def test_hovering_an_epoch_shows_its_values(show: Show, path: Path) -> None:
    """Values are formatted as in the table; a gap is named as such; elsewhere the newest epoch is shown."""
    view = show("Timeline(store['trips'])")
    single = points(ss.open_store(path)["trips"].recorded.entries())
    view.scroll_into_view_if_needed()
    for epoch in (0, 12, 59):
        view.page.mouse.move(*x_of(view, epoch, (0, 59)))
        expect(view.locator(".pointed")).to_contain_text(f"epoch {epoch}committed")
        assert values(view) == [value_text(measure, single[epoch].values) for measure in MEASURES]
    view.page.mouse.move(*x_of(view, 21, (0, 59)))
    expect(view.locator(".pointed")).to_contain_text("a gap")
    assert values(view) == ["–"] * len(MEASURES)
    view.page.mouse.move(0, 0)
    expect(view.locator(".pointed strong")).to_have_text("epoch 59")


@pytest.mark.slow
def test_linked_views_follow_the_timeline(show: Show, path: Path) -> None:
    """Dragging, clicking and typing in the timeline move the browser, and the browser moves the timeline."""
    view = show("a, b = Timeline(store['delays']), StateBrowser(store['delays'])\nlink(a, b)\ndisplay(a, b)")
    shown = Shown(view.page.locator(".streamstate-live").last)
    shown.at(6)
    chosen, span = view.locator(".chosen"), (0, 6)
    drag(view, 1, 5, span)
    expect(chosen).to_have_text("epochs 1–5 selected")
    shown.at(5)
    shown.expect_rows(ss.open_store(path)["delays"].at(5).table().head(10))
    view.page.mouse.click(*x_of(view, 2, span))
    expect(chosen).to_have_text("epoch 2 selected")
    shown.at(2)
    view.page.mouse.click(*x_of(view, 4, span))  # a gap: selects the nearest captured epoch
    expect(chosen).to_have_text("epoch 3 selected")
    shown.at(3)
    shown.button("Next epoch").click()
    expect(chosen).to_have_text("epoch 5 selected")
    view.get_by_label("From epoch").fill("0")
    view.page.keyboard.press("Enter")
    expect(chosen).to_have_text("epochs 0–5 selected")
    view.get_by_label("To epoch").fill("3")
    view.page.keyboard.press("Tab")
    expect(chosen).to_have_text("epochs 0–3 selected")
    shown.at(3)
    shown.button("Follow live").click()
    expect(chosen).to_have_text("no epoch selected")
    expect(view.get_by_label("To epoch")).to_have_value("")


@pytest.mark.slow
def test_many_epochs_are_shown_in_bins_and_windows(show: Show) -> None:
    """The number of points is bounded; titles say what a point aggregates; the table has every epoch."""
    view = show("Timeline(store['long'])")
    titles = view.locator(".measure .title span:first-child")
    expect(titles.first).to_have_text("Input rows")
    expect(view.get_by_role("button", name="Last 500")).to_have_attribute("aria-pressed", "true")
    view.get_by_role("button", name="All").click()
    expect(titles.first).to_have_text("Input rowssum of 5")
    expect(view.locator(".caption")).to_contain_text("up to 5 epochs")
    assert view.locator(".plot").first.locator(".mark-rect path").count() <= LIMIT + 1
    drag(view, 100, 999, (0, 2_344))
    expect(view.locator(".chosen")).to_contain_text("selected")
    view.get_by_role("button", name="Show as table").click()
    rows = view.get_by_role("table", name="Epochs").locator("tbody tr")
    expect(rows).to_have_count(20)
    view.get_by_role("button", name="Older").click()
    expect(rows.first.locator("th")).to_have_text("2324")
    assert violations(view) == []


def test_a_new_epoch_appears_in_the_existing_plots(show: Show, tmp_path: Path) -> None:
    """Only the data of the plots changes."""
    record(tmp_path, "q", [replace(entry(n), watermark=START - timedelta(days=6)) for n in range(9)])
    view = show("Timeline(store['q'])", tmp_path)
    edges = view.evaluate(EDGES)
    assert edges == [edges[0]] * len(MEASURES)  # regardless of label widths
    expect(view.locator(".pointed strong")).to_have_text("epoch 8")
    view.locator(".plot svg").first.evaluate("node => { node.known = true; }")
    record(tmp_path, "q", [entry(9), entry(10, run="d" * 36)])
    expect(view.locator(".pointed strong")).to_have_text("epoch 10")
    expect(view.locator(".sign")).to_have_text(["restart"])
    expect(view.locator(".plot").last).to_contain_text("10")
    assert view.locator(".plot svg").first.evaluate("node => node.known")
    assert view.evaluate(EDGES) == edges


def test_a_timeline_without_epochs_shows_a_notice_until_the_first(show: Show, tmp_path: Path) -> None:
    """The first captured epoch replaces the notice."""
    record(tmp_path, "young", [])
    view = show("Timeline(store['young'])", tmp_path, plots=False)
    expect(view.get_by_text("No epoch has been captured yet. The first one will appear here.")).to_be_visible()
    expect(view.locator(".stack")).to_be_hidden()
    record(tmp_path, "young", [entry(0)])
    expect(view.locator(".pointed strong")).to_have_text("epoch 0")
    expect(view.locator(".plot svg")).to_have_count(len(MEASURES))


def test_state_rows_are_counted_on_request(show: Show, tmp_path: Path) -> None:
    """A button counts them if that takes long, and disappears when there is nothing left to count."""
    write(tmp_path, [{"a": 1}, {"a": 1, "b": 2, "c": 3}])
    limit = "streamstate.state_inspect.captured_query._SOON_READ"
    view = show(f"from unittest import mock\nmock.patch({limit!r}, 0).start()\nTimeline(store['q'])", tmp_path)
    rows = view.locator(".measure", has_text="State rows").locator(".value")
    expect(rows).to_have_text("–")
    button = view.get_by_role("button", name="Count state rows")
    button.click()
    expect(rows).to_have_text("3")
    expect(button).to_be_hidden()
    expect(view.get_by_role("button", name="Show as table")).to_be_focused()
    assert violations(view) == []
    again = show("mock.patch.stopall()\nTimeline(store['q'])", tmp_path)
    expect(again.locator(".measure", has_text="State rows").locator(".value")).to_have_text("3")


@pytest.mark.exhaustive
def test_the_timeline_fits_a_narrow_window_and_a_dark_theme(show: Show, opened: Lab) -> None:
    """At 400 pixels nothing is cut off, and the plots fill the width; the text is readable in the dark theme."""
    view = show("Timeline(store['trips'])")
    view.evaluate("node => { node.style.width = '400px'; }")
    expect(view.locator(".plot svg").first).to_have_attribute("width", "370")
    frame = view.locator(".timeline")
    assert frame.evaluate("node => node.scrollWidth <= node.clientWidth")
    assert all(right <= 400 + view.bounding_box()["x"] for _, right in view.evaluate(EDGES))  # type: ignore[index]
    opened.theme("JupyterLab Dark")
    assert violations(view) == []
    opened.theme("JupyterLab Light")


def test_advice_is_listed_above_the_plots(show: Show, tmp_path: Path) -> None:
    """Each sentence with what shows it; a query without any has no list."""
    history = stored(tmp_path / "kept", growing(8), DEDUPLICATION)
    [advice] = history.advise()
    timeline = show("Timeline(store['q'])", tmp_path / "kept")
    shown = timeline.get_by_role("list", name="Advice")
    expect(shown.get_by_role("listitem")).to_have_text([f"{advice.text} {advice.evidence}"])
    listed, first = shown.bounding_box(), timeline.locator(".plot").first.bounding_box()
    assert listed is not None
    assert first is not None
    assert listed["y"] + listed["height"] <= first["y"]
    assert violations(timeline) == []
    expect(show("Timeline(store['long'])").get_by_role("list", name="Advice")).to_be_hidden()
