"""The plots of a timeline, one a measure, all with the same data and the same axis of epochs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from streamstate.widgets.chart import ACCENT, CHANGED, Chart
from streamstate.widgets.timeline.marks import Marks
from streamstate.widgets.timeline.points import MEASURES, Measure, Point
from streamstate.widgets.timeline.spans import unit_for

__all__ = ["AXIS", "charts", "rows", "shown_measures"]

HEIGHT = 54
AXIS = 60
"""Pixels that every plot keeps for its labels, so that epochs stand below each other."""
_MANY = 120
"""Epochs beyond which bars have no space between them and lines no dots."""


def shown_measures(points: Sequence[Point]) -> list[Measure]:
    """The measures that any of the points has; the others are not recorded for this query."""
    return [one for one in MEASURES if any(point.values[one.name] is not None for point in points)]


def rows(points: Sequence[Point]) -> list[dict[str, Any]]:
    """The points as data for the plots; epochs without a value break the lines."""
    return [{"kind": "point", "first": point.first, "last": point.last, **point.values} for point in points]


def mark_rows(points: Sequence[Point], marks: Marks) -> list[dict[str, Any]]:
    """The marks and the two ends of the axis, as data for the plots."""
    ends = (points[0].first - 0.5, points[-1].last + 0.5)
    return [
        *({"kind": "end", "epoch": end} for end in ends),
        *_nothing(points[0]),
        *({"kind": "gap", "first": first, "last": last} for first, last in marks.gaps),
        *({"kind": "restart", "epoch": epoch - 0.5} for epoch in marks.restarts),
        *({"kind": "fork", "epoch": fork.epoch + 0.5} for fork in marks.forks),
    ]


def _nothing(point: Point) -> list[dict[str, Any]]:
    """One mark of each kind that is not seen: Vega warns of a layer without data, on the page's console."""
    rules = [{"kind": kind, "epoch": point.first, "unseen": True} for kind in ("restart", "fork")]
    return [{"kind": "gap", "first": point.first, "last": point.first - 1}, *rules]


def charts(name: str, points: Sequence[Point], width: int, data: Sequence[Mapping[str, Any]] = ()) -> Iterator[Chart]:
    """A chart for each measure that is shown.

    Args:
        name: the query's.
        points: what is drawn.
        width: epochs a bin.
        data: the rows that they draw; without them they are to be given elsewhere. Charts with rows stand alone, and
            say what they show above themselves.
    """
    measures = shown_measures(points)
    for measure in measures:
        unit, seconds = _unit(measure, points)
        spec = {
            "padding": {"left": 0, "top": 4, "right": 10, "bottom": 0},
            "transform": _prepared(measure.name, seconds),
            "layer": _layers(measure, unit, last=measure is measures[-1], many=len(points) > _MANY),
        }
        title = titled(measure, width)
        if data:
            spec["title"] = {"text": title, "frame": "group"}
        yield Chart(f"{title} of {name} by epoch", spec, data, HEIGHT)


def titled(measure: Measure, width: int) -> str:
    """What a measure is called where ``width`` epochs are one.

    Example:
        >>> titled(MEASURES[0], 20)
        'Input rows (sum of 20 epochs)'
    """
    if width == 1:
        return measure.title
    return f"{measure.title} ({measure.fold} of {width:,} epochs)"


def _unit(measure: Measure, points: Sequence[Point]) -> tuple[str, float]:
    if measure.unit == "rows":
        return "", 1
    return unit_for(max(abs(point.values[measure.name] or 0) for point in points))


def _prepared(field: str, seconds: float) -> list[dict[str, str]]:
    value = f"datum['{field}']"
    return [
        {"calculate": f"isValid({value}) ? {value} / {seconds} : null", "as": "y"},
        {"calculate": "(datum.first + datum.last) / 2", "as": "middle"},
        {"calculate": "datum.first - 0.5", "as": "from"},
        {"calculate": "datum.last + 0.5", "as": "to"},
    ]


def _layers(measure: Measure, unit: str, *, last: bool, many: bool) -> list[dict[str, Any]]:
    def x(field: str) -> dict[str, Any]:
        return {"field": field, "type": "quantitative", "scale": _X_SCALE, "axis": _X_AXIS if last else _NO_LABELS}

    y = {"field": "y", "type": "quantitative", "axis": _y_axis(unit), "scale": {"zero": measure.mark == "bars"}}
    over = {"x": x("from"), "x2": {"field": "to"}}
    epoch = {"x": x("epoch")}
    bars = _layer("point", {"type": "rect", "color": ACCENT, **_edge(many=many)}, over | {"y": y, "y2": {"datum": 0}})
    dots = {} if many else {"point": {"size": 12, "filled": True}}
    line = _layer("point", {"type": "line", "strokeWidth": 1.5, **dots}, {"x": x("middle"), "y": y})
    return [
        _layer("gap", {"type": "rect", "color": "#808080", "opacity": 0.22}, over),
        _layer("end", {"type": "rule", "opacity": 0}, epoch),
        bars if measure.mark == "bars" else line,
        _layer("restart", {"type": "rule", "strokeDash": [3, 3]}, epoch | _unless_unseen(0.55)),
        _layer("fork", {"type": "rule", "color": CHANGED, "strokeWidth": 1.5}, epoch | _unless_unseen(1)),
    ]


def _layer(kind: str, mark: dict[str, Any], encoding: dict[str, Any]) -> dict[str, Any]:
    only = [{"filter": f"datum.kind === '{kind}'"}]
    return {"transform": only, "mark": mark | {"aria": False, "tooltip": None}, "encoding": encoding}


def _unless_unseen(opacity: float) -> dict[str, Any]:
    return {"opacity": {"condition": {"test": "datum.unseen", "value": 0}, "value": opacity}}


def _edge(*, many: bool) -> dict[str, Any]:
    """A bar's edge: paper between bars, or of its own colour where it may be thinner than a pixel."""
    return {"stroke": ACCENT, "strokeWidth": 0.5} if many else {"xOffset": 0.75, "x2Offset": -0.75}


def _y_axis(unit: str) -> dict[str, Any]:
    """Few labels, each for itself: Vega's own way with several writes 0 as 0k and 10 as 1e+1."""
    return {
        "title": None,
        "tickCount": 2,
        "labelExpr": f"format(datum.value, ',~r') + ' {unit}'" if unit else "format(datum.value, '~s')",
        "minExtent": AXIS,
        "maxExtent": AXIS,
        "ticks": False,
        "domain": False,
        "labelPadding": 6,
        "labelLimit": AXIS - 6,  # a longer one would move the plot
    }


_X_SCALE = {"nice": False, "zero": False, "padding": 0}
_X_AXIS = {
    "title": None,
    "format": "d",
    "tickMinStep": 1,
    "grid": False,
    "labelFlush": True,
    "labelBound": True,  # a label beyond the end would make room for itself and move the plot
    "tickCount": {"expr": "width / 70"},
}
_NO_LABELS = {"title": None, "labels": False, "ticks": False, "grid": False}
