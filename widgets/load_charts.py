"""The plots of a query's load, one for each question, all over the same epochs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from streamstate.widgets.chart import (
    ACCENT,
    ADDED,
    CHANGED,
    CLOSE,
    EPOCHS,
    REMOVED,
    STROKES,
    Chart,
    aligned,
    layer,
    quantity,
    tooltips,
)

BINS = 200
"""The most bars and points of a line; beyond that, one stands for several epochs."""
_HEIGHT = 80
_AXIS = 56
"""Pixels that each plot reserves for its labels, so that the epochs are aligned."""
_FEW = 60
_GREY = "#808080"
_SQUARES = {"orient": "top", "symbolType": "square", "symbolSize": 80, "symbolStrokeWidth": 0}
_WHOLE = "whole epoch"
_PHASES = {
    "run": (("addBatch",), ACCENT),
    "plan": (("queryPlanning",), ADDED),
    "ask the sources": (("latestOffset", "getBatch", "getOffset", "setOffsetRange"), CHANGED),
    "write logs": (("walCommit", "commitOffsets", "commitBatch"), REMOVED),
}
"""Spark's phases as they are shown, with their colours."""

Series = Mapping[str, tuple[pd.Series, str]]
"""Values by epoch with their colour, by name."""


@dataclass(frozen=True)
class Path:
    """A forecast: the levels that a trend leads to, and the limit.

    Attributes:
        points: epochs and levels, ascending.
        limit: the limit; None if it is far above what is drawn.
    """

    points: Sequence[tuple[float, float]] = ()
    limit: float | None = None


@dataclass(frozen=True)
class LoadCharts:
    """The plots of some epochs.

    Attributes:
        name: the query's name.
        frame: the epochs, as :meth:`Load.to_pandas` has them.
        phases: the seconds of each phase, as :meth:`Load.phases` has them.
        state, backlog: forecasts.
    """

    name: str
    frame: pd.DataFrame
    phases: pd.DataFrame
    state: Path = Path()
    backlog: Path = Path()

    def all(self) -> Iterator[Chart]:
        """Yield the plots for which there are values."""
        yield from self._lines(
            "Rows per second", {"arrive": ("arrival_rate", CHANGED), "are processed": ("service_rate", ACCENT)}
        )
        yield from self._stack("Seconds", self._phases(), fold="mean")
        yield from self._lines(
            "Rows that wait in the sources", {"rows": ("backlog_rows", REMOVED)}, self.backlog, "max"
        )
        yield from self._lines(
            "Seconds from the arrival of the oldest row", {"latency": ("latency_seconds", CHANGED)}, fold="max"
        )
        sized = self.frame["state_bytes"].notna().any()
        what, column = ("Bytes of state", "state_bytes") if sized else ("Rows of state", "state_rows")
        yield from self._lines(what, {"state": (column, ADDED)}, self.state, "last")
        tasks = {"slowest task": ("worst_task_seconds", REMOVED), "median task": ("median_task_seconds", ACCENT)}
        yield from self._lines("Seconds of the longest stage", tasks, fold="max")
        shed = {"kept": ("kept_rows", ACCENT), "dropped": ("dropped_rows", REMOVED)}
        yield from self._stack("Rows", {name: (self.frame[column], colour) for name, (column, colour) in shed.items()})

    def _phases(self) -> dict[str, tuple[pd.Series[Any], str]]:
        found: dict[str, tuple[pd.Series[Any], str]] = {}
        for name, (parts, colour) in _PHASES.items():
            known = [part for part in parts if part in self.phases]
            found[name] = (self.phases[known].sum(axis=1, min_count=1), colour)
        alone = self.frame["seconds"].where(found["run"][0].isna())
        return found | {_WHOLE: (alone, _GREY)}

    @property
    def _width(self) -> int:
        return math.ceil(len(self.frame) / BINS)

    def _labelled(self, what: str) -> str:
        folded = f", {self._width:,} epochs per point" if self._width > 1 else ""
        return f"{what} of {self.name}, by epoch{folded}"

    def _folded(self, values: pd.Series[Any], fold: str) -> pd.Series[Any]:
        """Return values with their bins; the index has the first epoch of each."""
        epochs = self.frame["epoch"].to_numpy()
        bins = epochs[(np.arange(len(epochs)) // self._width) * self._width]
        numbers = values.astype("float64").replace([np.inf, -np.inf], np.nan)
        parts = numbers.groupby(bins)
        found: pd.Series[Any] = parts.sum(min_count=1) if fold == "sum" else parts.agg(fold)
        return found

    def _lines(
        self, what: str, columns: Mapping[str, tuple[str, str]], path: Path | None = None, fold: str = "mean"
    ) -> Iterator[Chart]:
        path = path or Path()
        known = {name: part for name, part in columns.items() if self.frame[part[0]].notna().any()}
        if not known:
            return
        folded = {name: self._folded(self.frame[column], fold) for name, (column, _) in known.items()}
        rows: list[dict[str, Any]] = [
            {"kind": "value", "what": name, "x": epoch + (self._width - 1) / 2, "y": _number(value)}
            for name, values in folded.items()
            for epoch, value in zip(values.index.tolist(), values.tolist(), strict=True)
        ]
        rows += [{"kind": "path", "what": "at this trend", "x": epoch, "y": level} for epoch, level in path.points]
        rows += [] if path.limit is None else [{"kind": "limit", "y": path.limit, "what": "the limit"}]
        colours = {name: colour for name, (_, colour) in known.items()}
        dots = {"point": {"size": 14, "filled": True}} if len(self.frame) <= _FEW else {}
        legend = _colour(colours, STROKES if len(known) > 1 else None)
        line = {"type": "line", "strokeWidth": 1.5, **dots}
        hint = tooltips({"what": "what", "x": "epoch", "y": "value"})
        layers = [layer("value", line, x=_x(), y=_y(), color=legend, tooltip=hint)]
        if path.points:
            dashed = {"type": "line", "strokeDash": [4, 3], "color": next(iter(colours.values()))}
            layers.append(layer("path", dashed, x=_x(), y=_y(), tooltip=hint))
        if path.limit is not None:
            layers.append(layer("limit", {"type": "rule", "strokeDash": [1, 2]}, y=_y(), tooltip=hint))
        yield self._chart(what, layers, rows)

    def _stack(self, what: str, series: Series, fold: str = "sum") -> Iterator[Chart]:
        known = {name: part for name, part in series.items() if part[0].notna().any()}
        if not known:
            return
        values = pd.DataFrame({name: self._folded(part, fold) for name, (part, _) in known.items()})
        tops = values.fillna(0).cumsum(axis=1)
        rows = [
            {
                "kind": "bar",
                "what": name,
                "first": int(epoch) - 0.5,
                "last": int(epoch) + self._width - 0.5,
                "epoch": int(epoch),
                "y": _number(values.loc[epoch, name]),
                "from": float(tops.loc[epoch, name] - values.loc[epoch, name]),
                "to": float(tops.loc[epoch, name]),
            }
            for name in known
            for epoch in values.index[values[name].notna()]
        ]
        colours = {name: colour for name, (_, colour) in known.items()}
        space = {"xOffset": 0.75, "x2Offset": -0.75} if len(values) <= _FEW else {}
        bar = {"type": "rect", **space}
        over = {"x": _x("first"), "x2": {"field": "last"}, "y": _y("from"), "y2": {"field": "to"}}
        titles = {"what": "what", "epoch": "epoch", "y": what.lower()}
        layers = [layer("bar", bar, **over, color=_colour(colours, _SQUARES), tooltip=tooltips(titles))]
        named = f"{what} {'kept and dropped' if 'kept' in known else 'by phase'}"
        yield self._chart(named, layers, rows)

    def _chart(self, what: str, layers: Sequence[dict[str, Any]], rows: list[dict[str, Any]]) -> Chart:
        """Return a plot over the epochs of all plots: to the newest one, or to the end of a forecast."""
        ahead = [path.points[-1][0] for path in (self.state, self.backlog) if path.points]
        last = max([float(self.frame["epoch"].iloc[-1]) + 0.5, *ahead])
        marks = [{"kind": "end", "x": end} for end in (float(self.frame["epoch"].iloc[0]) - 0.5, last)]
        spec = {"layer": [layer("end", {"type": "rule", "opacity": 0}, x=_x()), *layers]}
        return Chart(self._labelled(what), spec, [*marks, *rows], _HEIGHT)


def _number(value: Any) -> float | None:
    return None if pd.isna(value) else float(value)


def _x(field: str = "x") -> dict[str, Any]:
    return quantity(field, title=None, scale=CLOSE, axis=EPOCHS | {"format": ",d"})


def _y(field: str = "y") -> dict[str, Any]:
    label = "format(datum.value, abs(datum.value) < 1e4 ? ',.3~r' : '.3~s')"
    return quantity(field, title=None, scale={"zero": True}, axis=aligned(_AXIS, tickCount=3, labelExpr=label))


def _colour(colours: Mapping[str, str], legend: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "field": "what",
        "type": "nominal",
        "title": None,
        "scale": {"domain": list(colours), "range": list(colours.values())},
        "legend": legend,
    }
