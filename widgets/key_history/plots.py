"""The plots of one key: one for each column, all over the same epochs.

A value is drawn from its epoch until it is replaced. Null is dotted along the bottom; nothing is drawn while the key is
not in the state; gaps in the captured epochs are hatched, or grey if there are many.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamstate.state_inspect.cell_text import cell
from streamstate.widgets.chart import ACCENT, ADDED, REMOVED, Chart, aligned, clickable, layer, only, quantity, tooltips
from streamstate.widgets.key_history.story import EpochRuns, Story, ValueRun, binned, kind_of, measure, runs_of
from streamstate.widgets.number_text import amount

GAPS = 30
"""The most gaps that a plot shows; the longest are kept."""
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
"""The most gaps that are hatched; more are narrow, and grey."""
_AXIS = 48
"""Pixels that each plot reserves for its axis, so that the epochs are aligned."""
_HEIGHTS = {"number": 64, "time": 64, "other": 30}


def column_chart(story: Story, column: int, marked: Sequence[int], limit: int) -> Chart:
    """Return the plot of one column, with a line at each ``marked`` epoch.

    If there are more than ``limit`` runs, neighbours are combined.
    """
    kind = kind_of(story, column)
    runs = runs_of(story, column)
    drawn = binned(runs, limit)
    rows = [*_frame_rows(story.epochs, marked), *_events(story, limit), *_value_rows(story, drawn, kind)]
    label = f"{story.columns[column]}: {_summary(runs, drawn)}"
    layers = _strip_layers() if kind == "other" else _line_layers(kind, _format(drawn))
    spec: dict[str, Any] = {
        "layer": [*map(_silent, [*_frame_layers(story.epochs), *layers, _hover()])],
        "encoding": {"x": _X},
    }
    if kind == "other":
        spec["padding"] = {"left": _AXIS + 5, "right": 5, "top": 5, "bottom": 5}  # the width of the other plots' axis
    return Chart(label, spec, rows, _HEIGHTS[kind])


def _silent(layer: dict[str, Any]) -> dict[str, Any]:
    """Return a layer that screen readers skip: the plot has a name, and the table below holds all of its data."""
    if "layer" in layer:
        return layer | {"layer": [*map(_silent, layer["layer"])]}
    return layer | {"mark": layer["mark"] | {"aria": False}}


def _summary(runs: Sequence[ValueRun], drawn: Sequence[ValueRun]) -> str:
    last = f", last {cell(runs[-1].value).text}" if runs else ""
    values = f"{amount(len(runs), 'value')}{last}"
    return values if len(drawn) == len(runs) else f"{values}; {len(drawn):,} marks, each for several values"


def _frame_rows(epochs: EpochRuns, marked: Sequence[int]) -> list[dict[str, Any]]:
    """Return the span of all epochs, the gaps, and the marked epochs.

    Each layer has at least one row, even if it is invisible, because Vega warns of a scale without data.
    """
    first, end = epochs.captured[0], epochs.captured[-1] + 1
    longest = sorted(epochs.gaps, key=lambda gap: gap[0] - gap[1])[:GAPS]
    return [
        {"kind": "gap", "epoch": first, "to": first},
        {"kind": "null", "epoch": first, "to": first},
        {"kind": "span", "epoch": first, "to": end},
        *({"kind": "gap", "epoch": start, "to": last + 1} for start, last in sorted(longest)),
        *({"kind": "marked", "epoch": epoch, "there": 1} for epoch in marked),
        {"kind": "marked", "epoch": first, "there": 0},
        {"kind": "event", "epoch": first, "sign": ""},
    ]


def _events(story: Story, limit: int) -> list[dict[str, Any]]:
    """Return the epochs at which the key was added and removed; at most the newest ``limit``."""
    found = [change for change in story.changes if change.mark in ("+", "−")][-limit:]
    return [{"kind": "event", "epoch": change.epoch, "sign": change.mark} for change in found]


def _value_rows(story: Story, runs: Sequence[ValueRun], kind: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    before: ValueRun | None = None
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
            **_tooltip(story, run),
        }
        if place is not None:
            earlier = measure(before.value) if adjoins and before else None
            low, high = (place, place) if run.low is None else (measure(run.low), measure(run.high))
            row |= {"y": place, "before": place if earlier is None else earlier, "low": low, "high": high}
        rows.append(row)
        before = run
    return rows


def _tooltip(story: Story, run: ValueRun) -> dict[str, str]:
    """Return the texts of a run's tooltip."""
    change = story.changes[run.change]
    several = "one value"
    if run.count > 1:
        spread = "" if run.low is None else f", from {cell(run.low).text} to {cell(run.high).text}"
        several = f"{run.count:,} values, the last {cell(run.value).text}{spread}"
    return {
        "epochs": f"{run.start}–{run.end - 1}" if run.end - 1 > run.start else f"{run.start}",
        "cause": change.cause,
        "what": change.description,
        "committed": change.committed,
        "several": several,
    }


_X = quantity(
    "epoch",
    scale={"zero": False, "nice": False},
    axis={
        "title": None,
        "format": "d",
        "tickMinStep": 1,
        "tickCount": 8,
        "grid": False,
        # The last epoch ends where the next one would begin, which does not exist yet.
        "labelExpr": "datum.value >= domain('x')[1] ? '' : datum.label",
    },
)
_X2 = {"field": "to"}


def _frame_layers(epochs: EpochRuns) -> list[dict[str, Any]]:
    gap = _STRIPE if len(epochs.gaps) <= _HATCHED else "rgba(128,128,128,0.3)"
    dots = {"type": "rule", "strokeDash": [1, 3], "opacity": 0.8}
    dashed = {"type": "rule", "strokeDash": [4, 2], "strokeWidth": 1.5}
    sign = {"type": "text", "fontWeight": "bold", "fontSize": 13, "dx": 2, "align": "left"}
    colour = {"condition": {"test": "datum.sign === '+'", "value": ADDED}, "value": REMOVED}
    return [
        layer("span", {"type": "rect", "opacity": 0}, x2=_X2),
        layer("gap", {"type": "rect", "color": gap}, x2=_X2),
        layer("marked", dashed, opacity=quantity("there", scale=None)),
        layer("null", dots, x2=_X2, y={"value": "height"}),
        layer("event", sign, text={"field": "sign"}, y={"value": 0}, color=colour),
    ]


def _format(runs: Sequence[ValueRun]) -> str:
    """Return the format of an axis: plain numbers, or large ones with k, M and so on."""
    known = [abs(place) for run in runs if isinstance(place := measure(run.value), float)]
    return "~s" if max(known, default=0) >= 10_000 else ".4~g"


def _line_layers(kind: str, numbers: str) -> list[dict[str, Any]]:
    """Steps, because a value is current until it is replaced. A bin is a band from its lowest to its highest value."""
    axis = aligned(_AXIS, title=None, tickCount=3)
    if kind == "number":
        axis |= {"format": numbers, "labelExpr": "datum.value === 0 ? '0' : datum.label"}
    y = {
        "field": "y",
        "type": "temporal" if kind == "time" else "quantitative",
        "scale": {"padding": 6} if kind == "time" else {"padding": 6, "zero": False},
        "axis": axis,
    }
    line = {"color": ACCENT, "strokeWidth": 2}
    band = {"type": "rect", "color": ACCENT, "opacity": 0.25}
    dot = {"type": "point", "filled": True, "size": 22, "color": ACCENT, "opacity": 1}
    return [
        {
            "transform": only("value"),
            "encoding": {"x2": _X2},
            "layer": [
                {"mark": band, "encoding": {"y": {**y, "field": "low"}, "y2": {"field": "high"}}},
                {"mark": {"type": "rule", **line}, "encoding": {"y": y}},
            ],
        },
        layer("value", {"type": "rule", **line, "strokeWidth": 1}, y={**y, "field": "before"}, y2={"field": "y"}),
        layer("value", dot, y=y),
    ]


def _strip_layers() -> list[dict[str, Any]]:
    """Bars with their values in them, if there is room."""
    wide = "scale('x', datum.to) - scale('x', datum.epoch)"
    drawn = [{"filter": "datum.kind === 'value' || datum.kind === 'span'"}]
    return [
        {
            "transform": drawn,
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
            "transform": drawn,
            "mark": {"type": "text", "align": "left", "dx": 5, "y": 19, "limit": {"expr": f"max(1, {wide} - 10)"}},
            "encoding": {
                "text": {"field": "text"},
                "opacity": {"condition": {"test": f"datum.kind === 'value' && {wide} > 24", "value": 1}, "value": 0},
            },
        },
    ]


def _hover() -> dict[str, Any]:
    """Return the layer on top that takes hovers and clicks: each run from top to bottom."""
    titles = {"epochs": "epochs", "text": "value", "what": "change", "cause": "cause", "committed": "committed"}
    return {
        "transform": [{"filter": "isValid(datum.row)"}],
        "params": clickable("change"),
        "mark": {"type": "rect", "opacity": 0, "cursor": "pointer"},
        "encoding": {"x2": _X2, "tooltip": tooltips(titles | {"several": "stands for"})},
    }
