"""The drawing of a comparison: plain data and plots, JSON for a page, text and still HTML."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from streamstate.snapshots.calls.html import Html
from streamstate.state_inspect.values import number
from streamstate.widgets.chart import ADDED, CHANGED, REMOVED, Chart
from streamstate.widgets.plot_forms import STROKES, WHOLE, quantity
from streamstate.widgets.still import frame, sentences_and_figures

BINS = 200
"""The most bars; beyond that, a bar covers several epochs and shows the largest of them."""
KINDS = {"differing": "different values", "only_here": "only here", "only_there": "only there"}


@dataclass(frozen=True)
class ComparisonDrawing:
    """The comparison of one table in words, the plot of how many keys differ, and the plots of single keys' values.

    ``tables`` and ``columns`` can be chosen; ``column`` is None if no numbers differ.
    """

    names: tuple[str, str]
    tables: Sequence[str]
    table: str
    columns: Sequence[str]
    column: str | None
    sentences: Sequence[str]
    epochs: Chart | None = None
    values: Sequence[Chart] = ()

    @property
    def name(self) -> str:
        """Both names."""
        return f"{self.names[0]} and {self.names[1]}"

    def message(self) -> dict[str, Any]:
        """Return the drawing as JSON types."""
        return {
            "name": self.name,
            "tables": list(self.tables),
            "table": self.table,
            "columns": list(self.columns),
            "column": self.column,
            "sentences": list(self.sentences),
            "epochs": self.epochs and self.epochs.message(),
            "values": [chart.message() for chart in self.values],
        }

    def text(self) -> str:
        """Return the comparison in sentences."""
        return " ".join(self.sentences)

    def html(self) -> Html:
        """Return the comparison as still pictures, without scripts."""
        charts = [*([self.epochs] if self.epochs else []), *self.values]
        return frame(self.name, [], sentences_and_figures(self.sentences, charts))


def differing_chart(frame: pd.DataFrame, table: str) -> Chart:
    """Plot the keys of a table that differ, by epoch and kind, from its rows of :meth:`Comparison.epochs`."""
    width = math.ceil(len(frame) / BINS)
    rows = []
    for start in range(0, len(frame), width):
        part = frame.iloc[start : start + width]
        for kind, word in KINDS.items():
            if keys := int(part[kind].max()):
                rows.append({"epoch": int(part["epoch"].iloc[0]), "keys": keys, "what": word})
    binned = "" if width == 1 else f", the most in {width:,} epochs per bar"
    bar = max(2, min(18, 480 // max(1, math.ceil(len(frame) / width))))
    scale = _scale(int(frame["epoch"].min()), int(frame["epoch"].max()))
    spec = {
        "mark": {"type": "bar", "tooltip": True, "width": bar},
        "encoding": {
            "x": quantity("epoch", title="epoch", axis=WHOLE, scale=scale),
            "y": quantity("keys", title="keys"),
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
    """Return one key's values in both branches; None if neither has a number.

    ``both`` holds, for each branch, the values at the epochs at which they changed.
    """
    rows = list(_steps(names, epochs, both))
    if not any(row["value"] is not None for row in rows):
        return None
    branch = {"field": "timeline", "type": "nominal", "title": None, "legend": STROKES, "sort": None}
    spec = {
        "mark": {"type": "line", "interpolate": "step-after", "point": len(epochs) < 40, "tooltip": True},
        "encoding": {
            "x": quantity("epoch", title=None, axis=WHOLE, scale=_scale(epochs[0], epochs[-1])),
            "y": quantity("value", title=None, scale={"zero": False}),
            "color": branch,
            "strokeDash": branch,
        },
    }
    return Chart(label, spec, rows, height=80)


def _scale(first: int, last: int) -> dict[str, Any]:
    return {"domain": [first - 0.5, last + 0.5], "nice": False}


def _steps(
    names: tuple[str, str], epochs: Sequence[int], both: Sequence[Mapping[int, Any]]
) -> Iterator[dict[str, Any]]:
    """Yield the epochs at which a branch's value changed, and the first and last epoch."""
    for name, changes in zip(names, both, strict=True):
        current = max((epoch for epoch in changes if epoch <= epochs[0]), default=None)
        for epoch in epochs:
            if epoch in changes:
                current = epoch
            if epoch in changes or epoch in (epochs[0], epochs[-1]):
                value = None if current is None else number(changes[current])
                yield {"epoch": epoch, "value": value, "timeline": name}
