"""A plot of estimates with their errors, beside the truth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamstate.widgets.chart import ADDED, Chart

if TYPE_CHECKING:
    import pandas as pd
    from IPython.display import HTML


def error_bars(estimates: pd.DataFrame, label: str) -> HTML:
    """Draw each estimate in percent of the truth, with a bar of 2.5 errors to either side.

    Args:
        estimates: a row for each group, named by the index, with the columns ``estimate``, ``error`` and ``truth``.
        label: what the numbers are.
    """
    from IPython.display import HTML

    percent = 100 / estimates["truth"]
    off = (estimates["estimate"] - estimates["truth"]) * percent
    wide = 2.5 * estimates["error"] * percent
    rows = [
        {"group": str(group), "off": middle, "low": middle - half, "high": middle + half}
        for group, middle, half in zip(estimates.index, off, wide, strict=True)
    ]

    def at(field: str) -> dict[str, object]:
        axis = {"title": "off the truth, %", "tickCount": 5}
        return {"field": field, "type": "quantitative", "axis": axis}

    groups = {"field": "group", "type": "nominal", "sort": None, "axis": {"title": None, "labelAngle": 0}}
    spec = {
        "title": label,
        "layer": [
            {"mark": {"type": "rule", "strokeDash": [4, 3], "color": ADDED}, "encoding": {"y": {"datum": 0}}},
            {
                "mark": {"type": "rule", "strokeWidth": 2},
                "encoding": {"x": groups, "y": at("low"), "y2": {"field": "high"}},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 45, "opacity": 1},
                "encoding": {"x": groups, "y": at("off")},
            },
        ],
    }
    return HTML(Chart(label, spec, rows, height=200).svg(720))
