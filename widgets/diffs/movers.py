"""The keys in which a column moved the most, as bars: up to the right, down to the left."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

from streamstate.widgets.chart import ADDED, REMOVED, Chart
from streamstate.widgets.diffs.drawing import Column
from streamstate.widgets.diffs.rows import Record, page_columns, signed
from streamstate.widgets.values import cell

__all__ = ["MOVERS", "movers_chart"]

MOVERS = 12
"""Bars at most."""
_LABEL = 40
_BAR = 22

_SAID = {
    "mark": {
        "type": "text",
        "align": {"expr": "datum.delta < 0 ? 'right' : 'left'"},
        "dx": {"expr": "datum.delta < 0 ? -4 : 4"},
        "opacity": 0.9,
    },
    "encoding": {"text": {"field": "said"}},
}
"""The signed number at the end of each bar. One layer for both directions: an empty one would have no extent."""


def movers_chart(records: Sequence[Record], columns: Sequence[Column], at: int) -> Chart:
    """The bars of some records, the largest first.

    Args:
        records: the rows of the diff that moved the most.
        columns: the table's columns.
        at: the number of the column that moved.
    """
    old, new, moved = page_columns(columns)[at]
    rows: list[dict[str, Any]] = []
    for number, record in enumerate(records):
        difference = record[moved]
        rows.append(
            {
                "row": number,
                "key": _label(record, columns, [row["key"] for row in rows]),
                "delta": _measure(difference),
                "said": signed(difference),
                "change": f"{cell(record[old]).text} → {cell(record[new]).text}",
            }
        )
    duration = any(isinstance(record[moved], dt.timedelta) for record in records)
    label = f"Largest movers of {columns[at].name}{' in seconds' if duration else ''}"
    return Chart(label, _spec(columns[at].name, duration=duration), rows, height=max(1, len(rows)) * _BAR)


def _label(record: Record, columns: Sequence[Column], taken: Sequence[str]) -> str:
    """The key in a few words, unlike those before it: a bar stands for one key."""
    text = " · ".join(cell(record[at + 1]).text for at, column in enumerate(columns) if column.key)
    short = text if len(text) <= _LABEL else text[: _LABEL - 1] + "…"
    again = sum(1 for label in taken if label.partition(" (")[0] == short)
    return f"{short} ({again + 1})" if again else short


def _measure(difference: Any) -> float:
    return difference.total_seconds() if isinstance(difference, dt.timedelta) else float(difference)


def _spec(name: str, *, duration: bool) -> dict[str, Any]:
    # A dot or a bracket in a field's name would be a path: the data have names of our own.
    y = {"field": "key", "type": "nominal", "sort": None, "axis": {"title": None, "labelLimit": 240, "ticks": False}}
    x = {
        "field": "delta",
        "type": "quantitative",
        "axis": {
            "title": f"{name}: difference{' in seconds' if duration else ''}",
            "tickCount": 5,
            "format": "+~s",
            "labelExpr": "datum.value === 0 ? '0' : datum.label",
        },
        "scale": {"padding": 56},
    }
    told = [
        {"field": "key", "title": "key"},
        {"field": "change", "title": name},
        {"field": "said", "title": "difference"},
    ]
    up = {"test": "datum.delta >= 0", "value": ADDED}
    bars = {
        "params": [{"name": "mover", "select": {"type": "point", "fields": ["row"], "on": "click"}}],
        "mark": {"type": "bar", "cursor": "pointer", "height": 14, "cornerRadiusEnd": 2},
        "encoding": {"color": {"condition": up, "value": REMOVED}, "tooltip": told},
    }
    return {
        "encoding": {"y": y, "x": x},
        "layer": [
            {
                "mark": {"type": "rule", "opacity": 0.4},
                "encoding": {"x": {"datum": 0}, "y": {"value": 0}, "y2": {"value": "height"}},
            },
            bars,
            _SAID,
        ],
    }
