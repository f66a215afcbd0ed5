"""The drawing of the rooms: boxes from the top down, arrows between them, and the way of an epoch through them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from html import escape

_PURPOSES = {
    "kernel_ext": "streamstate: public names, errors, magics; launch: start and run a query",
    "command_line": "the commands of `streamstate`",
    "widgets": "what a notebook or a served page shows",
    "operations": "keep a query running and change it: supervise, rescale, promote, drill",
    "replay": "run again: fork, step, debug, replay, audit",
    "sharing": "contracts, the server, stores of others",
    "variables": "shared variables, bound to epochs",
    "state_inspect": "the database: temporal index, SQL, differences, causes, cuts",
    "snapshots": "checkpoint to Delta: capture, change logs, manifest, retention, export",
}

# Where an epoch passes: the room, or None below the house, and what it becomes there.
_WAY = (
    (None, "checkpoint"),
    ("snapshots", "capture → Delta tables"),
    ("state_inspect", "temporal index → SQL"),
    ("widgets", "view"),
)

_LEFT, _WIDTH, _HEIGHT, _GAP = 120, 660, 80, 26
_LANE = _LEFT + _WIDTH + 40
_LANE_WIDTH = 190
_TEXT_WIDTH = 90

_STYLE = """\
text { font: 14px system-ui, sans-serif; fill: #1b1f24 }
.name { font-weight: 600 } .small { font-size: 12px; fill: #57606a }
.room { fill: #f6f8fa; stroke: #8c959f } .place { fill: #ddf4ff; stroke: #1565c0 }
.arrow { fill: none; stroke: #8c959f } .way { fill: none; stroke: #1565c0; stroke-width: 2 }"""


def draw(inside: Mapping[str, list[str]], arrows: set[tuple[str, str]]) -> str:
    """Draw the rooms in the order given.

    Args:
        inside: The sub-packages of each room, the topmost room first.
        arrows: Which room imports which.

    Returns:
        An SVG document.
    """
    tops = {room: 20 + place * (_HEIGHT + _GAP) for place, room in enumerate(inside)}
    height = max(tops.values()) + _HEIGHT + _GAP + 60
    width = _LANE + _LANE_WIDTH + 20
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-labelledby="t d">',
        '<title id="t">The rooms of streamstate</title>',
        f'<desc id="d">{escape(_described(inside, arrows))}</desc>',
        f"<style>{_STYLE}</style>",
        f"<defs>{_head('import', '#8c959f')}{_head('way', '#1565c0')}</defs>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for room, packages in inside.items():
        lines += _room(room, packages, tops[room])
    lines += [_arrow(tops[here], tops[there]) for here, there in sorted(arrows) if here in tops and there in tops]
    lines += _way(tops, height)
    return "\n".join([*lines, "</svg>", ""])


def _described(inside: Mapping[str, list[str]], arrows: set[tuple[str, str]]) -> str:
    """The drawing in words, for screen readers."""
    imported = {room: sorted(there for here, there in arrows if here == room) for room in inside}
    imports = "; ".join(f"{room} imports {', '.join(rooms)}" for room, rooms in imported.items() if rooms)
    way = ", ".join(place for _, place in _WAY)
    return f"From the top down: {', '.join(inside)}. {imports}. The way of an epoch: {way}."


def _head(name: str, colour: str) -> str:
    return (
        f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        'markerUnits="userSpaceOnUse" orient="auto">'
        f'<path d="M0 0 8 4 0 8z" fill="{colour}"/></marker>'
    )


def _room(room: str, packages: list[str], top: int) -> Iterator[str]:
    yield f'<rect class="room" x="{_LEFT}" y="{top}" width="{_WIDTH}" height="{_HEIGHT}" rx="6"/>'
    yield f'<text class="name" x="{_LEFT + 16}" y="{top + 24}">{room}</text>'
    yield f'<text x="{_LEFT + 130}" y="{top + 24}">{escape(_PURPOSES[room])}</text>'
    for number, line in enumerate(textwrap.wrap(" · ".join(packages), _TEXT_WIDTH)):
        yield f'<text class="small" x="{_LEFT + 16}" y="{top + 50 + 17 * number}">{escape(line)}</text>'


def _arrow(here: int, there: int) -> str:
    """An import: straight down to the next room, around on the left to those below it."""
    rooms = (there - here) // (_HEIGHT + _GAP)
    if rooms == 1:
        middle = _LEFT + _WIDTH // 2
        return f'<path class="arrow" marker-end="url(#import)" d="M{middle} {here + _HEIGHT} V{there - 1}"/>'
    start, end = here + _HEIGHT // 2 + 5 * rooms, there + _HEIGHT // 2 - 5 * rooms
    bend = _LEFT - 22 * rooms
    curve = f"M{_LEFT} {start} C{bend} {start} {bend} {end} {_LEFT - 1} {end}"
    return f'<path class="arrow" marker-end="url(#import)" d="{curve}"/>'


def _way(tops: Mapping[str, int], height: int) -> Iterator[str]:
    """The way of an epoch, from the bottom up."""
    yield f'<text class="small" x="{_LANE}" y="{height - 12}">the way of an epoch</text>'
    before = None
    for room, what in _WAY:
        top = height - 70 if room is None else tops[room] + _HEIGHT // 2 - 19
        middle = _LANE + _LANE_WIDTH // 2
        if before is not None:
            yield f'<path class="way" marker-end="url(#way)" d="M{middle} {before} V{top + 40}"/>'
        yield f'<rect class="place" x="{_LANE}" y="{top}" width="{_LANE_WIDTH}" height="38" rx="19"/>'
        yield f'<text x="{middle}" y="{top + 24}" text-anchor="middle">{escape(what)}</text>'
        before = top
