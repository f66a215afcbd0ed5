"""The forms that the plots share, as parts of Vega-Lite specifications."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamstate.widgets.chart import ACCENT

Part = dict[str, Any]

GAP: Part = {"type": "rect", "color": "#808080", "opacity": 0.22}
"""The mark of epochs of which nothing is known."""
STROKES: Part = {"orient": "top", "symbolType": "stroke", "symbolSize": 200}
"""The legend of lines."""
WHOLE: Part = {"format": ",d", "tickMinStep": 1}
"""An axis of whole numbers."""
CLOSE: Part = {"nice": False, "zero": False, "padding": 0}
"""A scale from the first to the last value."""
EPOCHS: Part = {
    "tickMinStep": 1,
    "grid": False,
    "labelFlush": True,
    "labelBound": True,  # a label beyond the end would move the plot
    "tickCount": {"expr": "width / 70"},
}
"""An axis of epochs that plots below each other share."""


def quantity(field: str, **rest: Any) -> Part:
    """Return the encoding of a number."""
    return {"field": field, "type": "quantitative", **rest}


def aligned(pixels: int, **rest: Any) -> Part:
    """Return a y axis that takes the same room in each plot, so that the epochs are aligned."""
    return {"minExtent": pixels, "maxExtent": pixels, "labelLimit": pixels - 6, **rest}


def layer(kind: str, mark: Mapping[str, Any], **encoding: Any) -> Part:
    """Return a layer of the rows of a kind."""
    return {"transform": only(kind), "mark": dict(mark), "encoding": encoding}


def only(kind: str) -> list[Part]:
    """Return the transformation that keeps the rows of a kind."""
    return [{"filter": f"datum.kind === '{kind}'"}]


def bars(*, many: bool, color: str = ACCENT) -> Part:
    """Return the mark of bars: with space between them, or ``many`` that may be thinner than a pixel."""
    edge = {"stroke": color, "strokeWidth": 0.5} if many else {"xOffset": 0.75, "x2Offset": -0.75}
    return {"type": "rect", "color": color, **edge}


def tooltips(titles: Mapping[str, str]) -> list[Part]:
    """Return tooltips from the title of each field."""
    return [{"field": field, "title": title} for field, title in titles.items()]


def clickable(name: str) -> list[Part]:
    """Return the parameter that sends the number of a clicked row to the view model."""
    return [{"name": name, "select": {"type": "point", "fields": ["row"], "on": "click"}}]
