"""The forms of an overview that need no kernel: text for a terminal, an escaped table for a saved notebook."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from streamstate.widgets.front import resource
from streamstate.widgets.overview.drawing import View, forked, gaps_text, lag, size
from streamstate.widgets.overview.facts import QueryFacts
from streamstate.widgets.values import timestamp

__all__ = ["html", "summary"]

_HEADS = ("Query", "Newest epoch", "Epochs", "State rows", "On disk", "State tables")


def summary(view: View) -> str:
    """A view in one line."""
    return " · ".join([view.path, *view.facts(), *map(_told, view.shown)])


def _told(query: QueryFacts) -> str:
    if query.problem:
        return f"{query.name}: cannot be read: {query.problem.splitlines()[0]}"
    if query.epoch is None:
        return f"{query.name}: no epoch captured yet"
    gaps = f", {gaps_text(query)}" if query.gaps else ""
    return f"{query.name}: epoch {query.epoch}{gaps}, {query.rows:,} rows, {size(query.bytes)}"


def html(view: View) -> str:
    """A view as a table that shows in any browser, without scripts; every text in it is escaped."""
    told = f"<p><strong>{escape(view.path)}</strong> · {' · '.join(map(escape, view.facts()))}</p>"
    heads = "".join(f'<th scope="col">{head}</th>' for head in _HEADS)
    body = "".join(_line(view, query) for query in view.shown)
    table = f'<table aria-label="Queries of the store"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>'
    return f"<style>{resource('static.css')}</style>{told}{table}<p><small>{escape(' '.join(_notes(view)))}</small></p>"


def _notes(view: View) -> Iterator[str]:
    if len(view.shown) < len(view.queries):
        yield f"Queries {view.offset + 1:,}–{view.offset + len(view.shown):,} of {len(view.queries):,}."
    yield f"As of {timestamp(view.now)}."


def _line(view: View, query: QueryFacts) -> str:
    lead = "\u2003" * query.depth + ("└ " if query.depth else "")
    name = f"<td>{escape(lead + query.name)}{_aside(forked(query))}</td>"
    if query.problem:
        wide = f'colspan="{len(_HEADS) - 1}" style="white-space:normal"'
        return f"<tr>{name}<td {wide}>Cannot be read. {escape(query.problem)}</td></tr>"
    newest = "none captured yet" if query.epoch is None else f"{query.epoch}"
    when = timestamp(query.committed) if query.committed else ""
    cells = (
        f"<td>{newest}{_aside(when)}{_aside(lag(query) and f'captured {lag(query)}')}</td>",
        f"<td>{query.captured:,}{_aside(gaps_text(query) if query.gaps else '')}</td>",
        f'<td class="number">{query.rows:,}</td>',
        f"<td>{size(query.bytes)}{_bar(view, query)}</td>",
        f"<td>{escape(', '.join(table.name for table in query.tables))}</td>",
    )
    return f"<tr>{name}{''.join(cells)}</tr>"


def _bar(view: View, query: QueryFacts) -> str:
    largest = max(one.bytes for one in view.queries)
    share = round(80 * query.bytes / largest) if largest else 0
    return f'<div style="height:4px;width:{share}px;background:#3b82c4"></div>'


def _aside(text: str) -> str:
    return f'<br><small style="font-weight:normal">{escape(text)}</small>' if text else ""
