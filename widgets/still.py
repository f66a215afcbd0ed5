"""The still form that all views share: HTML without scripts, for a saved notebook and for exported HTML.

Every text is escaped here, except the parts that are already HTML: the body, and cells made by :func:`td`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from streamstate.widgets.front import resource

if TYPE_CHECKING:
    from streamstate.state_inspect.values import Cell
    from streamstate.widgets.chart import Chart

MARKS = {"added": "+", "changed": "~", "removed": "−"}
"""The mark of a table row, by what happened to it."""
_ROW_CLASSES = {mark: change for change, mark in MARKS.items()} | {"": "same"}


def place(name: str, html: str) -> str:
    """The element of a still form, which scrolls sideways, by keyboard too."""
    focusable = f'tabindex="0" role="group" aria-label="{escape(name)}"'
    return f'<div class="streamstate"><div class="streamstate-static" {focusable}>{html}</div></div>'


def frame(name: str, parts: Iterable[str], body: str, note: str = "") -> str:
    """A view in its frame: a head with its name and parts, the body, which is HTML, and a note below it."""
    head = f"<p>{' · '.join([f'<strong>{escape(name)}</strong>', *map(escape, parts)])}</p>"
    foot = f"<p><small>{escape(note)}</small></p>" if note else ""
    return f"<style>{resource('static.css')}</style>{head}{body}{foot}"


def table(label: str, heads: Sequence[str], rows: Iterable[Sequence[str]], marks: Sequence[str] | None = None) -> str:
    """A table of cells made by :func:`td`; ``marks`` of the rows, empty for none, get a column of their own."""
    first = '<th scope="col" title="added, changed, removed">±</th>' if marks is not None else ""
    head = first + "".join(f'<th scope="col">{escape(text)}</th>' for text in heads)
    if marks is None:
        body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    else:
        body = "".join(
            f'<tr class="{_ROW_CLASSES[mark]}"><td>{mark}</td>{"".join(row)}</tr>'
            for mark, row in zip(marks, rows, strict=True)
        )
    return f'<table aria-label="{escape(label)}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def td(content: Cell | str, *, changed: bool = False) -> str:
    """A table cell: a text, or a value of the state, marked where it changed."""
    if isinstance(content, str):
        return f"<td>{escape(content)}</td>"
    return f'<td class="{content.kind}{" was" if changed else ""}">{escape(content.text)}</td>'


def figure(chart: Chart, width: int = 640) -> str:
    """A plot as a still picture with its caption."""
    return f"<figure><figcaption>{escape(chart.label)}</figcaption>{chart.svg(width)}</figure>"
