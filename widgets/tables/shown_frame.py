"""A pandas frame that a notebook shows as the views show rows: windows in one line, null apart from NaN."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import pandas as pd

from streamstate.state_inspect.cell_text import Cell, plain, timestamp
from streamstate.state_inspect.frames import frame_cells, frame_tuples
from streamstate.widgets.tables.summary_table import SummaryTable, TableCell

MOST = 60
"""Rows that are shown, as pandas shows them."""


class ShownFrame(pd.DataFrame):
    """A frame with its display in a notebook. Results computed from it are ordinary frames."""

    _table: Callable[[pd.DataFrame], SummaryTable] | None = None

    @classmethod
    def of(cls, frame: pd.DataFrame, table: Callable[[pd.DataFrame], SummaryTable] | None = None) -> ShownFrame:
        """Return the frame, shown as a table that a function makes of it; by default its rows."""
        made = cls(frame)
        object.__setattr__(made, "_table", table or rows_table)  # not a column
        return made

    def __repr__(self) -> str:
        return super().__repr__() if (table := self._shown()) is None else repr(table)

    def _repr_html_(self) -> str:
        table = self._shown()
        return self.to_html(max_rows=MOST) if table is None else table._repr_html_()

    def _shown(self) -> SummaryTable | None:
        """Return the table; None if the frame has been changed into one of another form."""
        if self._table is None or not isinstance(self.index, pd.RangeIndex) or self.columns.nlevels > 1:
            return None
        try:
            return self._table(self)
        except KeyError:  # a column was removed
            return None


def rows_table(frame: pd.DataFrame) -> SummaryTable:
    """Return the first rows of a frame of ours."""
    first = frame.head(MOST)
    rows = [
        [_cell(value, shown) for value, shown in zip(values, cells, strict=True)]
        for values, cells in zip(frame_tuples(first), frame_cells(first), strict=True)
    ]
    more = f"The first {MOST} of {len(frame):,} rows" if len(frame) > MOST else ""
    return SummaryTable(list(map(str, frame.columns)), rows, empty="No rows.", caption=more)


def facts_table(frame: pd.DataFrame, names: Sequence[str] | None = None) -> SummaryTable:
    """The newest rows of a frame of epochs or queries, with some of its columns or all: times, and counts by table."""
    chosen = list(frame.columns if names is None else names)
    rows = [list(map(_fact_cell, row)) for row in frame_tuples(frame[chosen].tail(MOST))]
    more = f"The newest {MOST} of {len(frame):,}" if len(frame) > MOST else ""
    return SummaryTable([name.replace("_", " ") for name in chosen], rows, empty="None yet.", caption=more)


def _fact_cell(value: Any) -> TableCell:
    if isinstance(value, Mapping):
        return TableCell(value, counts_text(value), number=len(value) == 1)
    if isinstance(value, datetime):
        return TableCell(value, "-" if value.timestamp() <= 0 else timestamp(value))
    return TableCell(value)


def counts_text(counts: Mapping[str, int | None]) -> str:
    """Counts by state table: the number alone if there is one table.

    Example:
        >>> counts_text({"op0": 1200}), counts_text({"op0_left": 3, "op0_right": None})
        ('1,200', 'op0_left 3, op0_right -')
    """
    texts = {table: "-" if count is None else f"{count:,}" for table, count in counts.items()}
    return (
        next(iter(texts.values())) if len(texts) == 1 else ", ".join(f"{table} {text}" for table, text in texts.items())
    )


def _cell(value: Any, shown: Cell) -> TableCell:
    return TableCell(plain(value), shown.text, title=shown.whole, number=shown.kind == "number")
