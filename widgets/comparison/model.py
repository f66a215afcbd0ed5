"""Builds a comparison's drawings from the comparison, which does not change any more."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.errors import StreamStateError
from streamstate.widgets.comparison.drawing import KINDS, View, differing_chart, values_chart
from streamstate.widgets.front import resource
from streamstate.widgets.model import Drawing, ViewModel
from streamstate.widgets.values import cell, records

if TYPE_CHECKING:
    from streamstate.state_inspect.branches.comparison import Comparison

__all__ = ["KEYS", "ComparisonModel", "Selection"]

KEYS = 4
"""Keys whose values are drawn."""


@dataclass(frozen=True)
class Selection:
    """The state table and the column that are shown; None: the first that differ."""

    table: str | None = None
    column: str | None = None


class ComparisonModel(ViewModel[Selection]):
    """Reads one comparison."""

    kind = "comparison"

    def __init__(self, comparison: Comparison) -> None:
        self._comparison = comparison
        self.name = " and ".join(comparison.queries)
        self._lock = threading.Lock()
        self._frame = comparison.epochs()
        self._drawn: dict[Selection, View] = {}

    def newest(self) -> object:
        """Nothing comes anew."""
        return 0

    def drawing(self, selection: Selection) -> Drawing:
        """The table's differences by epoch, and the values of the first keys that differ."""
        with self._lock:
            view = self._drawn.get(selection)
            if view is None:
                view = self._drawn[selection] = self._view(selection)
        return Drawing(view.message(), view)

    def acted(self, selection: Selection, action: str, value: Any, kept: Any) -> Selection:
        """Another table or column, of those that are offered."""
        if isinstance(kept, View) and action == "table" and value in kept.tables:
            return Selection(table=value)
        if isinstance(kept, View) and action == "column" and value in kept.columns:
            return replace(selection, column=value)
        return selection

    def text(self, drawing: Drawing) -> str:
        """The comparison in a few words."""
        return " ".join(drawing.kept.told)

    def html(self, drawing: Drawing) -> str:
        """The comparison as still pictures; every text is escaped."""
        view: View = drawing.kept
        told = "".join(f"<p>{escape(line)}</p>" for line in view.told)
        charts = [*([view.epochs] if view.epochs else []), *view.values]
        pictures = "".join(
            f"<figure><figcaption>{escape(chart.label)}</figcaption>{chart.svg(560)}</figure>" for chart in charts
        )
        return f"<style>{resource('static.css')}</style>{told}{pictures}"

    def _view(self, selection: Selection) -> View:
        comparison = self._comparison
        first = comparison.first
        table = selection.table or (comparison.tables[0] if first is None else first.table)
        frame = self._frame[self._frame["table"] == table]
        told = repr(comparison).replace("<", "", 1).replace(">", "", 1).splitlines()
        view = View(comparison.queries, comparison.tables, table, [], None, told)
        differ = frame[frame[[*KINDS]].sum(axis="columns") > 0]
        if differ.empty:
            return view
        view = replace(view, epochs=differing_chart(frame, table))
        diff = comparison.diff(int(differ["epoch"].iloc[0]), table)
        columns = [name for name, moves in diff.value_columns.items() if moves]
        if not columns:
            return view
        column = selection.column if selection.column in columns else columns[0]
        keys = self._keys(int(differ["epoch"].iloc[0]), table, list(diff.key_columns))
        drawn = (self._of_key(table, column, key, list(map(int, frame["epoch"]))) for key in keys)
        return replace(view, columns=columns, column=column, values=[one for one in drawn if one is not None])

    def _keys(self, epoch: int, table: str, names: list[str]) -> list[Mapping[str, Any]]:
        """The first keys that differ at an epoch."""
        found = records(self._comparison.keys(epoch, table, limit=KEYS))
        return [{name: row[name] for name in names} for row in found]

    def _of_key(self, table: str, column: str, key: Mapping[str, Any], epochs: list[int]) -> Any:
        both = []
        histories: Sequence[Any] = self._comparison.histories
        for history in histories:
            try:
                frame = history.key_history(table, ancestors=True, **key)
            except StreamStateError:  # a key that cannot be asked for, such as a struct, is not drawn
                return None
            both.append({int(row["epoch"]): row[column] for row in records(frame)})
        words = ", ".join(f"{name} {cell(value).text}" for name, value in key.items())
        return values_chart(f"{column} of {words}", self._comparison.queries, epochs, both)
