"""Plots: a Vega-Lite specification, drawn live in a page and as a still picture elsewhere.

Vega-Lite (Satyanarayan et al., InfoVis 2016) describes a plot as data, so that the same specification serves a page,
where Vega draws it, and a saved notebook, for which ``vl_convert`` renders it in the kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from streamstate.snapshots.calls.html import Html

ACCENT, ADDED, CHANGED, REMOVED = "#3b82c4", "#2e9e5b", "#d69414", "#d04437"
"""Colours that are distinct on light and dark backgrounds; signs and labels repeat their meaning."""

_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"  # identifies the language; it is never fetched
_INK = "currentColor"
_TEXTS = {"labelColor": _INK, "titleColor": _INK}
_CONFIG = {
    "background": None,
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        **_TEXTS,
        "domainColor": _INK,
        "tickColor": _INK,
        "gridColor": _INK,
        "domainOpacity": 0.3,
        "tickOpacity": 0.3,
        "gridOpacity": 0.12,
        "labelOpacity": 0.8,
        "titleOpacity": 0.8,
        "titleFontWeight": "normal",
        "labelLimit": 160,
    },
    "header": _TEXTS,
    "legend": {**_TEXTS, "titleFontWeight": "normal"},
    "title": {"color": _INK, "anchor": "start", "fontSize": 12, "fontWeight": 600},
    "text": {"color": _INK},
    "rule": {"color": _INK},
    **{mark: {"color": ACCENT} for mark in ("bar", "line", "point", "area", "rect")},
}
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


@dataclass(frozen=True)
class Chart:
    """A plot.

    Args:
        label: its caption, which is also its name for screen readers.
        spec: a Vega-Lite specification of one view (``mark`` and ``encoding``, or ``layer``) without data and width.
            A selection parameter in it reaches the view model as an action ``<parameter>`` with its value.
        rows: the data, all of which is sent to a page. Values are JSON types; epochs are integers, times ISO 8601.
        height: pixels.
    """

    label: str
    spec: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]] = field(default_factory=list)
    height: int = 90

    def message(self) -> dict[str, Any]:
        """As JSON types, for ``plots.js``."""
        spec = {
            "$schema": _SCHEMA,
            "description": self.label,
            "width": "container",
            "height": self.height,
            "autosize": {"type": "fit-x", "contains": "padding"},
            "data": {"name": "rows"},
            "config": _CONFIG,
            **self.spec,
        }
        return {"label": self.label, "spec": spec, "rows": list(self.rows)}

    def svg(self, width: int = 640) -> Html:
        """Return a still picture, as inline SVG in the colour of the text around it; ``width`` is in pixels."""
        return still(self.message(), width)


def is_plot(content: Any) -> bool:
    """Check if a part of a view's message is the message of a plot."""
    return isinstance(content, Mapping) and {"label", "spec", "rows"} <= set(content)


def still(message: Mapping[str, Any], width: int = 640) -> Html:
    """Return a still picture of a plot in a message, as inline SVG in the colour of the text around it."""
    import vl_convert

    spec = {**message["spec"], "width": width, "data": {"values": list(message["rows"])}}
    picture: str = vl_convert.vegalite_to_svg(spec)
    head, _, rest = picture.partition(">")
    named = f'{head} role="img" aria-label="{escape(message["label"])}" style="max-width:100%;height:auto"'
    return Html(f"{named}>{rest}")


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
