"""The forms of a view that need no kernel: text for a terminal, an escaped table for a saved notebook."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from streamstate.widgets.browser.drawing import Row, View, described
from streamstate.widgets.front import resource
from streamstate.widgets.values import Cell

__all__ = ["html", "summary"]

_HINT = "In JupyterLab with a running kernel, a browser through all epochs takes the place of this table."


def summary(view: View) -> str:
    """A view in one line.

    Example:
        >>> summary(View("delays"))
        "delays: no epoch captured yet"
    """
    return f"{view.name}: " + " · ".join(_parts(view))


def _parts(view: View) -> Iterator[str]:
    if view.waiting:
        yield "no epoch captured yet"
        return
    yield f"table {view.table}"
    yield f"epoch {view.epoch} (captured: {described(view.captured)})"
    yield f"{view.total:,} rows"
    if view.counts:
        yield str(view.counts)
    yield from (f"{label} {value}" for label, value in (*view.facts, *view.marks.facts))


def html(view: View) -> str:
    """A view as a table that shows in any browser, without scripts; every text in it is escaped."""
    style = resource("static.css")
    told = f"<p><strong>{escape(view.name)}</strong> · {' · '.join(escape(part) for part in _parts(view))}</p>"
    body = "" if view.waiting else _table(view)
    return (
        f"<style>{style}</style>{told}{body}<p><small>{escape(_shown(view))}{_columns_shown(view)}{_HINT}</small></p>"
    )


def _shown(view: View) -> str:
    if view.waiting or view.page.matching <= len(view.page.rows):
        return ""
    return f"The first {len(view.page.rows)} of {view.page.matching:,} rows. "


def _columns_shown(view: View) -> str:
    window = view.page.window
    return f"{window.shown} of {window.total} value columns. " if window else ""


def _table(view: View) -> str:
    caption = f"State table {view.table} of {view.name} at epoch {view.epoch}"
    heads = "".join(
        f'<th scope="col">{escape(column.name)}{" (key)" if column.key else ""}</th>' for column in view.page.columns
    )
    body = "".join(_row(row) for row in view.page.rows)
    return (
        f'<table aria-label="{escape(caption)}"><thead><tr>'
        f'<th scope="col" title="changed since the previous epoch">±</th>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )


def _row(row: Row) -> str:
    kind = {"+": "added", "~": "changed", "−": "removed"}.get(row.mark, "same")
    cells = "".join(_cell(cell, "was" if at in row.was else "") for at, cell in enumerate(row.cells))
    return f'<tr class="{kind}"><td>{row.mark}</td>{cells}</tr>'


def _cell(cell: Cell, changed: str) -> str:
    return f'<td class="{cell.kind} {changed}">{escape(cell.text)}</td>'
