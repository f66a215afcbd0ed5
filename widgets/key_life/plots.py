"""Small multiples of one key: a plot for each column, all over the same epochs.

A value holds from its epoch until it is replaced. Null is dotted along the bottom; where the key is not there, there
is nothing; gaps in what was captured are hatched, or grey where there are many.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamstate.widgets.chart import ACCENT, ADDED, REMOVED, Chart
from streamstate.widgets.key_life.runs import Run, binned, kind_of, measure, runs_of
from streamstate.widgets.key_life.story import Epochs, Story
from streamstate.widgets.values import cell

__all__ = ["GAPS", "column_chart", "gaps_drawn"]

GAPS = 30
"""Gaps that are drawn in a plot; the longest, where there are more."""
_STRIPE = {
    "gradient": "linear",
    "x1": 0,
    "y1": 0,
    "x2": 0,
    "y2": 1,
    "stops": [
        {"offset": (stripe + side) / 16, "color": ("rgba(128,128,128,0.45)", "rgba(128,128,128,0.08)")[stripe % 2]}
        for stripe in range(16)
        for side in (0, 0.999)
    ],
}
_HATCHED = 8
"""Gaps that are hatched; where there are more they are narrow, and grey."""
_AXIS = 48
"""Pixels that an axis of values takes, so that all plots begin at the same place."""
_HEIGHTS = {"number": 64, "time": 64, "other": 30}


def column_chart(story: Story, column: int, epochs: Epochs, marked: Sequence[int], limit: int) -> Chart:
    """The plot of one column.

    Args:
        story: the key's.
        column: which of its columns.
        epochs: those of the query.
        marked: epochs to draw a line at.
        limit: runs to draw at most; of more, those that begin close together are drawn as one.
    """
    kind = kind_of(story, column)
    runs = runs_of(story, column)
    drawn = binned(runs, limit)
    rows = [*_frame_rows(epochs, marked), *_events(story, limit), *_value_rows(story, drawn, kind)]
    label = f"{story.columns[column]}: {_told(runs, drawn)}"
    layers = _strip_layers() if kind == "other" else _line_layers(kind, _format(drawn))
    spec: dict[str, Any] = {
        "layer": [*map(_silent, [*_frame_layers(epochs), *layers, _hover()])],
        "encoding": {"x": _X},
    }
    if kind == "other":
        spec["padding"] = {"left": _AXIS + 5, "right": 5, "top": 5, "bottom": 5}  # as the axis that the others have
    return Chart(label, spec, rows, _HEIGHTS[kind])


def _silent(layer: dict[str, Any]) -> dict[str, Any]:
    """A layer whose marks are not read aloud one by one: the plot has a name, and the table below says all of it."""
    if "layer" in layer:
        return layer | {"layer": [*map(_silent, layer["layer"])]}
    return layer | {"mark": layer["mark"] | {"aria": False}}


def gaps_drawn(epochs: Epochs) -> Sequence[tuple[int, int]]:
    """The gaps that a plot shows: all, or the longest."""
    longest = sorted(epochs.gaps, key=lambda gap: gap[0] - gap[1])[:GAPS]
    return sorted(longest)


def _told(runs: Sequence[Run], drawn: Sequence[Run]) -> str:
    last = f", last {cell(runs[-1].value).text}" if runs else ""
    values = f"{len(runs):,} value{'s' * (len(runs) != 1)}{last}"
    return values if len(drawn) == len(runs) else f"{values}; {len(drawn):,} marks, each for several"


def _frame_rows(epochs: Epochs, marked: Sequence[int]) -> list[dict[str, Any]]:
    """The span of all epochs, the gaps, and the epochs that are looked at.

    Each layer has a row at least, though it shows nothing: Vega warns of a scale over no data.
    """
    first, end = epochs.captured[0], epochs.captured[-1] + 1
    rows: list[dict[str, Any]] = [
        {"kind": "gap", "epoch": first, "to": first},
        {"kind": "null", "epoch": first, "to": first},
    ]
    rows.append({"kind": "span", "epoch": first, "to": end})
    rows += [{"kind": "gap", "epoch": start, "to": last + 1} for start, last in gaps_drawn(epochs)]
    rows += [{"kind": "marked", "epoch": epoch, "there": 1} for epoch in marked]
    return [*rows, {"kind": "marked", "epoch": first, "there": 0}, {"kind": "event", "epoch": first, "sign": ""}]


def _events(story: Story, limit: int) -> list[dict[str, Any]]:
    """Where the key came and went; the newest, where there are many."""
    found = [one for one in story.changes if one.mark in ("+", "−")][-limit:]
    return [{"kind": "event", "epoch": one.epoch, "sign": one.mark} for one in found]


def _value_rows(story: Story, runs: Sequence[Run], kind: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    before: Run | None = None
    for at, run in enumerate(runs):
        adjoins = before is not None and before.end == run.start
        place = None if kind == "other" else measure(run.value)
        row: dict[str, Any] = {
            "kind": "null" if run.value is None or (place is None and kind != "other") else "value",
            "epoch": run.start,
            "to": run.end,
            "row": run.change,
            "text": cell(run.value).text,
            "odd": at % 2,
            **_told_of(story, run),
        }
        if place is not None:
            earlier = measure(before.value) if adjoins and before else None
            row |= {"y": place, "before": place if earlier is None else earlier}
            row |= (
                {"low": place, "high": place}
                if run.low is None
                else {"low": measure(run.low), "high": measure(run.high)}
            )
        rows.append(row)
        before = run
    return rows


def _told_of(story: Story, run: Run) -> dict[str, str]:
    """What is said of a run when it is pointed at."""
    change = story.changes[run.change]
    until = f"{run.start}–{run.end - 1}" if run.end - 1 > run.start else f"{run.start}"
    told = {
        "epochs": until,
        "cause": change.cause,
        "what": change.said,
        "committed": change.committed,
        "several": "one value",
    }
    if run.count > 1:
        several = f"{run.count:,} values, the last {cell(run.value).text}"
        spread = "" if run.low is None else f", from {cell(run.low).text} to {cell(run.high).text}"
        told |= {"several": several + spread}
    return told


_X = {
    "field": "epoch",
    "type": "quantitative",
    "scale": {"zero": False, "nice": False},
    "axis": {
        "title": None,
        "format": "d",
        "tickMinStep": 1,
        "tickCount": 8,
        "grid": False,
        # The last epoch ends where the next would begin; that one is not there.
        "labelExpr": "datum.value >= domain('x')[1] ? '' : datum.label",
    },
}
_X2 = {"field": "to"}


def _of(kind: str) -> list[dict[str, Any]]:
    return [{"filter": f"datum.kind === '{kind}'"}]


def _frame_layers(epochs: Epochs) -> list[dict[str, Any]]:
    gap = _STRIPE if len(epochs.gaps) <= _HATCHED else "rgba(128,128,128,0.3)"
    dots = {"type": "rule", "strokeDash": [1, 3], "opacity": 0.8}
    return [
        {"transform": _of("span"), "mark": {"type": "rect", "opacity": 0}, "encoding": {"x2": _X2}},
        {"transform": _of("gap"), "mark": {"type": "rect", "color": gap}, "encoding": {"x2": _X2}},
        {
            "transform": _of("marked"),
            "mark": {"type": "rule", "strokeDash": [4, 2], "strokeWidth": 1.5},
            "encoding": {"opacity": {"field": "there", "type": "quantitative", "scale": None}},
        },
        {"transform": _of("null"), "mark": dots, "encoding": {"x2": _X2, "y": {"value": "height"}}},
        {
            "transform": _of("event"),
            "mark": {"type": "text", "fontWeight": "bold", "fontSize": 13, "dx": 2, "align": "left"},
            "encoding": {
                "text": {"field": "sign"},
                "y": {"value": 0},
                "color": {"condition": {"test": "datum.sign === '+'", "value": ADDED}, "value": REMOVED},
            },
        },
    ]


def _format(runs: Sequence[Run]) -> str:
    """How an axis writes numbers: as they are, large ones with k, M and so on."""
    known = [abs(place) for run in runs if isinstance(place := measure(run.value), float)]
    return "~s" if max(known, default=0) >= 10_000 else ".4~g"


def _line_layers(kind: str, numbers: str) -> list[dict[str, Any]]:
    """Steps: the value holds until it is replaced. A bin is a band from its lowest to its highest value."""
    axis: dict[str, Any] = {
        "title": None,
        "tickCount": 3,
        "minExtent": _AXIS,
        "maxExtent": _AXIS,
        "labelLimit": _AXIS - 6,
    }
    if kind == "number":
        axis |= {"format": numbers, "labelExpr": "datum.value === 0 ? '0' : datum.label"}
    y = {
        "field": "y",
        "type": "temporal" if kind == "time" else "quantitative",
        "scale": {"padding": 6} if kind == "time" else {"padding": 6, "zero": False},
        "axis": axis,
    }
    line = {"color": ACCENT, "strokeWidth": 2}
    return [
        {
            "transform": _of("value"),
            "encoding": {"x2": _X2},
            "layer": [
                {
                    "mark": {"type": "rect", "color": ACCENT, "opacity": 0.25},
                    "encoding": {"y": {**y, "field": "low"}, "y2": {"field": "high"}},
                },
                {"mark": {"type": "rule", **line}, "encoding": {"y": y}},
            ],
        },
        {
            "transform": _of("value"),
            "mark": {"type": "rule", **line, "strokeWidth": 1},
            "encoding": {"y": {**y, "field": "before"}, "y2": {"field": "y"}},
        },
        {
            "transform": _of("value"),
            "mark": {"type": "point", "filled": True, "size": 22, "color": ACCENT, "opacity": 1},
            "encoding": {"y": y},
        },
    ]


def _strip_layers() -> list[dict[str, Any]]:
    """Stretches with their values written in them, where there is room."""
    wide = "scale('x', datum.to) - scale('x', datum.epoch)"
    return [
        {
            "transform": [{"filter": "datum.kind === 'value' || datum.kind === 'span'"}],
            "mark": {"type": "rect", "color": ACCENT, "stroke": ACCENT, "strokeWidth": 1, "strokeOpacity": 0.7},
            "encoding": {
                "x2": _X2,
                "y": {"value": 8},
                "y2": {"value": "height"},
                "opacity": {"condition": {"test": "datum.kind === 'span'", "value": 0}, "value": 1},
                "fillOpacity": {"condition": {"test": "datum.odd === 1", "value": 0.3}, "value": 0.15},
            },
        },
        {
            "transform": [{"filter": "datum.kind === 'value' || datum.kind === 'span'"}],
            "mark": {"type": "text", "align": "left", "dx": 5, "y": 19, "limit": {"expr": f"max(1, {wide} - 10)"}},
            "encoding": {
                "text": {"field": "text"},
                "opacity": {"condition": {"test": f"datum.kind === 'value' && {wide} > 24", "value": 1}, "value": 0},
            },
        },
    ]


def _hover() -> dict[str, Any]:
    """Over everything, what can be pointed at and clicked: each run from top to bottom."""
    told = [
        ("epochs", "epochs"),
        ("text", "value"),
        ("what", "change"),
        ("cause", "cause"),
        ("committed", "committed"),
        ("several", "stands for"),
    ]
    return {
        "transform": [{"filter": "isValid(datum.row)"}],
        "params": [{"name": "change", "select": {"type": "point", "fields": ["row"], "on": "click"}}],
        "mark": {"type": "rect", "opacity": 0, "cursor": "pointer"},
        "encoding": {"x2": _X2, "tooltip": [{"field": field, "title": title} for field, title in told]},
    }
