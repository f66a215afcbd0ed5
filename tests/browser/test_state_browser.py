"""The state browser in JupyterLab, as a user operates it."""

from __future__ import annotations

from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe  # it has no types
from playwright.sync_api import expect

import streamstate as ss
from browser.accessible import violations
from browser.conftest import Show
from browser.lab import Lab, wait_until
from browser.shown import Shown
from browser.stores import HOSTILE
from streamstate.reports import History
from streamstate.state_inspect.cell_text import cell
from streamstate.state_inspect.python_rows import records
from streamstate.widgets.state_browser.rows import WAYS

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def delays(stored: Path) -> History:
    """The history shown in the notebook, read by the test."""
    return ss.open_store(stored)["delays"]


def test_the_browser_opens_at_the_newest_epoch_and_follows(show: Show, delays: History) -> None:
    """It shows the first page of the newest epoch without any selection, and follows the query."""
    shown = show("delays")
    shown.at(6)
    shown.expect_rows(delays.live().table().head(10))
    expect(shown.button("Follow live")).to_have_attribute("aria-pressed", "true")


def test_the_slider_shows_exactly_the_state_of_its_epoch(show: Show, delays: History) -> None:
    """Each position is a captured epoch, without the gap; the rows equal those of ``history.at(epoch)``."""
    shown = show("delays")
    for position, epoch in enumerate([0, 1, 2, 3, 5, 6]):
        shown.go(position)
        shown.at(epoch)
        shown.expect_rows(delays.at(epoch).table().head(10))
    expect(shown.slider).to_have_attribute("aria-valuetext", "epoch 6, 6 of 6")


def test_the_buttons_step_through_epochs(show: Show) -> None:
    """First, next and last work; at the end, the next button is disabled."""
    shown = show("delays")
    shown.button("First epoch").click()
    shown.at(0)
    shown.button("Next epoch").click()
    shown.at(1)
    shown.button("Last epoch").click()
    shown.at(6)
    expect(shown.button("Next epoch")).to_be_disabled()


@pytest.mark.slow
def test_play_goes_through_all_epochs_and_stops_at_the_last(show: Show, delays: History) -> None:
    """Starting at the end, it begins again, shows every epoch, and can be played once more."""
    shown = show("delays")
    seen = shown.seen()
    shown.button("Play").click()
    wait_until(lambda: len(seen()) > 1 and seen()[-1] == "Epoch 6", "the last epoch")
    expect(shown.button("Play")).to_be_visible()
    assert seen() == [f"Epoch {epoch}" for epoch in delays.captured()]
    shown.expect_rows(delays.live().table().head(10))


def test_pages_are_read_one_at_a_time(show: Show, delays: History) -> None:
    """The next page shows the next rows, and only they are in the document."""
    shown = show("delays", epoch=3)
    table = delays.at(3).table()
    shown.button("Next page").click()
    shown.expect_rows(table.page(10, 10))
    expect(shown.pager).to_have_text(f"11–20 of {table.count()}")
    shown.view.get_by_label("Rows per page").select_option("25")
    shown.expect_rows(table.page(0, 25))


def test_a_click_on_a_heading_sorts_in_the_kernel(show: Show, delays: History) -> None:
    """The first click sorts ascending, the second descending, over the whole table and not only the current page."""
    shown = show("delays")
    heading = shown.grid.get_by_role("columnheader", name="flights")
    heading.get_by_role("button").click()
    expect(heading).to_have_attribute("aria-sort", "ascending")
    shown.expect_rows(delays.live().table().page(0, 10, order_by="flights"))
    heading.get_by_role("button").click()
    expect(heading).to_have_attribute("aria-sort", "descending")
    shown.expect_rows(delays.live().table().page(0, 10, order_by="flights", descending=True))


def test_a_filter_finds_rows_of_other_pages(show: Show, delays: History) -> None:
    """The whole table is searched, ignoring case, and the count is updated."""
    shown = show("delays")
    shown.view.get_by_label("Column to filter").select_option("origin")
    shown.view.get_by_label("Text to filter for").fill("jf")
    expected = delays.live().table().page(0, 10, contains={"origin": "jf"})
    expect(shown.pager).to_have_text(f"1–{len(expected)} of {len(expected)}")
    shown.expect_rows(expected)
    shown.view.get_by_label("Text to filter for").fill("nowhere")
    expect(shown.view.get_by_text("No row contains that text.")).to_be_visible()


def test_a_row_opens_its_key_history(show: Show, delays: History) -> None:
    """Changes are listed newest first; clicking an epoch goes to it; Enter works like a click."""
    shown = show("delays")
    key = {"carrier": "C01", "origin": "JFK"}
    row = shown.rows.filter(has_text="C01").filter(has_text="JFK")
    row.focus()
    shown.view.page.keyboard.press("Enter")
    expect(shown.history).to_contain_text("carrier C01, origin JFK")
    epochs = delays.key_history("op0", **key)["epoch"].tolist()[::-1]
    listed = shown.history.locator("tbody button")
    expect(listed).to_have_text([f"epoch {epoch}" for epoch in epochs])
    listed.last.click()
    shown.at(epochs[-1])
    shown.history.get_by_role("button", name="Close").click()
    expect(shown.history).to_be_hidden()


def test_a_row_is_copied_as_magic_sql_and_python(show: Show, stored: Path, delays: History) -> None:
    """With the keyboard or the mouse; what is copied is what is shown, and it reads the row of this epoch."""
    shown = show("delays", epoch=3)
    page = shown.view.page
    expected = records(delays.at(3).table().page_arrow(1, 1))
    shown.rows.nth(1).focus()
    page.keyboard.press("c")
    panel = shown.view.get_by_role("region", name="Copy what reads this row again")
    texts = {way: panel.get_by_role("group", name=f"As {way}").inner_text() for way in WAYS}
    assert records(ss.open_store(stored).sql(texts["SQL"]).to_arrow()) == expected
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    for way, text in texts.items():
        panel.get_by_role("button", name=f"Copy as {way}").click()
        expect(panel.get_by_text("Copied.").last).to_be_visible()
        assert page.evaluate("navigator.clipboard.readText()") == text
    page.context.clear_permissions()
    assert violations(shown.view) == []
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    expect(shown.rows.nth(1)).to_be_focused()
    shown.rows.nth(0).get_by_role("button", name="Copy as magic, SQL or Python").click()
    expect(panel.get_by_role("group", name="As SQL")).to_contain_text("VERSION AS OF 3")
    panel.get_by_role("button", name="Close").click()


def test_without_the_clipboard_a_text_can_be_selected(show: Show) -> None:
    """The page says so beside the text, which is there in any case."""
    shown = show("delays")
    page = shown.view.page
    page.context.grant_permissions([])  # denies every other one
    shown.rows.nth(0).get_by_role("button", name="Copy as magic, SQL or Python").click()
    panel = shown.view.get_by_role("region", name="Copy what reads this row again")
    panel.get_by_role("button", name="Copy as magic").click()
    expect(panel.get_by_text("Select the text and copy it")).to_be_visible()
    page.context.clear_permissions()
    expect(panel.get_by_role("group", name="As magic")).to_contain_text("%state delays.op0 key ")


def test_changed_rows_are_marked_and_counted(show: Show, delays: History) -> None:
    """Rows have + and ~ relative to the previous epoch, and the counts equal those of the diff."""
    shown = show("delays", epoch=2)
    diff = delays.diff(1, 2)
    counts = diff.counts
    assert shown.change_counts() == [f"+{counts['added']}", f"~{counts['changed']}", f"−{counts['removed']}"]
    shown.view.get_by_label("Rows per page").select_option("50")
    expect(shown.pager).to_contain_text("1–27")
    marks = shown.marks()
    assert (marks.count("+"), marks.count("~")) == (counts["added"], counts["changed"])


def test_only_changed_rows_can_be_shown(show: Show, delays: History) -> None:
    """Removed keys are included, and old values are shown beside new ones."""
    shown = show("delays", epoch=2)
    shown.button("Changes").click()
    diff = delays.diff(1, 2)
    expect(shown.rows).to_have_count(sum(diff.counts.values()))
    removed = shown.rows.filter(has_text="−")
    expect(removed).to_contain_text(["C02"])
    changed = shown.rows.filter(has_text="~").first
    expect(changed.locator("s").first).to_have_text(cell(diff.changed.iloc[0]["flights_old"]).text)


def test_after_a_gap_the_previous_epoch_is_the_one_before_it(show: Show) -> None:
    """Epoch 4 was never captured: epoch 5 is compared with epoch 3, and the view says so."""
    shown = show("delays", epoch=5)
    expect(shown.view.get_by_text("since epoch 3")).to_be_visible()


def test_script_in_the_state_is_shown_as_text(show: Show) -> None:
    """Names and values are untrusted; none of them becomes markup."""
    shown = show("hostile", table="op0")
    expect(shown.grid.get_by_role("columnheader", name=HOSTILE[:20])).to_be_visible()
    expect(shown.grid.get_by_text(cell(HOSTILE).text, exact=True).first).to_be_visible()
    shown.rows.filter(has_text="<img").first.locator(".text").first.click()
    expect(shown.history).to_contain_text("<img src=x")
    assert shown.view.page.evaluate("window.hacked") is None
    assert shown.view.locator("img, script").count() == 0


def test_the_state_table_can_be_selected(show: Show, stored: Path) -> None:
    """The other table has its own columns and rows, at the same epoch."""
    shown = show("hostile")
    shown.view.get_by_label("State table").select_option("op1_left")
    shown.expect_rows(ss.open_store(stored)["hostile"].live().table("op1_left").head(10))
    expect(shown.grid.get_by_role("columnheader", name="k key")).to_be_visible()


def test_every_control_has_a_name(show: Show) -> None:
    """Each control has a name for screen readers."""
    shown = show("hostile")
    unnamed = "nodes => nodes.filter(n => !(n.ariaLabel || n.textContent.trim())).map(n => n.outerHTML)"
    assert shown.view.locator("button, select, input").evaluate_all(unnamed) == []
    expect(shown.view.get_by_role("region", name="State of hostile")).to_be_visible()
    expect(shown.view.get_by_role("table", name="op0 at epoch 1")).to_be_visible()


def test_an_sql_condition_filters_rows_and_reports_errors(show: Show, delays: History) -> None:
    """Enter applies it; an error is shown beside the field, and the rows are shown unfiltered."""
    shown = show("delays", epoch=3)
    condition = shown.view.get_by_label("Condition in SQL")
    condition.fill("flights > 12 AND origin <> 'JFK'")
    condition.press("Enter")
    shown.expect_rows(delays.at(3).table().page(0, 10, where="flights > 12 AND origin <> 'JFK'"))
    condition.fill("weight > 1")
    condition.press("Enter")
    expect(shown.view.get_by_role("alert")).to_contain_text("weight")
    expect(condition).to_have_attribute("aria-invalid", "true")
    shown.expect_rows(delays.at(3).table().head(10))


def test_everything_can_be_done_with_the_keyboard(show: Show) -> None:
    """Slider, play, filter, row, key history and help all work with the keys that the help lists."""
    shown = show("delays")
    press = shown.view.page.keyboard.press
    shown.slider.focus()
    press("Home")
    shown.at(0)
    press("ArrowRight")
    shown.at(1)
    press("End")
    shown.at(6)
    press("Space")
    expect(shown.button("Pause")).to_be_visible()
    press("Space")
    expect(shown.button("Play")).to_be_visible()
    press("/")
    expect(shown.view.get_by_label("Text to filter for")).to_be_focused()
    press("?")
    expect(shown.view.get_by_label("Text to filter for")).to_have_value("?")
    shown.view.get_by_label("Text to filter for").fill("")
    shown.rows.first.focus()
    press("ArrowDown")
    expect(shown.rows.nth(1)).to_be_focused()
    press("Enter")
    expect(shown.history).to_be_visible()
    press("Escape")
    expect(shown.history).to_be_hidden()
    expect(shown.rows.nth(1)).to_be_focused()
    press("?")
    expect(shown.view.get_by_role("dialog", name="Keys")).to_be_visible()
    press("Escape")
    expect(shown.view.get_by_role("dialog", name="Keys")).to_be_hidden()


def test_a_long_value_can_be_read_and_copied(show: Show) -> None:
    """⋯ shows the whole value as text; Copy puts it on the clipboard; Escape closes it."""
    shown = show("hostile", table="op0")
    shown.view.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    shown.rows.filter(has_text="xxx").first.get_by_role("button", name="Whole value of long").click()
    value = shown.view.get_by_role("region", name="One whole value")
    expect(value).to_contain_text("5,000 characters")
    expect(value.locator("pre")).to_have_text("x" * 5_000)
    value.get_by_role("button", name="Copy").click()
    expect(value).to_contain_text("Copied.")
    assert shown.view.page.evaluate("navigator.clipboard.readText()") == "x" * 5_000
    shown.view.page.keyboard.press("Escape")
    expect(value).to_be_hidden()


def test_gaps_are_marked_beside_the_slider(show: Show) -> None:
    """A gap is drawn between its neighbouring positions, with a title and a text for screen readers."""
    shown = show("delays")
    gap = shown.view.locator(".strip i.gap")
    expect(gap).to_have_attribute("title", "Gap: epoch 4 could not be captured")
    assert gap.evaluate("node => parseFloat(node.style.left)") == pytest.approx(70)
    expect(shown.view.get_by_role("img", name="Beside the slider: Gap: epoch 4 could not be captured.")).to_be_visible()
    expect(shown.view.locator(".marks-legend")).to_have_text("gap 4")


CONTRAST = """node => {
    const light = (color) => {
        const [r, g, b] = color.match(/[\\d.]+/g).map(Number).map((c) => c / 255)
            .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const paper = light(getComputedStyle(node.closest(".browser")).backgroundColor);
    const [dim, bright] = [light(getComputedStyle(node).color), paper].sort((a, b) => a - b);
    return (bright + 0.05) / (dim + 0.05);
}"""


def audited(shown: Shown) -> list[str]:
    """The violations that axe-core finds in the view."""
    found = Axe().run(shown.view.page, context=".streamstate-live").response["violations"]
    return [f"{violation['id']}: {node['html']}" for violation in found for node in violation["nodes"]]


@pytest.mark.exhaustive
@pytest.mark.parametrize("theme", ["JupyterLab Dark", "JupyterLab Light"])
def test_the_browser_is_readable_in_dark_and_light_themes(show: Show, opened: Lab, theme: str) -> None:
    """It uses JupyterLab's colours, and its text contrast meets WCAG 2 (4.5 to 1)."""
    opened.theme(theme)
    shown = show("delays", epoch=2)
    for part in (".epoch", ".head .fact b", "tbody td .text", ".pager", ".head .faint"):
        assert shown.view.locator(part).first.evaluate(CONTRAST) > 4.5, part
    shown.rows.nth(2).click()
    expect(shown.history).to_be_visible()
    assert audited(shown) == []
    opened.page.evaluate("window.jupyterapp.shell.collapseLeft()")
    opened.page.set_viewport_size({"width": 400, "height": 1200})
    overflows = "node => node.scrollWidth > node.clientWidth"
    try:
        expect(shown.view.locator(".browser")).to_be_visible()
        assert audited(shown) == []
        assert not shown.view.locator(".browser").evaluate(overflows)
    finally:
        opened.page.evaluate("window.jupyterapp.shell.expandLeft()")
        opened.page.set_viewport_size({"width": 1280, "height": 1200})
