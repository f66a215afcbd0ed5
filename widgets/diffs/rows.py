"""Rows of a diff as cells, and the keys that moved the most as bars."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from streamstate.state_inspect.cell_text import Cell, canonical, cell
from streamstate.widgets.chart import ADDED, REMOVED, Chart, clickable, quantity, tooltips
from streamstate.widgets.diffs.drawing import DiffCell, DiffColumn, DiffRow
from streamstate.widgets.number_text import described
from streamstate.widgets.still import MARKS

DIFFERENCE = 2
"""The place of the difference among its column's places in a page, after the old and the new value."""
MOVERS = 12
"""The most bars."""
_LABEL = 40
"""Characters of a bar's label."""
_BAR = 22
"""Pixels per bar."""

DiffRecord = tuple[Any, ...]
"""A row of a page, by position."""


def key_of(record: DiffRecord, columns: Sequence[DiffColumn]) -> Mapping[str, Any]:
    """Return the key columns of a record with their values."""
    return {column.name: record[column.places[0]] for column in columns if column.key}


def record_row(record: DiffRecord, columns: Sequence[DiffColumn]) -> DiffRow:
    """Return a record as a row of cells."""
    keys = [column.cell(record[column.places[0]]) for column in columns if column.key]
    values = [_value(record, column) for column in columns if not column.key]
    epochs = [] if record[-1] is None else [int(epoch) for epoch in record[-1]]
    words = described(epochs) if epochs else ""
    return DiffRow(MARKS[record[0]], keys, values, record[-2] or "", words, max(epochs, default=None))


def _value(record: DiffRecord, column: DiffColumn) -> DiffCell:
    old, new = (record[place] for place in column.places[:DIFFERENCE])
    if record[0] != "changed":
        return DiffCell(column.cell(new if record[0] == "added" else old))
    if canonical(old) == canonical(new):
        return DiffCell(column.cell(new))
    before, after = column.cell(old), column.cell(new)
    if isinstance(old, dt.datetime) or column.expires:
        before, after = _one_day(before, after)
    return DiffCell(after, before, signed(_moved(record, column)) if column.moves else "")


def _moved(record: DiffRecord, column: DiffColumn) -> Any:
    """Return the difference of a value."""
    moved = record[column.places[DIFFERENCE]]
    return dt.timedelta(milliseconds=moved) if column.expires and moved is not None else moved


def _one_day(old: Cell, new: Cell) -> tuple[Cell, Cell]:
    """Two times; if they are of one day, the day is shown once, and so is the zone.

    Example:
        >>> old, new = _one_day(Cell("2026-01-01 05:00:00 +01:00"), Cell("2026-01-01 06:30:00 +01:00"))
        >>> old.text, new.text
        ('2026-01-01 05:00:00', '06:30:00 +01:00')
    """
    day, _, rest = new.text.partition(" ")
    if not rest or not old.text.startswith(f"{day} "):
        return old, new
    zone = rest.partition(" ")[2]
    return (
        replace(old, text=old.text.removesuffix(f" {zone}"), whole=old.text),
        replace(new, text=rest, whole=new.text),
    )


def finite(difference: Any) -> bool:
    """Check if a difference can be drawn as a bar."""
    return isinstance(difference, dt.timedelta) or math.isfinite(difference)


def signed(difference: Any) -> str:
    """Return a difference with its sign; empty if it is None.

    Example:
        >>> signed(-1200), signed(0.5), signed(dt.timedelta(minutes=-90)), signed(None)
        ('−1,200', '+0.5', '−1:30:00', '')
    """
    if difference is None:
        return ""
    if isinstance(difference, dt.timedelta):
        sign = "−" if difference < dt.timedelta(0) else "+"
        length = abs(difference)
        return sign + str(length.to_pytimedelta() if hasattr(length, "to_pytimedelta") else length)
    if isinstance(difference, int):
        text = f"{difference:+,}"
    else:
        text = f"{difference:+,f}" if isinstance(difference, Decimal) else f"{float(difference):+,.6g}"
    return text.replace("-", "−")


def labels_of(records: Sequence[DiffRecord], columns: Sequence[DiffColumn]) -> tuple[list[str], str]:
    """A short text for each key, from the parts in which the keys differ; and the parts that they have in common.

    Vega merges bars of the same label, so that the labels differ in any case.
    """
    names = [column.name for column in columns if column.key]
    parts = list(zip(*(key_of(record, columns).values() for record in records), strict=True))
    apart = [_split_texts(part) for part in parts]
    common = [f"{name} {shared}" for name, (_, shared) in zip(names, apart, strict=False) if shared]
    distinct = [texts for texts, _ in apart if any(texts)]
    if not distinct:  # a single key, or keys whose texts are alike
        distinct, common = [[cell(value).text for value in part] for part in parts], []
    labels: list[str] = []
    for key in zip(*distinct, strict=True):
        text = " · ".join(key)
        short = text if len(text) <= _LABEL else text[: _LABEL - 1] + "…"
        again = sum(1 for label in labels if label.partition(" (")[0] == short)
        labels.append(f"{short} ({again + 1})" if again else short)
    return labels, f"of {', '.join(common)}" if common else ""


def _split_texts(values: Sequence[Any]) -> tuple[list[str], str]:
    """Split the values of a key column into distinct texts and a common part; of times, the day may be common."""
    cells = [cell(value) for value in values]
    texts = [found.text for found in cells]
    if len({*texts}) == 1:
        return [""] * len(texts), texts[0]
    pairs = zip(values, cells, strict=True)
    if not all(isinstance(value, dt.datetime) or found.kind == "window" for value, found in pairs):
        return texts, ""
    words = list(zip(*(text.split() for text in texts), strict=True))
    differ = [word for word in words if len({*word}) > 1]
    shared = [word[0] for word in words if word not in differ]
    return [" ".join(word) for word in zip(*differ, strict=True)], " ".join(shared)


def movers_chart(
    records: Sequence[DiffRecord], labels: Sequence[str], columns: Sequence[DiffColumn], mover: DiffColumn
) -> Chart:
    """Return the keys whose column moved the most as bars: up to the right, down to the left, the largest first."""
    old, new, _ = mover.places
    rows: list[dict[str, Any]] = []
    for number, (record, label) in enumerate(zip(records, labels, strict=True)):
        difference = _moved(record, mover)
        length = difference.total_seconds() if isinstance(difference, dt.timedelta) else float(difference)
        key = {name: cell(value) for name, value in key_of(record, columns).items()}
        rows.append(
            {
                "row": number,
                "key": label,
                "whole": ", ".join(f"{name} {part.whole or part.text}" for name, part in key.items()),
                "delta": length,
                "signed": signed(difference),
                "change": f"{mover.cell(record[old]).text} → {mover.cell(record[new]).text}",
            }
        )
    duration = any(isinstance(_moved(record, mover), dt.timedelta) for record in records)
    label = f"Largest movers of {mover.name}{' in seconds' if duration else ''}"
    return Chart(label, _spec(mover.name, duration=duration), rows, height=max(1, len(rows)) * _BAR)


_NUMBERS = {
    "mark": {
        "type": "text",
        "align": {"expr": "datum.delta < 0 ? 'right' : 'left'"},
        "dx": {"expr": "datum.delta < 0 ? -4 : 4"},
        "opacity": 0.9,
    },
    "encoding": {"text": {"field": "signed"}},
}
"""The signed number at the end of each bar. One layer for both directions, because an empty layer has no extent."""
_ZERO = {
    "mark": {"type": "rule", "opacity": 0.4},
    "encoding": {"x": {"datum": 0}, "y": {"value": 0}, "y2": {"value": "height"}},
}


def _spec(name: str, *, duration: bool) -> dict[str, Any]:
    # A dot or a bracket in a field's name would be a path, so that the data have fixed names.
    y = {"field": "key", "type": "nominal", "sort": None, "axis": {"title": None, "labelLimit": 240, "ticks": False}}
    axis = {
        "title": f"{name}: difference{' in seconds' if duration else ''}",
        "tickCount": 5,
        "format": "+~s",
        "labelExpr": "datum.value === 0 ? '0' : datum.label",
    }
    x = quantity("delta", axis=axis, scale={"padding": 56})
    tooltip = tooltips({"whole": "key", "change": name, "signed": "difference"})
    up = {"test": "datum.delta >= 0", "value": ADDED}
    bars = {
        "params": clickable("mover"),
        "mark": {"type": "bar", "cursor": "pointer", "height": 14, "cornerRadiusEnd": 2},
        "encoding": {"color": {"condition": up, "value": REMOVED}, "tooltip": tooltip},
    }
    return {"encoding": {"y": y, "x": x}, "layer": [_ZERO, bars, _NUMBERS]}
