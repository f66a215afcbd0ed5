"""State browsers without a browser: views of a real store, and the forms that need no kernel."""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import streamstate as ss
from browser.stores import HOSTILE, State, Written
from streamstate.errors import UnknownEpochError, UnknownTableError
from streamstate.reports import History, Store
from streamstate.widgets import StateBrowser
from streamstate.widgets.model import SIZES
from streamstate.widgets.number_text import described, ranges
from streamstate.widgets.state_browser.actions import BrowserSelection, acted
from streamstate.widgets.state_browser.model import BrowserModel


@pytest.fixture(scope="module")
def opened_store(stored: Path) -> Store:
    """The store that the browser tests use."""
    return ss.open_store(stored)


@pytest.fixture
def delays(opened_store: Store) -> History:
    """A query with a gap at epoch 4."""
    return opened_store["delays"]


@pytest.mark.parametrize("epoch", [1, 2, 3, 5, 6])
def test_marks_and_counts_match_the_diff(delays: History, epoch: int) -> None:
    """Each row of each epoch is compared with the previous captured epoch; changed cells have their old value."""
    view = BrowserModel(delays).view(BrowserSelection(epoch=epoch, size=SIZES[-1]))
    before = 3 if epoch == 5 else epoch - 1
    diff = delays.diff(before, epoch)
    marks = [row.mark for row in view.page.rows]
    assert (marks.count("+"), marks.count("~")) == (len(diff.added), len(diff.changed))
    assert view.counts is not None
    assert (view.counts.since, view.counts.removed) == (before, len(diff.removed))
    flights = view.page.columns.index(next(column for column in view.page.columns if column.name == "flights"))
    old = [row.was[flights].text for row in view.page.rows if row.mark == "~"]
    assert old == [str(number) for number in diff.changed["flights_old"]]


def test_the_pages_of_changes_match_the_diff(delays: History) -> None:
    """Page by page, sorted and filtered, each changed key appears once."""
    diff = delays.diff(1, 2)
    seen = []
    for page in range(9):
        view = BrowserModel(delays).view(
            BrowserSelection(epoch=2, rows="changed", page=page, size=1, order_by="carrier")
        )
        seen += [row.cells[0].text for row in view.page.rows] if view.page.offset == page else []
    assert seen == sorted([*diff.added["carrier"], *diff.changed["carrier"], *diff.removed["carrier"]])
    found = BrowserModel(delays).view(BrowserSelection(epoch=2, rows="changed", column="carrier", text="c02"))
    assert [row.mark for row in found.page.rows] == ["−"]


def test_a_page_beyond_the_end_shows_the_last(delays: History) -> None:
    """A filter or another epoch can leave fewer pages than before."""
    view = BrowserModel(delays).view(BrowserSelection(epoch=0, page=99))
    assert (view.page.offset, len(view.page.rows)) == (20, view.total - 20)


def test_a_key_history_marks_what_each_change_changed(delays: History) -> None:
    """Newest first; the first change is an addition, a removal has no values, and after a gap nothing is marked."""
    history = BrowserModel(delays).view(BrowserSelection(key={"carrier": "C01", "origin": "LGA"})).history
    assert history is not None
    frame = delays.key_history("op0", carrier="C01", origin="LGA")
    assert [change.epoch for change in history.changes] == frame["epoch"].tolist()[::-1]
    assert (history.changes[-1].mark, history.changes[0].mark) == ("+", "−")
    assert [change.after_gap for change in history.changes[::-1]] == (frame["change"] == "keyframe").tolist()


def test_a_browser_message_has_one_page_of_rows(opened_store: Store) -> None:
    """A message stays small whatever the state holds: a bounded number of rows with bounded cells."""
    message = BrowserModel(opened_store["hostile"]).view(BrowserSelection(table="op0", size=SIZES[-1])).message()
    assert len(str(message)) < 20_000
    assert "keys" not in message["page"]


def test_unknown_browser_arguments_are_rejected(delays: History) -> None:
    """The error is raised before anything is shown, and lists the valid choices."""
    with pytest.raises(UnknownTableError, match="op0"):
        StateBrowser(delays, "op7")
    with pytest.raises(UnknownEpochError, match=r"3.*5"):
        StateBrowser(delays, epoch=4)


def test_the_browser_has_a_text_form(delays: History) -> None:
    """Outside a notebook there is a summary."""
    assert repr(StateBrowser(delays, epoch=2)).startswith(
        "delays: table op0 · epoch 2 (captured: 0–3, 5–6) · 27 rows · +1 ~4 −1 since epoch 1"
    )


def test_the_static_form_is_a_table_without_scripts(delays: History) -> None:
    """It does not need a kernel, and leaves nothing behind in this process."""
    data, metadata = StateBrowser(delays)._repr_mimebundle_()
    assert (set(data), metadata) == ({"text/plain", "text/html"}, {})
    assert "<script" not in data["text/html"]


class _Tags(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.found.append(tag)


def test_the_static_table_has_no_markup_from_the_state(opened_store: Store) -> None:
    """Names and values are escaped: only the view's own elements are present."""
    html = BrowserModel(opened_store["hostile"]).view(BrowserSelection(table="op0")).html()
    assert HOSTILE not in html
    assert set(_Tags(html).found) == {"style", "p", "strong", "table", "thead", "tbody", "tr", "th", "td"}


def test_a_state_browser_without_epochs_says_so(tmp_path: Path) -> None:
    """Every form says so, without an error."""
    Written(tmp_path, "young", {})
    browser = StateBrowser(ss.open_store(tmp_path)["young"])
    assert repr(browser) == "young: no epoch captured yet"
    assert "no epoch captured yet" in browser._repr_mimebundle_()[0]["text/html"]


def test_epochs_are_sent_as_runs() -> None:
    """Ten thousand epochs with gaps are sent and described as runs."""
    captured = [*range(5_000), *range(5_010, 10_000)]
    assert ranges(captured) == [[0, 4_999], [5_010, 9_999]]
    assert described(captured) == "0–4999, 5010–9999"
    assert described(list(range(0, 100, 2))) == "0, …, 98 (49 gaps)"


def test_another_table_starts_from_its_first_page() -> None:
    """Filter, order and open key belong to the old columns and are reset; the epoch is kept."""
    before = BrowserSelection("op0", epoch=3, page=2, order_by="k", column="k", text="x", key={"k": 1})
    assert acted(before, "table", "op1") == BrowserSelection("op1", epoch=3)


def test_an_unknown_action_changes_nothing() -> None:
    """Any message of a page is tolerated."""
    assert acted(BrowserSelection(), "drop", "everything") == BrowserSelection()
    assert acted(BrowserSelection(), "size", 10**9).size == SIZES[0]


def test_importing_is_quick() -> None:
    """Importing the package loads neither pandas, IPython, Panel nor pyspark."""
    code = "import sys, streamstate.widgets; print({'pandas', 'IPython', 'panel', 'pyspark'} & {*sys.modules})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_a_state_can_have_a_column_of_any_name(tmp_path: Path) -> None:
    """Names that the browser itself uses, or that look like the columns of a diff, are allowed."""
    import pyarrow as pa

    columns = {"mark": pa.int64(), "0": pa.int64(), "mark_old": pa.int64()}
    written = Written(tmp_path, "odd", {"op0": (columns, 1)})
    states: list[State] = [{(1,): (1, 1)}, {(1,): (2, 1), (2,): (0, 0)}]
    for state in states:
        written.add({"op0": state})
    reader = BrowserModel(ss.open_store(tmp_path)["odd"])
    assert [row.mark for row in reader.view(BrowserSelection()).page.rows] == ["~", "+"]
    assert [row.mark for row in reader.view(BrowserSelection(rows="changed", order_by="0")).page.rows] == ["+", "~"]


def test_slow_counts_follow_the_rows(delays: History) -> None:
    """The marked rows are drawn immediately; the complete drawing has the counts, which are then cached."""
    model = BrowserModel(delays)
    model._took = 1.0  # counting took a second the last time
    quick = model.quick(BrowserSelection(epoch=2))
    assert (quick.unfinished, quick.kept.counting, quick.kept.counts) == (True, True, None)
    whole = model.drawing(BrowserSelection(epoch=2))
    assert (whole.unfinished, whole.kept.page) == (False, quick.kept.page)
    assert model.quick(BrowserSelection(epoch=2)).kept.counts == whole.kept.counts
    assert not model.quick(BrowserSelection(epoch=0)).unfinished


@pytest.mark.parametrize("rows", ["all", "changed"])
def test_an_sql_condition_filters_rows(delays: History, rows: str) -> None:
    """It is combined with the text filter, and the count is that of the matching rows."""
    chosen = BrowserSelection(epoch=2, rows=rows, where="flights > 10", column="origin", text="ew", size=50)  # type: ignore[arg-type]
    view = BrowserModel(delays).view(chosen)
    found = [(row.cells[1].text, int(row.cells[2].text)) for row in view.page.rows]
    assert found
    assert view.page.matching == len(found)
    assert all(origin == "EWR" and flights > 10 for origin, flights in found)


@pytest.mark.parametrize("where", ["flights >", "nowhere = 1", "SELECT 1", "carrier::INT > 1", "1; DROP TABLE x"])
def test_an_invalid_condition_is_reported_and_ignored(delays: History, where: str) -> None:
    """The rows are those without it, with the reason."""
    model = BrowserModel(delays)
    view = model.view(BrowserSelection(epoch=2, where=where))
    assert view.problem
    assert view.page == model.view(BrowserSelection(epoch=2)).page


def test_wide_tables_show_a_window_of_columns(tmp_path: Path) -> None:
    """Key columns are always shown; others by window or by name. Marks consider all columns."""
    import pyarrow as pa

    names = [f"v{n:03}" for n in range(100)]
    written = Written(tmp_path, "wide", {"op0": ({"k": pa.int64(), **dict.fromkeys(names, pa.int64())}, 1)})
    written.add({"op0": {(1,): tuple(range(100))}})
    written.add({"op0": {(1,): (*range(99), 0)}})
    model = BrowserModel(ss.open_store(tmp_path)["wide"])
    first = model.view(BrowserSelection())
    assert [column.name for column in first.page.columns] == ["k", *names[:30]]
    assert [(row.mark, row.was) for row in first.page.rows] == [("~", {})]
    last = model.view(acted(BrowserSelection(), "columns", {"from": 500}))
    assert [column.name for column in last.page.columns] == ["k", *names[90:]]
    assert last.page.rows[0].was[10].text == "99"
    named = model.view(BrowserSelection(named="V04", from_column=90, key={"k": 1}))
    assert [column.name for column in named.page.columns] == ["k", *names[40:50]]
    assert named.history is not None
    assert (named.history.columns, named.history.changes[0].mark) == (names[40:50], "~")
    assert len(str(first.message())) < 20_000


def test_a_cell_shows_its_whole_value(opened_store: Store) -> None:
    """Cells are named by row and column; invalid ones are ignored; a removed key's cell has its old value."""
    model = BrowserModel(opened_store["hostile"])
    kept = model.drawing(BrowserSelection(table="op0")).kept
    row = next(at for at, key in enumerate(kept.page.keys) if key["key"] == HOSTILE)
    long = [column.name for column in kept.page.columns].index("long")
    chosen = model.acted(BrowserSelection(table="op0"), "cell", {"row": row, "column": long}, kept)
    value = model.view(chosen).value
    assert value is not None
    assert (value.column, value.text, value.size) == ("long", "x" * 5_000, 5_000)
    assert model.acted(chosen, "cell", {"row": 99, "column": 0}, kept).cell is None
    gone = model.view(BrowserSelection(table="op1_left", cell=({"k": 0}, "v")))
    assert gone.value is not None
    assert gone.value.text == "v0"
    assert model.view(BrowserSelection(table="op1_left", cell=({"k": -5}, "v"))).value is None


def test_marimo_shows_the_widget(delays: History) -> None:
    """Marimo asks a value how to display it, and supports anywidget."""
    view = StateBrowser(delays)
    assert view._display_() is view.widget()
    view.close()
