"""``%stream status``: a table to glance at, for eyes that see colours, eyes that do not, and ears."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from streamstate.magics.running import QueryStatus
from streamstate.magics.status import status_rows
from streamstate.magics.table import Shown, Table


def status(state: str = "running", **facts: object) -> QueryStatus:
    """A query's status."""
    known: dict[str, object] = {"epoch": 1204, "behind": 0, "freshness": 0.42, "rate": 18234.6, "rows": 34}
    known |= {"capture": "running", "error": None, "name": "delays", **facts}
    return QueryStatus(state=state, **known)  # type: ignore[arg-type]


class Tags(HTMLParser):
    """The tags of a page with their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep it."""
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        """Keep it."""
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
    """Beside its colour and its word; the value is the word alone."""
    table = status_rows([status(state)])
    assert f"{sign} {state}" in repr(table)
    assert 'aria-hidden="true" style="color:var(--jp-' in table._repr_html_()
    assert table.to_pandas()["state"].tolist() == [state]


def test_the_text_is_aligned() -> None:
    """Numbers to the right, with thousands separators; what is not known is a dash."""
    table = status_rows([status(), status("failed", name="no", epoch=None, freshness=None, rate=None, rows=None)])
    assert repr(table).splitlines() == [
        "name    state      epoch  behind  freshness  rows/s  rows  last error",
        "delays  ● running  1,204       0      0.4 s  18,235    34  -",
        "no      ✕ failed       -       0          -       -     -  -",
    ]


def test_a_long_error_is_shortened_and_whole_in_its_title() -> None:
    """Nothing is lost: a pointer shows it, ``to_pandas`` gives it."""
    error = "StoreError: " + "x" * 200 + "\nsecond line <b>"
    table = status_rows([status(error=error)])
    tags = Tags(table._repr_html_())
    assert [one["title"] for _, one in tags.tags if "title" in one] == [error]
    assert "second line" not in tags.text
    assert max(map(len, repr(table).splitlines())) < 160
    assert table.to_pandas()["last error"].tolist() == [error]


def test_values_are_text_whatever_they_hold() -> None:
    """Names and errors come from elsewhere."""
    html = status_rows([status(name="<script>alert(1)</script>", error='"><img src=x onerror=y>')])._repr_html_()
    assert {tag for tag, _ in Tags(html).tags} <= {"table", "caption", "thead", "tbody", "tr", "th", "td", "span"}


def test_a_screen_reader_is_told_rows_and_columns() -> None:
    """A caption, and a scope for each heading."""
    tags = Tags(status_rows([status()])._repr_html_()).tags
    assert [tag for tag, _ in tags].count("caption") == 1
    assert [one["scope"] for tag, one in tags if tag == "th"] == ["col"] * 8 + ["row"]


def test_how_a_value_is_shown_is_not_what_it_is() -> None:
    """Text, title and sign are for people."""
    table = Table(["a"], [[Shown(3, "three", title="3 of them", sign="!", colour="red")]])
    assert repr(table).splitlines()[1] == "! three"
    assert table.rows == [[3]]
    assert list(table) == [{"a": 3}]
