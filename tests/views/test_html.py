"""Every element that the product shows is made by one helper, which escapes what it is given."""

from __future__ import annotations

import re

import pytest

from scripts.typecheck import folders
from streamstate.operations.report_html import cell, report
from streamstate.snapshots.calls.html import Html, head, joined, listed, paragraphs, table, tag, td
from streamstate.state_inspect.cell_text import Cell
from streamstate.widgets import still
from streamstate.widgets.tables.summary_table import SummaryTable, TableCell

HOSTILE = "<script>\"'&"
ESCAPED = "&lt;script&gt;&quot;&#x27;&amp;"
PAGES = {"widgets/export/document.py", "widgets/page/guard.py"}
"""Whole pages are templates."""


@pytest.mark.parametrize(
    "html",
    [
        tag("p", HOSTILE),
        tag("p", title=HOSTILE),
        tag("p", [HOSTILE, [HOSTILE]]),
        joined(HOSTILE),
        paragraphs([HOSTILE]),
        listed(HOSTILE, [HOSTILE]),
        table([HOSTILE], [[td(HOSTILE)]], caption=HOSTILE),
        head(HOSTILE),
        report(tag("p", HOSTILE)),
        cell(HOSTILE),
        cell(Cell(HOSTILE, whole=HOSTILE)),
        still.place(HOSTILE),
        still.frame(HOSTILE, [HOSTILE], HOSTILE, note=HOSTILE),
        still.table(HOSTILE, [HOSTILE], [[HOSTILE, Cell(HOSTILE)]], ["+"]),
        SummaryTable([HOSTILE], [[TableCell(HOSTILE, title=HOSTILE, sign=HOSTILE)]], caption=HOSTILE)._repr_html_(),
        SummaryTable([], [], empty=HOSTILE)._repr_html_(),
    ],
)
def test_texts_are_escaped(html: str) -> None:
    """This is so in content and in attributes, at any depth."""
    assert ESCAPED in html
    assert "<script" not in html


def test_html_is_kept_and_what_is_built_from_it_by_hand_is_escaped() -> None:
    """A forgotten helper shows as visible markup, not as an injected element."""
    bold = tag("b", "1 < 2")
    assert tag("p", bold) == "<p><b>1 &lt; 2</b></p>"
    assert tag("p", f"{bold}") == "<p>&lt;b&gt;1 &amp;lt; 2&lt;/b&gt;</p>"
    assert isinstance(joined(bold), Html)


def test_attributes_without_a_value_are_left_out() -> None:
    """Zero is a value."""
    assert tag("div", tabindex=0, title=None, class_="") == '<div tabindex="0"></div>'


def test_no_other_module_writes_elements() -> None:
    """Whole pages are templates. Tests, scripts and examples may write what they expect."""
    root = folders()["streamstate"].parent
    element = re.compile(r"""["'][^"'\n]*<(p|b|td|th|tr|ul|li|table|div|span|svg|strong|small|figure|text)[ >][^-]""")
    written = [
        f"{path.relative_to(root)}: {line.strip()}"
        for folder in folders().values()
        for path in sorted(folder.glob("*.py"))
        if path.relative_to(root).as_posix() not in PAGES
        for line in path.read_text(encoding="utf-8").splitlines()
        if element.search(line) and "(?P<" not in line
    ]
    assert [line for line in written if not line.startswith("snapshots/calls/html.py")] == []
