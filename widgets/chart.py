"""Plots: a Vega-Lite specification that is drawn live in a page and as a still picture elsewhere.

Vega-Lite (Satyanarayan et al., InfoVis 2016) describes a plot as data, so the same few lines serve the page, where
Vega draws it, and the notebook that was saved, where ``vl_convert`` makes a picture of it in the kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

__all__ = ["ACCENT", "ADDED", "CHANGED", "REMOVED", "Chart", "still"]

ACCENT, ADDED, CHANGED, REMOVED = "#3b82c4", "#2e9e5b", "#d69414", "#d04437"
"""Colours that can be told apart on light and on dark paper; signs and labels say the same."""

_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"  # names the language; nothing fetches it
_INK = "currentColor"
_CONFIG = {
    "background": None,
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": _INK,
        "titleColor": _INK,
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
    "header": {"labelColor": _INK, "titleColor": _INK},
    "legend": {"labelColor": _INK, "titleColor": _INK, "titleFontWeight": "normal"},
    "title": {"color": _INK, "anchor": "start", "fontSize": 12, "fontWeight": 600},
    "text": {"color": _INK},
    "rule": {"color": _INK},
    "bar": {"color": ACCENT},
    "line": {"color": ACCENT},
    "point": {"color": ACCENT},
    "area": {"color": ACCENT},
    "rect": {"color": ACCENT},
}


@dataclass(frozen=True)
class Chart:
    """One plot.

    Args:
        label: what it shows, in words: its name for a screen reader, and its caption.
        spec: a Vega-Lite specification of one view (``mark`` and ``encoding``, or ``layer``) without data and width.
            A selection parameter in it reaches the view model as an action ``<parameter>`` with its value.
        rows: the data, small: a page gets all of it. Values are JSON types; epochs are integers, times ISO 8601.
        height: pixels.

    Example:
        >>> bars = {"mark": "bar", "encoding": {"x": {"field": "epoch"}, "y": {"field": "rows"}}}
        >>> Chart("Input rows by epoch", bars, [{"epoch": 0, "rows": 12}]).svg().startswith("<svg")
        True
    """

    label: str
    spec: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]] = field(default_factory=list)
    height: int = 90

    def message(self) -> dict[str, Any]:
        """What ``plots.js`` draws."""
        return {"label": self.label, "spec": self._whole("container"), "rows": list(self.rows)}

    def svg(self, width: int = 640) -> str:
        """A still picture, as inline SVG in the ink of the text around it.

        Args:
            width: pixels.
        """
        return still(self.message(), width)

    def _whole(self, width: int | str) -> dict[str, Any]:
        return {
            "$schema": _SCHEMA,
            "description": self.label,
            "width": width,
            "height": self.height,
            "autosize": {"type": "fit-x", "contains": "padding"},
            "data": {"name": "rows"},
            "config": _CONFIG,
            **self.spec,
        }


def still(message: Mapping[str, Any], width: int = 640) -> str:
    """A still picture of what a page was told to draw, as inline SVG in the ink of the text around it.

    Args:
        message: :meth:`Chart.message`.
        width: pixels.
    """
    import vl_convert

    spec = {**message["spec"], "width": width, "data": {"values": list(message["rows"])}}
    picture: str = vl_convert.vegalite_to_svg(spec)
    head, _, rest = picture.partition(">")
    named = f'{head} role="img" aria-label="{escape(message["label"])}" style="max-width:100%;height:auto"'
    return f"{named}>{rest}"
