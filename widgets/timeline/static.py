"""The forms of a timeline that need no kernel: text for a terminal, pictures and a table for a saved notebook."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from streamstate.widgets.front import resource
from streamstate.widgets.timeline.charts import charts, mark_rows, rows
from streamstate.widgets.timeline.drawing import View, table_row
from streamstate.widgets.timeline.points import MEASURES

__all__ = ["LIMIT", "html", "summary"]

LIMIT = 80
"""Points a still picture has at most: it stays in the notebook."""
ROWS = 10
"""Epochs that the table of a saved notebook has."""
_HINT = "In JupyterLab with a running kernel, a timeline that follows the query takes the place of these pictures."


def summary(view: View) -> str:
    """A view in one line.

    Example:
        >>> summary(View("delays"))
        'delays: no epoch captured yet'
    """
    return f"{view.name}: " + " · ".join(_parts(view))


def _parts(view: View) -> Iterator[str]:
    if view.waiting:
        yield "no epoch captured yet"
        return
    yield from view.facts()
    newest = table_row(view.newest)["cells"]
    yield from (f"{measure.title.lower()} {text}" for measure, text in zip(MEASURES, newest, strict=True) if text)
    selected = view.selected()
    if selected:
        yield selected["text"]


def html(view: View) -> str:
    """A view as pictures and a table that show in any browser, without scripts; every text in it is escaped."""
    told = f"<p><strong>{escape(view.name)}</strong> · {' · '.join(map(escape, _parts(view)))}</p>"
    shown = "" if view.waiting else _pictures(view) + _table(view)
    return f"<style>{resource('static.css')}</style>{told}{shown}<p><small>{_HINT}</small></p>"


def _pictures(view: View) -> str:
    data = [*rows(view.points), *mark_rows(view.points, view.marks)]
    pictures = "".join(f"<div>{chart.svg()}</div>" for chart in charts(view.name, view.points, view.width, data))
    return f"{pictures}<p><small>{escape(' '.join([*view.caption(), *_signs(view)]))}</small></p>"


def _signs(view: View) -> Iterator[str]:
    if view.marks.gaps:
        yield "Grey: gaps."
    if view.marks.restarts:
        yield "Dashed: restarts."
    if view.marks.forks:
        yield "Orange: forks."


def _table(view: View) -> str:
    found = [table_row(point) for point in view.every[::-1][:ROWS]]
    heads = "".join(f'<th scope="col">{escape(each)}</th>' for each in ("Epoch", "Committed", *_titles()))
    body = "".join(_line(row) for row in found)
    caption = f"The newest epochs of {view.name}"
    return f'<table aria-label="{escape(caption)}"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>'


def _titles() -> list[str]:
    return [measure.title for measure in MEASURES]


def _line(row: dict[str, object]) -> str:
    cells = row["cells"]
    assert isinstance(cells, list)
    told = "not captured: a gap" if row["gap"] else str(row["committed"])
    numbers = "".join(f'<td class="number">{escape(text)}</td>' for text in cells)
    return f"<tr><td>{row['epoch']}</td><td>{escape(told)}</td>{numbers}</tr>"
