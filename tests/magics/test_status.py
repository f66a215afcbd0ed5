"""``%stream status``: a table that is readable without colours and with a screen reader."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from streamstate.launch.query_status import QueryStatus, status_line, status_table
from streamstate.widgets.tables.summary_table import SummaryTable, TableCell


def status(state: str = "running", **facts: object) -> QueryStatus:
    """A query's status."""
    known: dict[str, object] = {"epoch": 1204, "behind": 0, "freshness": 0.42, "rate": 18234.6, "rows": 34}
    known |= {"capture": "running", "error": None, "name": "delays", **facts}
    return QueryStatus(state=state, **known)  # type: ignore[arg-type]


class Tags(HTMLParser):
    """The tags of an HTML text with their attributes, and its text content."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record a tag."""
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        """Record text."""
        self.text += data


@pytest.mark.parametrize(
    ("state", "sign"),
    [
        ("running", "●"),
        ("stopped", "■"),
        ("failed", "✕"),
        ("finished", "✓"),
        ("followed", "◌"),
    ],
)
def test_each_state_has_a_sign(state: str, sign: str) -> None:
    """The sign is displayed before the state's name, and is not part of the value."""
    table = status_table([status(state)])
    assert f"{sign} {state}" in repr(table)
    assert 'aria-hidden="true" style="color:var(--jp-' in table._repr_html_()
    assert table.to_pandas()["state"].tolist() == [state]


def test_the_text_is_aligned() -> None:
    """Numbers are right-aligned and have thousands separators. Unknown values are shown as a dash."""
    table = status_table([status(), status("failed", name="no", epoch=None, freshness=None, rate=None, rows=None)])
    assert repr(table).splitlines() == [
        "name    state      epoch  behind  freshness  rows/s  rows  last error",
        "delays  ● running  1,204       0      0.4 s  18,235    34  -",
        "no      ✕ failed       -       0          -       -     -  -",
    ]


def test_a_stall_is_shown() -> None:
    """The line has its cause; in the table, that is in the last column."""
    stall = "no epoch for 42 s, usually 1.3 s: task 3 of stage 12 runs 41 s, the others took 0.4 s"
    stalled = status(stall=stall)
    assert status_line(stalled) == f"delays is running ({stall}): captured up to epoch 1204, 34 rows of state"
    table = repr(status_table([stalled]))
    assert "● running (no epoch for 42 s, usually 1.3 s)  1,204" in table
    assert "task 3 of stage 12" in table
    assert status_line(status(stall=stall, error="no disk")).endswith(", last error: no disk")


def test_a_long_error_is_shortened() -> None:
    """The tooltip and ``to_pandas`` have the full text."""
    error = "StoreError: " + "x" * 200 + "\nsecond line <b>"
    table = status_table([status(error=error)])
    tags = Tags(table._repr_html_())
    assert [attributes["title"] for _, attributes in tags.tags if "title" in attributes] == [error]
    assert "second line" not in tags.text
    assert max(map(len, repr(table).splitlines())) < 160
    assert table.to_pandas()["last error"].tolist() == [error]


def test_values_are_escaped() -> None:
    """Names and errors cannot add tags."""
    html = status_table([status(name="<script>alert(1)</script>", error='"><img src=x onerror=y>')])._repr_html_()
    assert {tag for tag, _ in Tags(html).tags} <= {"table", "caption", "thead", "tbody", "tr", "th", "td", "span"}


def test_a_screen_reader_finds_rows_and_columns() -> None:
    """The table has a caption, and each heading has a scope."""
    tags = Tags(status_table([status()])._repr_html_()).tags
    assert [tag for tag, _ in tags].count("caption") == 1
    assert [attributes["scope"] for tag, attributes in tags if tag == "th"] == ["col"] * 8 + ["row"]


def test_the_display_does_not_change_the_value() -> None:
    """The text, tooltip and sign of a cell are for display only."""
    table = SummaryTable(["a"], [[TableCell(3, "three", title="3 of them", sign="!", colour="red")]])
    assert repr(table).splitlines()[1] == "! three"
    assert table.rows == [[3]]
    assert list(table) == [{"a": 3}]
