"""The plots of a timeline: one for each measure, all with the same data and the same axis of epochs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from streamstate.widgets.chart import ADDED, CHANGED, CLOSE, EPOCHS, GAP, Chart, aligned, bars, layer, quantity
from streamstate.widgets.number_text import unit_for
from streamstate.widgets.timeline.epochs import MEASURES, EpochMarks, EpochPoint, Measure

HEIGHT = 54
AXIS = 60
"""Pixels that each plot reserves for its labels, so that the epochs are aligned."""
_MANY = 120
"""Beyond this many epochs, bars have no space between them and lines no dots."""


def shown_measures(points: Sequence[EpochPoint]) -> list[Measure]:
    """Return the measures that are recorded for any of the points."""
    return [measure for measure in MEASURES if any(point.values[measure.name] is not None for point in points)]


def rows(points: Sequence[EpochPoint]) -> list[dict[str, Any]]:
    """Return the points as data for the plots; lines are interrupted where there is no value."""
    return [{"kind": "point", "first": point.first, "last": point.last, **point.values} for point in points]


def mark_rows(points: Sequence[EpochPoint], marks: EpochMarks) -> list[dict[str, Any]]:
    """Return the marks and the two ends of the axis, as data for the plots."""
    ends = (points[0].first - 0.5, points[-1].last + 0.5)
    return [
        *({"kind": "end", "epoch": end} for end in ends),
        *_unseen(points[0].first),
        *({"kind": "gap", "first": first, "last": last} for first, last in marks.gaps),
        *({"kind": "restart", "epoch": epoch - 0.5} for epoch in marks.restarts),
        *({"kind": "fork", "epoch": fork.epoch + 0.5} for fork in marks.forks),
        *({"kind": "variable", "epoch": mark.epoch - 0.5, "text": mark.text} for mark in marks.variables),
        *({"kind": "version", "epoch": mark.epoch + 0.5} for mark in marks.versions),
    ]


def _unseen(epoch: int) -> Iterator[dict[str, Any]]:
    """Yield an invisible mark of each kind: without data for a layer, Vega logs a warning in the page's console."""
    yield {"kind": "gap", "first": epoch, "last": epoch - 1}
    yield from ({"kind": kind, "epoch": epoch, "unseen": True} for kind in ("restart", "fork", "variable", "version"))


def charts(
    name: str, points: Sequence[EpochPoint], width: int, data: Sequence[Mapping[str, Any]] = ()
) -> Iterator[Chart]:
    """Yield a chart for each recorded measure, with ``width`` epochs per bin.

    If ``data`` is empty, the page adds the rows to draw, and the titles.
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
    """Return a measure's title, if a bin has ``width`` epochs.

    Example:
        >>> titled(MEASURES[0], 20)
        'Input rows (sum of 20 epochs)'
    """
    return measure.title if width == 1 else f"{measure.title} ({measure.fold} of {width:,} epochs)"


def _unit(measure: Measure, points: Sequence[EpochPoint]) -> tuple[str, float]:
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
        return quantity(field, scale=CLOSE, axis=_X_AXIS if last else _NO_LABELS)

    y = quantity("y", axis=_y_axis(unit), scale={"zero": measure.mark == "bars"})
    over = {"x": x("from"), "x2": {"field": "to"}}
    dots = {} if many else {"point": {"size": 12, "filled": True}}
    if measure.mark == "bars":
        values = _layer("point", bars(many=many), **over, y=y, y2={"datum": 0})
    else:
        values = _layer("point", {"type": "line", "strokeWidth": 1.5, **dots}, x=x("middle"), y=y)
    variable = {"color": ADDED, "strokeWidth": 2, "strokeDash": [2, 2]}
    return [
        _layer("gap", GAP, **over),
        _layer("end", {"type": "rule", "opacity": 0}, x=x("epoch")),
        values,
        _layer("restart", {"type": "rule", "strokeDash": [3, 3]}, x=x("epoch"), opacity=_unless_unseen(0.55)),
        _layer("fork", {"type": "rule", "color": CHANGED, "strokeWidth": 1.5}, x=x("epoch"), opacity=_unless_unseen(1)),
        _layer("variable", {"type": "rule", **variable}, x=x("epoch"), opacity=_unless_unseen(1)),
        _layer("version", {"type": "rule", "strokeWidth": 3}, x=x("epoch"), opacity=_unless_unseen(1)),
    ]


def _layer(kind: str, mark: dict[str, Any], **encoding: Any) -> dict[str, Any]:
    return layer(kind, mark | {"aria": False, "tooltip": None}, **encoding)


def _unless_unseen(opacity: float) -> dict[str, Any]:
    return {"condition": {"test": "datum.unseen", "value": 0}, "value": opacity}


def _y_axis(unit: str) -> dict[str, Any]:
    """Few labels, each formatted by itself: Vega's common format writes 0 as 0k and 10 as 1e+1."""
    label = f"format(datum.value, ',~r') + ' {unit}'" if unit else "format(datum.value, '~s')"
    return aligned(AXIS, title=None, tickCount=2, labelExpr=label, ticks=False, domain=False, labelPadding=6)


_X_AXIS = EPOCHS | {"title": None, "format": "d"}
_NO_LABELS = {"title": None, "labels": False, "ticks": False, "grid": False}
