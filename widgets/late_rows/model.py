"""The late rows view: the number of dropped rows at each epoch, and their delays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamstate.widgets.charts_and_words import KIND, ChartsAndWords
from streamstate.widgets.late_rows.drawing import drawn
from streamstate.widgets.model import ViewModel
from streamstate.widgets.view import View

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class LateRowsSelection:
    """Nothing can be chosen."""


class LateRowsModel(ViewModel[LateRowsSelection]):
    """Draws one frame, which never changes."""

    kind = KIND

    def __init__(self, rows: pd.DataFrame, name: str) -> None:
        self.name = name
        self._drawn = drawn(rows, name)

    def newest(self) -> object:
        """Always the same."""
        return 0

    def view(self, selection: LateRowsSelection) -> ChartsAndWords:
        """Return the sentences and the plots."""
        return self._drawn

    def acted(self, selection: LateRowsSelection, action: str, value: Any, kept: Any) -> LateRowsSelection:
        """Return the same selection."""
        return selection


class LateRowsView(View[LateRowsSelection]):
    """Shows how many rows the watermark dropped at each epoch, how late they were, and which delay would keep them.

    Epochs whose input could not be read again are grey. In a saved notebook and in exported HTML the view is still
    pictures; elsewhere, a few sentences.

    Args:
        rows: the result of ``history.late_rows()``.
        query: the query's name.

    Example:
        >>> LateRowsView(history.late_rows(), query="delays_by_hour")  # doctest: +SKIP
        delays_by_hour: Epochs 0–49: 50,000 rows came in, 312 were dropped as late (0.62%). …
    """

    def __init__(self, rows: pd.DataFrame, *, query: str) -> None:
        self.rows = rows
        """The numbers: a row per epoch."""
        super().__init__(LateRowsModel(rows, query), LateRowsSelection())
