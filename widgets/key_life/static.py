"""The forms of a key history view that need no kernel: text for a terminal, pictures and a table in a notebook."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from streamstate.widgets.front import resource
from streamstate.widgets.key_life.drawing import KeyDrawing, Row

__all__ = ["html", "summary"]

COLUMNS = 20
"""Value columns a saved notebook holds; the live view shows them all."""
PICTURES = 120_000
"""Characters of pictures that a saved notebook holds; columns that come after have none."""
_HINT = "In JupyterLab with a running kernel, a view that follows the key takes the place of this."
_KINDS = {"+": "added", "~": "changed", "−": "removed", "": "same"}


def summary(drawn: KeyDrawing) -> str:
    """A key's history in one line.

    Example:
        >>> from streamstate.widgets.key_life.selection import Selection
        >>> summary(KeyDrawing("delays", Selection(), told="No epoch is captured yet."))
        'delays: No epoch is captured yet.'
    """
    return f"{drawn.name}: " + " · ".join(_parts(drawn))


def _parts(drawn: KeyDrawing) -> Iterator[str]:
    if drawn.table and drawn.key:
        yield f"table {drawn.table}"
        yield f"key {drawn.key}"
    if drawn.told:
        yield drawn.told
    elif drawn.story:
        newest = drawn.story.changes[-1]
        yield f"{len(drawn.story.changes):,} change{'s' * (len(drawn.story.changes) != 1)}"
        yield f"{newest.said} at epoch {newest.epoch}" + (f" ({newest.cause})" if newest.cause else "")
        yield "not there now" if newest.gone else "there now"


def html(drawn: KeyDrawing) -> str:
    """A key's history for any browser, without scripts; every text in it is escaped."""
    told = f"<p><strong>{escape(drawn.name)}</strong> · {' · '.join(escape(part) for part in _parts(drawn))}</p>"
    pictures = _pictures(drawn)
    body = "".join(pictures) + _table(drawn) if drawn.story else ""
    left = _left_out(drawn, len(pictures))
    return f"<style>{resource('static.css')}</style>{told}{body}<p><small>{left}{_HINT}</small></p>"


def _pictures(drawn: KeyDrawing) -> list[str]:
    """The columns' plots, as many as there is room for."""
    pictures: list[str] = []
    for chart in drawn.plots.charts:
        picture = f"<p>{escape(chart.label)}</p>{chart.svg()}"
        if sum(map(len, pictures)) + len(picture) > PICTURES:
            break
        pictures.append(picture)
    return pictures


def _left_out(drawn: KeyDrawing, pictures: int) -> str:
    parts = []
    if drawn.page.total > len(drawn.page.rows):
        parts.append(f"The newest {len(drawn.page.rows)} of {drawn.page.total:,} changes. ")
    if drawn.plots.total > pictures:
        parts.append(f"Pictures of {pictures} of {drawn.plots.total} columns. ")
    if len(drawn.columns) > COLUMNS:
        parts.append(f"The first {COLUMNS} of {len(drawn.columns)} columns. ")
    return "".join(parts)


def _table(drawn: KeyDrawing) -> str:
    names = ["epoch", "committed", "change", "cause", *drawn.columns[:COLUMNS]]
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    caption = f"Changes of {drawn.key} in {drawn.table} of {drawn.name}"
    body = "".join(_row(row) for row in drawn.page.rows)
    return (
        f'<table aria-label="{escape(caption)}"><thead><tr><th scope="col" title="added, changed, removed">±</th>'
        f"{heads}</tr></thead><tbody>{body}</tbody></table>"
    )


def _row(row: Row) -> str:
    told = [str(row.epoch), row.committed, row.said, row.cause]
    cells = [f"<td>{escape(text)}</td>" for text in told]
    for at, one in enumerate(row.cells[:COLUMNS]):
        cells.append(f'<td class="{one.kind}{" was" if at in row.differ else ""}">{escape(one.text)}</td>')
    return f'<tr class="{_KINDS[row.mark]}"><td>{row.mark}</td>{"".join(cells)}</tr>'
