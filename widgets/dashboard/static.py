"""The forms of a dashboard that need no kernel: a line of text, and tables with still pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from streamstate.widgets.dashboard.drawing import View
from streamstate.widgets.dashboard.operators import Operators
from streamstate.widgets.dashboard.spread import Spread
from streamstate.widgets.front import resource

__all__ = ["html", "summary"]

_HINT = "In JupyterLab with a running kernel, a dashboard that follows the query takes the place of this."


def summary(view: View) -> str:
    """A dashboard in one line.

    Example:
        >>> summary(View("delays"))
        'delays: no epoch captured yet'
    """
    return f"{view.name}: " + " · ".join(_parts(view))


def html(view: View) -> str:
    """A dashboard for any browser, without scripts; every text in it is escaped."""
    told = f"<p><strong>{escape(view.name)}</strong> · {' · '.join(escape(part) for part in _parts(view))}</p>"
    troubles = "".join(f"<p><strong>{escape(one.what)}:</strong> {escape(one.short)}</p>" for one in view.troubles)
    operators = _operators(view.operators) if view.operators else ""
    pictures = "".join(
        f"<figure><figcaption>{escape(chart.label)}</figcaption>{chart.svg()}</figure>"
        for chart in view.charts.values()
    )
    spread = _spread(view.spread) if view.spread else ""
    style, hint = f"<style>{resource('static.css')}</style>", f"<p><small>{_HINT}</small></p>"
    return f"{style}{told}{troubles}{operators}{pictures}{spread}{hint}"


def _parts(view: View) -> Iterator[str]:
    if view.state:
        yield view.state
    yield "no epoch captured yet" if view.epoch is None else f"epoch {view.epoch}"
    yield from (f"{label} {value}" for label, value in view.facts)


def _operators(operators: Operators) -> str:
    rows = [[box.label, box.detail, box.told(), ", ".join(box.tables), box.feeds] for box in operators.boxes]
    heads = ["operator", "of", "figures", "state tables", "feeds"]
    return _table("Operators", heads, rows) + f"<p><small>{escape(operators.note)}</small></p>"


def _spread(spread: Spread) -> str:
    sentences = "".join(f"<p>{escape(sentence)}</p>" for sentence in spread.sentences)
    picture = f"<figure>{spread.chart().svg()}</figure>" if len(spread.rows) > 1 else ""
    rows = [[*(each.text for each in one.cells), f"{one.writes:,}", f"{one.last}"] for one in spread.keys]
    keys = _table("Keys written most often", [*spread.columns, "writes", "last in epoch"], rows) if rows else ""
    return f"<p><strong>{escape(spread.table)}</strong></p>{sentences}{picture}{keys}"


def _table(label: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(each)}</th>' for each in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(each)}</td>" for each in row) + "</tr>" for row in rows)
    return f'<table aria-label="{escape(label)}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
