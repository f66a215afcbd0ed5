"""Rows of a diff as the cells that are shown."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from streamstate.widgets.browser.drawing import described
from streamstate.widgets.diffs.drawing import MARKS, Column, Row, Value
from streamstate.widgets.values import canonical, cell, objects

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["DIFFERENCE", "Record", "finite", "key_of", "page_columns", "record_rows", "records_of", "signed"]

DIFFERENCE = 2
"""Where among its column's places of a page the difference stands, after the old and the new value."""

Record = tuple[Any, ...]
"""One row of a page, by position: the state's own names are anyone's, and may repeat."""


def page_columns(columns: Sequence[Column]) -> dict[int, list[int]]:
    """For each column, the positions in a page where it stands: a key once; a value old, new and as a difference.

    Example:
        >>> page_columns([Column("key", key=True), Column("n", moves=True), Column("text")])
        {0: [1], 1: [2, 3, 4], 2: [5, 6]}
    """
    places, at = {}, 1
    for number, column in enumerate(columns):
        width = 1 if column.key else 3 if column.moves else 2
        places[number] = list(range(at, at + width))
        at += width
    return places


def records_of(frame: pd.DataFrame) -> list[Record]:
    """The rows of a page of a diff."""
    named = frame.set_axis(range(frame.shape[1]), axis="columns")
    return list(objects(named).itertuples(index=False, name=None))


def record_rows(records: Sequence[Record], columns: Sequence[Column]) -> list[Row]:
    """What is shown of each record."""
    return [_row(record, columns) for record in records]


def key_of(record: Record, columns: Sequence[Column]) -> Mapping[str, Any]:
    """The key columns of a record with their values."""
    return {column.name: record[at + 1] for at, column in enumerate(columns) if column.key}


def _row(record: Record, columns: Sequence[Column]) -> Row:
    places = page_columns(columns)
    keys = [cell(record[places[at][0]]) for at, column in enumerate(columns) if column.key]
    values = [_value(record, places[at]) for at, column in enumerate(columns) if not column.key]
    epochs = [] if record[-1] is None else [int(epoch) for epoch in record[-1]]
    return Row(MARKS[record[0]], keys, values, record[-2] or "", described(epochs) if epochs else "")


def _value(record: Record, places: Sequence[int]) -> Value:
    old, new = record[places[0]], record[places[1]]
    if record[0] != "changed":
        return Value(cell(new if record[0] == "added" else old))
    if canonical(old) == canonical(new):
        return Value(cell(new))
    return Value(cell(new), cell(old), signed(record[places[DIFFERENCE]]) if len(places) > DIFFERENCE else "")


def finite(difference: Any) -> bool:
    """Whether a difference is a length that can be drawn."""
    return isinstance(difference, dt.timedelta) or math.isfinite(difference)


def signed(difference: Any) -> str:
    """A difference with its sign; empty where there is none.

    Example:
        >>> signed(-1200), signed(0.5), signed(dt.timedelta(minutes=-90)), signed(None)
        ('−1,200', '+0.5', '−1:30:00', '')
    """
    if difference is None:
        return ""
    if isinstance(difference, dt.timedelta):
        sign = "−" if difference < dt.timedelta(0) else "+"
        size = abs(difference)
        return sign + str(size.to_pytimedelta() if hasattr(size, "to_pytimedelta") else size)
    return _number(difference).replace("-", "−")


def _number(difference: Any) -> str:
    if isinstance(difference, int):
        return f"{difference:+,}"
    if isinstance(difference, Decimal):
        return f"{difference:+,f}"
    return f"{float(difference):+,.6g}"
