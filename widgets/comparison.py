"""The comparison view: two branches of a query side by side."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from streamstate.errors import StreamStateError
from streamstate.snapshots.calls.html import Html
from streamstate.state_inspect.cell_text import key_text, number
from streamstate.state_inspect.python_rows import records
from streamstate.widgets.chart import ADDED, CHANGED, REMOVED, STROKES, WHOLE, Chart, quantity
from streamstate.widgets.model import ViewModel
from streamstate.widgets.still import frame, sentences_and_figures
from streamstate.widgets.view import View

if TYPE_CHECKING:
    from streamstate.state_inspect.branches.comparison import Comparison

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
        >>> ComparisonView(store["delays"].compare(store["what_if"]))
        Comparison of delays with what_if: epochs 40 to 46, table op0 First different: ...
    """

    def __init__(self, comparison: Comparison) -> None:
        super().__init__(ComparisonModel(comparison), ComparisonSelection())
