"""The forms of a debugger that need no kernel: a line of text, and the branches with what the last step changed."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from streamstate.widgets.debugger.drawing import View
from streamstate.widgets.debugger.tree import Lane, Tree
from streamstate.widgets.diffs import static as diffs
from streamstate.widgets.front import resource

__all__ = ["html", "picture", "summary"]

_HINT = "In JupyterLab with a running kernel, the debugger itself takes the place of this."
_ACROSS, _DOWN = 22, 24
_SIDE = 160  # where the names stand


def summary(view: View) -> str:
    """A debugger in one line: ``what_if: stands at epoch 14 · forked from delays after epoch 12``."""
    return f"{view.name}: " + " · ".join(_parts(view))


def _parts(view: View) -> Iterator[str]:
    yield from view.facts()
    if view.doing is not None:
        yield f"{view.doing.what}…"
    elif view.trouble is not None:
        yield f"{view.trouble.what}: {view.trouble.short}"
    elif view.outcome():
        yield view.outcome()
    yield from (f"{one.expression} = {one.now.text}" for one in view.watched)


def html(view: View) -> str:
    """A debugger for any browser, without scripts; every text in it is escaped."""
    told = f"<p><strong>{escape(view.name)}</strong> · {' · '.join(escape(part) for part in _parts(view))}</p>"
    changed = f"<p>{escape(view.no_diff)}</p>" if view.diff is None else diffs.rows(view.diff)
    style = f"<style>{resource('static.css')}</style>"
    return f"{style}{told}{picture(view)}{_watched(view)}{changed}<p><small>{_HINT}</small></p>"


def picture(view: View) -> str:
    """The branches as inline SVG, in the ink of the text around it."""
    drawn = view.tree
    wide = _SIDE + (drawn.last - drawn.first + 2) * _ACROSS
    high = (len(drawn.lanes) + 1) * _DOWN
    label = f"Branches, epochs {drawn.first:,} to {drawn.last:,}: " + "; ".join(lane.told for lane in drawn.lanes)
    lines = "".join(_lane(view, at, lane) for at, lane in enumerate(drawn.lanes))
    marks = "".join(_epoch(drawn, epoch, high) for epoch in _named(drawn))
    head = f'<svg viewBox="0 0 {wide} {high}" width="{wide}" height="{high}" role="img" aria-label="{escape(label)}"'
    cut = f"<p><small>{drawn.left_out:,} more branches are not drawn.</small></p>" if drawn.left_out else ""
    return f'{head} style="max-width:100%;height:auto;font:12px system-ui,sans-serif">{lines}{marks}</svg>{cut}'


def _named(drawn: Tree) -> Iterator[int]:
    """The epochs whose numbers are written below."""
    every = 1 if drawn.last - drawn.first < 12 else 5
    yield from (epoch for epoch in range(drawn.first, drawn.last + 1) if epoch % every == 0)


def _x(drawn: Tree, epoch: int) -> int:
    return _SIDE + (epoch - drawn.first) * _ACROSS + _ACROSS // 2


def _y(at: int) -> int:
    return at * _DOWN + _DOWN // 2


def _epoch(drawn: Tree, epoch: int, high: int) -> str:
    x = _x(drawn, epoch)
    return f'<text x="{x}" y="{high - 8}" text-anchor="middle" fill="currentColor" opacity="0.7">{epoch}</text>'


def _lane(view: View, at: int, lane: Lane) -> str:
    drawn, y = view.tree, _y(at)
    own = lane.name == view.name
    weight = ' font-weight="600"' if own else ""
    name = lane.name if len(lane.name) <= 20 else lane.name[:19] + "…"
    parts = [f'<text x="{_SIDE - 8}" y="{y + 4}" text-anchor="end" fill="currentColor"{weight}>{escape(name)}</text>']
    places = [_x(drawn, dot.epoch) for dot in lane.dots]
    if places:
        parts.append(_line(places[0], y, places[-1], y))
    if lane.parent is not None and lane.dots and lane.dots[0].kind == "start":
        parts.append(_line(places[0], _y(lane.parent), places[0], y))
    for dot, x in zip(lane.dots, places, strict=True):
        here = own and dot.epoch == view.seen.epoch
        fill = "currentColor" if dot.kind == "epoch" or here else "none"
        ring = f'<circle cx="{x}" cy="{y}" r="8" fill="none" stroke="#3b82c4" stroke-width="2"/>' if here else ""
        parts.append(
            f'{ring}<circle cx="{x}" cy="{y}" r="4" fill="{fill}" stroke="currentColor">'
            f"<title>{escape(lane.name)}, epoch {dot.epoch}{', here' if here else ''}</title></circle>"
        )
    return "".join(parts)


def _line(x: int, y: int, to_x: int, to_y: int) -> str:
    return f'<line x1="{x}" y1="{y}" x2="{to_x}" y2="{to_y}" stroke="currentColor" opacity="0.5" stroke-width="2"/>'


def _watched(view: View) -> str:
    if not view.watched:
        return ""
    rows = "".join(
        f'<tr><td>{escape(one.expression)}</td><td class="{one.now.kind}">{escape(one.now.text)}</td>'
        f'<td class="number">{escape(one.moved or (f"was {one.was.text}" if one.was else ""))}</td></tr>'
        for one in view.watched
    )
    caption = "Watched" if view.watched_at is None else f"Watched, at epoch {view.watched_at}"
    heads = "".join(f'<th scope="col">{each}</th>' for each in ("watched", "value", "change"))
    return f'<table aria-label="{caption}"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'
