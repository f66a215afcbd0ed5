"""The comparison view: two branches of a query side by side."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from streamstate.errors import StreamStateError
from streamstate.state_inspect.rows import records
from streamstate.state_inspect.values import key_text
from streamstate.widgets.chart import Chart
from streamstate.widgets.comparison.drawing import KINDS, ComparisonDrawing, differing_chart, values_chart
from streamstate.widgets.model import ViewModel
from streamstate.widgets.view import View

if TYPE_CHECKING:
    from streamstate.state_inspect.branches.comparison import Comparison

KEYS = 4
"""The most keys whose values are drawn."""


@dataclass(frozen=True)
class ComparisonSelection:
    """The state table and the column that are shown; None for the first that differs."""

    table: str | None = None
    column: str | None = None


class ComparisonModel(ViewModel[ComparisonSelection]):
    """Reads one comparison, which never changes."""

    kind = "comparison"

    def __init__(self, comparison: Comparison) -> None:
        self._comparison = comparison
        self.name = " and ".join(comparison.queries)
        self._lock = threading.Lock()
        self._frame = comparison.epochs()
        self._drawn: dict[ComparisonSelection, ComparisonDrawing] = {}

    def newest(self) -> object:
        """Always the same."""
        return 0

    def view(self, selection: ComparisonSelection) -> ComparisonDrawing:
        """Return the table's differences by epoch, and the values of the first keys that differ."""
        with self._lock:
            if selection not in self._drawn:
                self._drawn[selection] = self._view(selection)
            return self._drawn[selection]

    def acted(self, selection: ComparisonSelection, action: str, value: Any, kept: Any) -> ComparisonSelection:
        """Return the selection after an action: another table or column, if the drawing offered it."""
        if isinstance(kept, ComparisonDrawing) and action == "table" and value in kept.tables:
            return ComparisonSelection(table=value)
        if isinstance(kept, ComparisonDrawing) and action == "column" and value in kept.columns:
            return replace(selection, column=value)
        return selection

    def _view(self, selection: ComparisonSelection) -> ComparisonDrawing:
        comparison = self._comparison
        first = comparison.first
        table = selection.table or (comparison.tables[0] if first is None else first.table)
        frame = self._frame[self._frame["table"] == table]
        sentences = repr(comparison).replace("<", "", 1).replace(">", "", 1).splitlines()
        view = ComparisonDrawing(comparison.queries, comparison.tables, table, [], None, sentences)
        differ = frame[frame[[*KINDS]].sum(axis="columns") > 0]
        if differ.empty:
            return view
        view = replace(view, epochs=differing_chart(frame, table))
        epoch = int(differ["epoch"].iloc[0])
        diff = comparison.diff(epoch, table)
        columns = diff.delta_columns
        if not columns:
            return view
        column = selection.column if selection.column in columns else columns[0]
        found = records(comparison.keys_arrow(epoch, table, limit=KEYS))
        keys = [{name: row[name] for name in diff.key_columns} for row in found]
        charts = [self._key_chart(table, column, key, list(map(int, frame["epoch"]))) for key in keys]
        return replace(view, columns=columns, column=column, values=[chart for chart in charts if chart is not None])

    def _key_chart(self, table: str, column: str, key: Mapping[str, Any], epochs: list[int]) -> Chart | None:
        both = []
        histories: Sequence[Any] = self._comparison.histories
        for history in histories:
            try:
                changes = history.key_history_arrow(table, ancestors=True, key=key)
            except StreamStateError:  # a key that cannot be looked up is not drawn
                return None
            both.append({int(row["epoch"]): row[column] for row in records(changes)})
        return values_chart(f"{column} of {key_text(key)}", self._comparison.queries, epochs, both)


class ComparisonView(View[ComparisonSelection]):
    """Shows where two branches diverge: how many keys differ at each epoch, and the first of them side by side.

    In JupyterLab the state table and the column can be chosen. In a saved notebook and in exported HTML the view is
    still pictures; elsewhere, a few lines of text.

    Args:
        comparison: the result of ``history.compare(other)``, or a replay's ``.comparison``.

    Example:
        >>> ComparisonView(store["delays"].compare(store["what_if"]))  # doctest: +SKIP
        Comparison of delays with what_if: epochs 40 to 52, table op0 …
    """

    def __init__(self, comparison: Comparison) -> None:
        super().__init__(ComparisonModel(comparison), ComparisonSelection())
