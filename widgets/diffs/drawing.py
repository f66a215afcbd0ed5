"""What a diff view shows for one selection, as plain data: built in the kernel, drawn elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from streamstate.widgets.browser.drawing import ranges
from streamstate.widgets.chart import Chart
from streamstate.widgets.diffs.selection import Selection
from streamstate.widgets.values import Cell

__all__ = ["MARKS", "Column", "DiffDrawing", "Movers", "Row", "Rows", "Side", "Value"]

MARKS = {"added": "+", "changed": "~", "removed": "−"}


@dataclass(frozen=True)
class Side:
    """One of the two epochs: ``asked`` where it is not the one that was asked for, ``query`` where they are two."""

    epoch: int
    rows: int
    committed: str = ""
    watermark: str = ""
    asked: int | None = None
    query: str = ""

    @property
    def named(self) -> str:
        """The epoch in words."""
        return f"{self.query} at epoch {self.epoch}" if self.query else f"epoch {self.epoch}"


@dataclass(frozen=True)
class Column:
    """A column of the state table; ``moves`` where its values can be subtracted."""

    name: str
    key: bool = False
    moves: bool = False


@dataclass(frozen=True)
class Value:
    """A value column's cell: what it is, what it was where it changed, and how far it moved where that is a number."""

    now: Cell
    was: Cell | None = None
    moved: str = ""


@dataclass(frozen=True)
class Row:
    """One key that differs; ``epochs`` are those at which it changed."""

    mark: str
    keys: Sequence[Cell]
    values: Sequence[Value]
    cause: str = ""
    epochs: str = ""


@dataclass(frozen=True)
class Rows:
    """One page: where it starts, how many rows there are to page through, and the row that is chosen."""

    rows: Sequence[Row] = ()
    offset: int = 0
    matching: int = 0
    chosen: int | None = None


@dataclass(frozen=True)
class Movers:
    """The keys in which one column moved the most; ``total`` keys moved."""

    column: str
    columns: Sequence[str]
    chart: Chart | None = None
    shown: int = 0


@dataclass(frozen=True)
class DiffDrawing:
    """Everything one drawing needs; ``keys`` are those of the rows, ``moved`` those of the movers.

    ``others`` are the epochs that the second side can have, where it is of another query.
    """

    name: str
    selection: Selection
    tables: Sequence[str] = ()
    table: str | None = None
    captured: Sequence[int] = ()
    others: Sequence[int] = ()
    sides: tuple[Side, Side] | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    columns: Sequence[Column] = ()
    page: Rows = field(default_factory=Rows)
    movers: Movers | None = None
    keys: Sequence[Mapping[str, Any]] = ()
    moved: Sequence[Mapping[str, Any]] = ()

    @property
    def total(self) -> int:
        """How many keys differ."""
        return sum(self.counts.values())

    def message(self) -> dict[str, Any]:
        """The drawing as JSON types, epochs as ranges: what goes to a page."""
        chosen = self.selection
        movers = self.movers
        return {
            "name": self.name,
            "tables": list(self.tables),
            "table": self.table,
            "captured": ranges(self.captured),
            "others": ranges(self.others) if self.others else None,
            "sides": [asdict(side) for side in self.sides or ()],
            "counts": dict(self.counts),
            "columns": [asdict(column) for column in self.columns],
            "page": asdict(self.page),
            "movers": movers
            and {
                "column": movers.column,
                "columns": list(movers.columns),
                "shown": movers.shown,
                "chart": movers.chart and movers.chart.message(),
            },
            "selection": {
                name: getattr(chosen, name)
                for name in ("change", "text", "order_by", "by_size", "descending", "size", "following")
            },
        }
