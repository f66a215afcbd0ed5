"""What a comparison shows, as plain data and plots: which epochs differ, and a column in both timelines."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pandas as pd

from streamstate.widgets.chart import ADDED, CHANGED, REMOVED, Chart
from streamstate.widgets.values import plain

__all__ = ["BINS", "KINDS", "View", "differing_chart", "values_chart"]

BINS = 200
"""Bars at most; where there are more epochs, a bar stands for several of them and shows the most of one."""
KINDS = {"differing": "other values", "only_here": "only here", "only_there": "only there"}


@dataclass(frozen=True)
class View:
    """Everything one drawing needs.

    Attributes:
        names: what the two timelines are called.
        table: the state table that is shown, one of ``tables``.
        column: the column whose values are drawn, one of ``columns``; None where no numbers differ.
        told: what is said of both, in sentences.
        epochs: the plot of how many keys differ.
        values: the plots of single keys.
    """

    names: tuple[str, str]
    tables: Sequence[str]
    table: str
    columns: Sequence[str]
    column: str | None
    told: Sequence[str]
    epochs: Chart | None = None
    values: Sequence[Chart] = ()

    @property
    def name(self) -> str:
        """Both names."""
        return f"{self.names[0]} and {self.names[1]}"

    def message(self) -> dict[str, Any]:
        """The view as JSON types."""
        return {
            "name": self.name,
            "tables": list(self.tables),
            "table": self.table,
            "columns": list(self.columns),
            "column": self.column,
            "told": list(self.told),
            "epochs": self.epochs and self.epochs.message(),
            "values": [chart.message() for chart in self.values],
        }


def differing_chart(frame: pd.DataFrame, table: str) -> Chart:
    """How many keys differ at each epoch, and how.

    Args:
        frame: the rows of :meth:`Comparison.epochs` that are of one table.
        table: which one.
    """
    width = math.ceil(len(frame) / BINS)
    rows = []
    for start in range(0, len(frame), width):
        part = frame.iloc[start : start + width]
        for kind, word in KINDS.items():
            if number := int(part[kind].max()):
                rows.append({"epoch": int(part["epoch"].iloc[0]), "keys": number, "what": word})
    binned = "" if width == 1 else f", the most of {width:,} epochs a bar"
    bar = max(2, min(18, 480 // max(1, math.ceil(len(frame) / width))))
    spec = {
        "mark": {"type": "bar", "tooltip": True, "width": bar},
        "encoding": {
            "x": {"field": "epoch", "type": "quantitative", "title": "epoch", "axis": _WHOLE, "scale": _scale(frame)},
            "y": {"field": "keys", "type": "quantitative", "title": "keys"},
            "color": {
                "field": "what",
                "type": "nominal",
                "title": None,
                "scale": {"domain": [*KINDS.values()], "range": [CHANGED, REMOVED, ADDED]},
                "legend": {"orient": "top"},
            },
        },
    }
    return Chart(f"Keys of {table} that differ, by epoch{binned}", spec, rows, height=110)


def values_chart(
    label: str, names: tuple[str, str], epochs: Sequence[int], both: Sequence[Mapping[int, Any]]
) -> Chart | None:
    """One key's values in both timelines; None where neither has a number.

    Args:
        label: the column and the key, in words.
        names: what the two timelines are called.
        epochs: those that are compared, ascending.
        both: what each timeline's value became, at the epochs at which it changed.
    """
    rows = list(_steps(names, epochs, both))
    if not any(row["value"] is not None for row in rows):
        return None
    legend = {"orient": "top", "symbolType": "stroke", "symbolSize": 200}
    spec = {
        "mark": {"type": "line", "interpolate": "step-after", "point": len(epochs) < 40, "tooltip": True},
        "encoding": {
            "x": {"field": "epoch", "type": "quantitative", "title": None, "axis": _WHOLE, "scale": _nice(epochs)},
            "y": {"field": "value", "type": "quantitative", "title": None, "scale": {"zero": False}},
            "color": {"field": "timeline", "type": "nominal", "title": None, "legend": legend, "sort": None},
            "strokeDash": {"field": "timeline", "type": "nominal", "title": None, "legend": legend, "sort": None},
        },
    }
    return Chart(label, spec, rows, height=80)


_WHOLE = {"format": ",d", "tickMinStep": 1}


def _scale(frame: pd.DataFrame) -> dict[str, Any]:
    return _nice([int(frame["epoch"].min()), int(frame["epoch"].max())])


def _nice(epochs: Sequence[int]) -> dict[str, Any]:
    return {"domain": [epochs[0] - 0.5, epochs[-1] + 0.5], "nice": False}


def _steps(
    names: tuple[str, str], epochs: Sequence[int], both: Sequence[Mapping[int, Any]]
) -> Iterator[dict[str, Any]]:
    """Where each timeline's value became another, and the last epoch."""
    for name, changes in zip(names, both, strict=True):
        now = None
        earlier = [epoch for epoch in changes if epoch <= epochs[0]]
        if earlier:
            now = _number(changes[max(earlier)])
        for epoch in epochs:
            changed = epoch in changes
            now = _number(changes[epoch]) if changed else now
            if changed or epoch in (epochs[0], epochs[-1]):
                yield {"epoch": epoch, "value": now, "timeline": name}


def _number(value: Any) -> float | None:
    value = plain(value)
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)) or not math.isfinite(value):
        return None
    return float(value)
