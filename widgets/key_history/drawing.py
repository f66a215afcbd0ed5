"""The drawing of a key history view: plain data, JSON for a page, text and still HTML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from streamstate.snapshots.calls.html import Html, joined, tag
from streamstate.state_inspect.cell_text import Cell, cell
from streamstate.widgets.chart import Chart
from streamstate.widgets.key_history.actions import KeySelection
from streamstate.widgets.key_history.story import KeyChange, Story
from streamstate.widgets.number_text import amount
from streamstate.widgets.still import STILL_COLUMNS, frame, table, td
from streamstate.widgets.why import WhyPanel

_PICTURES = 120_000
"""Characters of pictures in a saved notebook; further columns have none."""


@dataclass(frozen=True)
class KeyField:
    """A column of the key, its value, and the text that a person could type for it."""

    name: str
    cell: Cell | None = None
    text: str = ""


@dataclass(frozen=True)
class KeyPlots:
    """The plots of the columns from number ``start`` on, of ``total``; ``notes`` say what is left out."""

    charts: Sequence[Chart] = ()
    start: int = 0
    total: int = 0
    notes: Sequence[str] = ()

    def message(self) -> dict[str, Any]:
        """As JSON types."""
        return vars(self) | {"charts": [chart.message() for chart in self.charts]}


@dataclass(frozen=True)
class KeyChangePage:
    """A page of changes, newest first; ``now`` is the row that was in effect at the epoch that is looked at."""

    rows: Sequence[KeyChange] = ()
    offset: int = 0
    total: int = 0
    now: int | None = None

    def message(self) -> dict[str, Any]:
        """As JSON types."""
        return vars(self) | {"rows": [_row_message(change) for change in self.rows]}


@dataclass(frozen=True)
class KeyHistoryDrawing:
    """Everything that a drawing needs; ``why_empty`` says why there is nothing to draw.

    ``why_not`` says why no change can be explained here; it is empty if changes can.
    """

    name: str
    selection: KeySelection
    tables: Sequence[str] = ()
    table: str | None = None
    fields: Sequence[KeyField] = ()
    why_empty: str = ""
    like: Sequence[str] = ()
    span: tuple[int, int] | None = None
    columns: Sequence[str] = ()
    plots: KeyPlots = field(default_factory=KeyPlots)
    page: KeyChangePage = field(default_factory=KeyChangePage)
    story: Story | None = None
    why: WhyPanel | None = None
    why_not: str = ""
    naming: str = ""

    @property
    def key(self) -> str:
        """The key in words."""
        return ", ".join(f"{part.name} {part.cell.text}" for part in self.fields if part.cell)

    def message(self) -> dict[str, Any]:
        """Return the drawing as JSON types."""
        return {
            "name": self.name,
            "tables": list(self.tables),
            "table": self.table,
            "key": self.key,
            "fields": [asdict(part) for part in self.fields],
            "why_empty": self.why_empty,
            "like": list(self.like),
            "span": list(self.span or ()),
            "columns": list(self.columns),
            "plots": self.plots.message(),
            "page": self.page.message(),
            "marked": list(self.selection.marked),
            "size": self.selection.size,
            "why": self.why and self.why.message(),
            "why_not": self.why_not,
            "naming": self.naming,
        }

    def text(self) -> str:
        """Return the drawing as a line of text."""
        return f"{self.name}: " + " · ".join(self._parts())

    def html(self) -> Html:
        """Return the drawing as still pictures and a table of the newest changes, without scripts."""
        pictures = self._pictures()
        why = self.why.html() if self.why else None
        body = (pictures, self._table(), why) if self.story else ()
        return frame(self.name, self._parts(), *body, note="".join(self._left_out(len(pictures))))

    def _parts(self) -> Iterator[str]:
        if self.table and self.key:
            yield f"table {self.table}"
            yield f"key {self.key}"
        if self.why_empty:
            yield self.why_empty
        elif self.story:
            newest = self.story.changes[-1]
            yield amount(len(self.story.changes), "change")
            yield f"{newest.description} at epoch {newest.epoch}" + (f" ({newest.cause})" if newest.cause else "")
            yield "not in the state now" if newest.gone else "in the state now"
            if self.why:
                yield self.why.text()

    def _pictures(self) -> list[Html]:
        """Return the columns' plots, as many as there is room for."""
        pictures: list[Html] = []
        for chart in self.plots.charts:
            picture = joined(tag("p", chart.label), chart.svg())
            if sum(map(len, pictures)) + len(picture) > _PICTURES:
                break
            pictures.append(picture)
        return pictures

    def _left_out(self, pictures: int) -> Iterator[str]:
        if self.naming:
            yield f"{self.naming} "
        if self.page.total > len(self.page.rows):
            yield f"The newest {len(self.page.rows)} of {self.page.total:,} changes. "
        if self.plots.total > pictures:
            yield f"Pictures of {pictures} of {self.plots.total} columns. "
        if len(self.columns) > STILL_COLUMNS:
            yield f"The first {STILL_COLUMNS} of {len(self.columns)} columns. "

    def _table(self) -> Html:
        heads = ["epoch", "committed", "change", "cause", *self.columns[:STILL_COLUMNS]]
        caption = f"Changes of {self.key} in {self.table} of {self.name}"
        return table(caption, heads, map(_still_row, self.page.rows), [row.mark for row in self.page.rows])


def _row_message(change: KeyChange) -> dict[str, Any]:
    facts = {name: fact for name, fact in vars(change).items() if name != "values"}
    return facts | {"cells": [vars(cell(value)) for value in change.values]}


def _still_row(change: KeyChange) -> list[str]:
    facts = [str(change.epoch), change.committed, change.description, change.cause]
    values = enumerate(change.values[:STILL_COLUMNS])
    return facts + [td(cell(value), changed=at in change.differ) for at, value in values]
