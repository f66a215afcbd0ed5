"""The still form that all views share: HTML without scripts, for a saved notebook and for exported HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from streamstate.snapshots.calls import html
from streamstate.snapshots.calls.html import Content, Html, head, joined, paragraphs, tag
from streamstate.state_inspect.cell_text import Cell
from streamstate.widgets.front import resource

if TYPE_CHECKING:
    from streamstate.widgets.chart import Chart

MARKS = {"added": "+", "changed": "~", "removed": "−"}
"""The mark of a table row, by what happened to it."""
STILL_COLUMNS = 20
"""Value columns in a saved notebook; the live view shows all."""
_ROW_CLASSES = {mark: change for change, mark in MARKS.items()} | {"": "same"}


def place(name: str, *content: Html) -> Html:
    """Return the element of a still form, which scrolls sideways, by keyboard too."""
    scrolled = tag("div", *content, class_="streamstate-static", tabindex=0, role="group", aria_label=name)
    return tag("div", scrolled, class_="streamstate")


def frame(name: str, parts: Iterable[str], *body: Content, note: str = "") -> Html:
    """Return a view in its frame: a head with its name and parts, the body, and a note below it."""
    facts = "".join(f" · {part}" for part in parts)
    foot = tag("p", tag("small", note)) if note else None
    return joined(tag("style", Html(resource("static.css"))), tag("p", tag("strong", name), facts), *body, foot)


def sentences_and_figures(sentences: Iterable[str], charts: Iterable[Chart]) -> Html:
    """Return paragraphs, and below them plots as still pictures."""
    return joined(paragraphs(sentences), [figure(chart, 560) for chart in charts])


def table(
    label: str, heads: Sequence[str], rows: Iterable[Sequence[Cell | str]], marks: Sequence[str] | None = None
) -> Html:
    """Return a table of cells; ``marks`` of the rows, empty for none, get a column of their own."""
    cells: Iterable[Content] = ([td(content) for content in row] for row in rows)
    if marks is None:
        return html.table(heads, cells, aria_label=label)
    marked = (tag("tr", html.td(mark), row, class_=_ROW_CLASSES[mark]) for mark, row in zip(marks, cells, strict=True))
    return html.table([head("±", title="added, changed, removed"), *heads], marked, aria_label=label)


def td(content: Cell | str, *, changed: bool = False) -> Html:
    """Return a table cell, marked where its value changed: a text, a value of the state, or a cell as it is."""
    if isinstance(content, Cell):
        return html.td(content.text, f"{content.kind} was" if changed else content.kind)
    return content if isinstance(content, Html) else html.td(content)


def figure(chart: Chart, width: int = 640) -> Html:
    """Return a plot as a still picture with its caption."""
    return tag("figure", tag("figcaption", chart.label), chart.svg(width))
