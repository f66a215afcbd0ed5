"""What a key history view shows for one selection, as plain data: built in the kernel, drawn elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from streamstate.widgets.chart import Chart
from streamstate.widgets.key_life.selection import Selection
from streamstate.widgets.key_life.story import Change, Story
from streamstate.widgets.values import Cell, cell

__all__ = ["Field", "KeyDrawing", "Page", "Plots", "Row", "row_of"]


@dataclass(frozen=True)
class Field:
    """A column of the key, what it is now, and the text that a person could type for it."""

    name: str
    cell: Cell | None = None
    text: str = ""


@dataclass(frozen=True)
class Plots:
    """The columns that are drawn, from number ``start`` on, of all that there are; ``notes`` say what is left out."""

    charts: Sequence[Chart] = ()
    start: int = 0
    total: int = 0
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Row:
    """One change as it is listed."""

    epoch: int
    mark: str
    said: str
    committed: str
    cause: str
    cells: Sequence[Cell]
    differ: Sequence[int]


@dataclass(frozen=True)
class Page:
    """One page of the changes, newest first; ``now`` is the row that was in force at the epoch looked at."""

    rows: Sequence[Row] = ()
    offset: int = 0
    total: int = 0
    now: int | None = None


@dataclass(frozen=True)
class KeyDrawing:
    """Everything one drawing needs. ``told`` says why there is nothing to draw."""

    name: str
    selection: Selection
    tables: Sequence[str] = ()
    table: str | None = None
    fields: Sequence[Field] = ()
    typable: bool = False
    told: str = ""
    like: Sequence[str] = ()
    span: tuple[int, int] | None = None
    columns: Sequence[str] = ()
    plots: Plots = field(default_factory=Plots)
    page: Page = field(default_factory=Page)
    story: Story | None = None

    @property
    def key(self) -> str:
        """The key in words."""
        return ", ".join(f"{one.name} {one.cell.text}" for one in self.fields if one.cell)

    @property
    def listed(self) -> Sequence[Change]:
        """The changes of the page, newest first."""
        changes = self.story.changes[::-1] if self.story else ()
        return changes[self.page.offset : self.page.offset + len(self.page.rows)]

    def message(self) -> dict[str, Any]:
        """The drawing as JSON types: what goes to a page."""
        plots = self.plots
        return {
            "name": self.name,
            "tables": list(self.tables),
            "table": self.table,
            "key": self.key,
            "fields": [asdict(one) for one in self.fields],
            "typable": self.typable,
            "told": self.told,
            "like": list(self.like),
            "span": list(self.span or ()),
            "columns": list(self.columns),
            "plots": {
                "charts": [chart.message() for chart in plots.charts],
                "start": plots.start,
                "total": plots.total,
                "notes": list(plots.notes),
            },
            "page": asdict(self.page),
            "marked": list(self.selection.marked),
            "size": self.selection.size,
        }


def row_of(change: Change) -> Row:
    """A change as it is listed."""
    cells = [cell(value) for value in change.values]
    return Row(change.epoch, change.mark, change.said, change.committed, change.cause, cells, change.differ)
