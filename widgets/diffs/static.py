"""The forms of a diff view that need no kernel: text for a terminal, a table and a picture for a saved notebook."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from streamstate.widgets.diffs.drawing import MARKS, DiffDrawing, Row, Side, Value
from streamstate.widgets.front import resource
from streamstate.widgets.values import Cell

__all__ = ["html", "rows", "summary"]

COLUMNS = 20
"""Value columns a saved notebook holds; the live view shows them all."""
_HINT = "In JupyterLab with a running kernel, a view through all keys takes the place of this table."


def summary(drawn: DiffDrawing) -> str:
    """A diff in one line.

    Example:
        >>> from streamstate.widgets.diffs.selection import Selection
        >>> summary(DiffDrawing("delays", Selection(0)))
        'delays: no epoch captured yet'
    """
    return f"{drawn.name}: " + " · ".join(_parts(drawn))


def _parts(drawn: DiffDrawing) -> Iterator[str]:
    if drawn.sides is None:
        yield "no epoch captured yet"
        return
    a, b = drawn.sides
    yield f"table {drawn.table}"
    yield f"{a.named} → {b.named if b.query else b.epoch}"
    yield " ".join(f"{MARKS[kind]}{drawn.counts[kind]:,}" for kind in MARKS) + " (added, changed, removed)"
    yield f"{a.rows:,} → {b.rows:,} rows"
    for side in drawn.sides:
        if side.asked is not None:
            yield not_captured(side)


def not_captured(side: Side) -> str:
    """What is said where another epoch is shown than the one that was asked for."""
    return f"epoch {side.asked} was not captured, epoch {side.epoch} is shown"


def html(drawn: DiffDrawing) -> str:
    """A diff for any browser, without scripts; every text in it is escaped."""
    told = f"<p><strong>{escape(drawn.name)}</strong> · {' · '.join(escape(part) for part in _parts(drawn))}</p>"
    body = _table(drawn) + _picture(drawn) if drawn.total else ""
    return f"<style>{resource('static.css')}</style>{told}{body}<p><small>{_left_out(drawn)}{_HINT}</small></p>"


def rows(drawn: DiffDrawing) -> str:
    """The counts and the first keys of a diff alone, to stand in another view."""
    told = f"<p>{' · '.join(escape(part) for part in _parts(drawn))}</p>"
    left_out = _left_out(drawn)
    return told + (_table(drawn) if drawn.total else "") + (f"<p><small>{left_out}</small></p>" if left_out else "")


def _left_out(drawn: DiffDrawing) -> str:
    shown, parts = len(drawn.page.rows), []
    if drawn.page.matching > shown:
        parts.append(f"The first {shown} of {drawn.page.matching:,} keys. ")
    values = sum(not column.key for column in drawn.columns)
    if values > COLUMNS:
        parts.append(f"The first {COLUMNS} of {values} value columns. ")
    return "".join(parts)


def _table(drawn: DiffDrawing) -> str:
    caption = f"What differs in {drawn.table} of {drawn.name}, " + " to ".join(side.named for side in drawn.sides or ())
    keys = [f"{column.name} (key)" for column in drawn.columns if column.key]
    values = [column.name for column in drawn.columns if not column.key][:COLUMNS]
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in [*keys, *values, "cause"])
    body = "".join(_row(row) for row in drawn.page.rows)
    return (
        f'<table aria-label="{escape(caption)}"><thead><tr><th scope="col" title="added, changed, removed">±</th>'
        f"{heads}</tr></thead><tbody>{body}</tbody></table>"
    )


def _row(row: Row) -> str:
    kind = next(kind for kind, mark in MARKS.items() if mark == row.mark)
    cells = [f'<td class="{one.kind}">{escape(one.text)}</td>' for one in row.keys]
    cells += [_value(one) for one in row.values[:COLUMNS]]
    return f'<tr class="{kind}"><td>{row.mark}</td>{"".join(cells)}<td>{escape(row.cause)}</td></tr>'


def _value(value: Value) -> str:
    if value.was is None:
        return f'<td class="{value.now.kind}">{escape(value.now.text)}</td>'
    return f'<td class="{_kind(value.now, value.was)} was">{escape(value.was.text)} → {escape(value.now.text)}</td>'


def _kind(now: Cell, was: Cell) -> str:
    return "number" if "number" in (now.kind, was.kind) else now.kind


def _picture(drawn: DiffDrawing) -> str:
    chart = drawn.movers.chart if drawn.movers else None
    return "" if chart is None else f"<p>{escape(chart.label)}</p>{chart.svg()}"
