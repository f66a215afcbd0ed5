"""The drawing of a diff view: plain data, JSON for a page, text and still HTML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from streamstate.snapshots.calls.html import Content, Html, joined, tag
from streamstate.state_inspect.cell_text import Cell, cell
from streamstate.state_inspect.expiry_times import expiry
from streamstate.widgets.chart import Chart
from streamstate.widgets.diffs.actions import DiffSelection
from streamstate.widgets.number_text import ranges
from streamstate.widgets.still import MARKS, STILL_COLUMNS, frame, table, td
from streamstate.widgets.why import WhyPanel


@dataclass(frozen=True)
class DiffSide:
    """One of the two epochs, and the number of the table's rows.

    ``asked`` is the requested epoch, if another one is shown; ``query`` is set if the sides are of different queries.
    """

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
class DiffColumn:
    """A column of the state table.

    It ``moves`` if its values can be subtracted, has ``ratios`` if they can be divided too, and ``expires`` if they are
    expiry times.

    ``places`` are its places in a row of a diff: one for a key; old, new and, if it moves, difference for a value.
    """

    name: str
    key: bool
    moves: bool
    places: Sequence[int]
    ratios: bool = False
    expires: bool = False

    def cell(self, value: Any) -> Cell:
        """Return a value of the column."""
        return cell(expiry(value) if self.expires else value)

    def message(self) -> dict[str, Any]:
        """As JSON types."""
        return {"name": self.name, "key": self.key, "moves": self.moves, "ratios": self.ratios}


@dataclass(frozen=True)
class DiffCell:
    """A value: the new one, the old one if it changed, and how far it moved if it is a number."""

    now: Cell
    was: Cell | None = None
    moved: str = ""


@dataclass(frozen=True)
class DiffRow:
    """A key that differs; ``epochs`` are those at which it changed, in words, and ``latest`` is the last of them."""

    mark: str
    keys: Sequence[Cell]
    values: Sequence[DiffCell]
    cause: str = ""
    epochs: str = ""
    latest: int | None = None


@dataclass(frozen=True)
class DiffPage:
    """A page of rows: where it starts, how many rows match, and the row that is chosen."""

    rows: Sequence[DiffRow] = ()
    offset: int = 0
    matching: int = 0
    chosen: int | None = None


@dataclass(frozen=True)
class Movers:
    """The keys whose value of one column moved the most; ``common`` is the part of the key that all have."""

    column: str
    columns: Sequence[str]
    chart: Chart | None = None
    shown: int = 0
    common: str = ""

    def message(self) -> dict[str, Any]:
        """As JSON types."""
        return vars(self) | {"chart": self.chart and self.chart.message()}

    def html(self) -> Html | None:
        """Return the bars as a still picture with a caption; None if there are none."""
        if self.chart is None:
            return None
        return joined(tag("p", " ".join(filter(None, [self.chart.label, self.common]))), self.chart.svg())


@dataclass(frozen=True)
class DiffDrawing:
    """Everything that a drawing needs.

    ``keys`` are those of the rows, ``moved`` those of the movers. ``others`` are the epochs of the second side, if it
    is of another query. ``explained`` is whether the rows have their causes. ``why_not`` says why no change can be
    explained by its input; it is empty if changes can, and None if that is not offered.
    """

    name: str
    selection: DiffSelection
    tables: Sequence[str] = ()
    table: str | None = None
    captured: Sequence[int] = ()
    others: Sequence[int] = ()
    sides: tuple[DiffSide, DiffSide] | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    columns: Sequence[DiffColumn] = ()
    page: DiffPage = field(default_factory=DiffPage)
    movers: Movers | None = None
    keys: Sequence[Mapping[str, Any]] = ()
    moved: Sequence[Mapping[str, Any]] = ()
    explained: bool = True
    why: WhyPanel | None = None
    why_not: str | None = None
    naming: str = ""

    @property
    def total(self) -> int:
        """The number of keys that differ."""
        return sum(self.counts.values())

    def message(self) -> dict[str, Any]:
        """Return the drawing as JSON types, epochs as ranges."""
        chosen = ("change", "text", "order_by", "by_size", "relative", "descending", "size", "following")
        return {
            "name": self.name,
            "tables": list(self.tables),
            "table": self.table,
            "captured": ranges(self.captured),
            "others": ranges(self.others) if self.others else None,
            "sides": [asdict(side) for side in self.sides or ()],
            "counts": dict(self.counts),
            "columns": [column.message() for column in self.columns],
            "page": asdict(self.page),
            "movers": self.movers and self.movers.message(),
            "selection": {name: getattr(self.selection, name) for name in chosen},
            "why": self.why and self.why.message(),
            "why_not": self.why_not,
            "naming": self.naming,
        }

    def text(self) -> str:
        """Return the drawing as a line of text."""
        return f"{self.name}: " + " · ".join(self._parts())

    def html(self) -> Html:
        """Return the drawing as a table and a still picture, without scripts."""
        body: tuple[Content, ...] = ()
        if self.total:
            why = self.why.html() if self.why else None
            body = (self._table(), why, self.movers.html() if self.movers else None)
        return frame(self.name, self._parts(), *body, note="".join(self._left_out()))

    def inner_html(self) -> Html:
        """Return the counts and the first keys alone, without the frame, as part of another view."""
        note = "".join(self._left_out())
        rows = self._table() if self.total else None
        return joined(tag("p", " · ".join(self._parts())), rows, tag("p", tag("small", note)) if note else None)

    def _parts(self) -> Iterator[str]:
        if self.sides is None:
            yield "no epoch captured yet"
            return
        a, b = self.sides
        yield f"table {self.table}"
        yield f"{a.named} → {b.named if b.query else b.epoch}"
        yield " ".join(f"{MARKS[kind]}{self.counts[kind]:,}" for kind in MARKS) + " (added, changed, removed)"
        yield f"{a.rows:,} → {b.rows:,} rows"
        for side in self.sides:
            if side.asked is not None:
                yield f"epoch {side.asked} was not captured, showing epoch {side.epoch}"
        if self.why:
            yield self.why.text()

    def _left_out(self) -> Iterator[str]:
        if self.naming:
            yield f"{self.naming} "
        if self.page.matching > len(self.page.rows):
            yield f"The first {len(self.page.rows)} of {self.page.matching:,} keys. "
        values = sum(not column.key for column in self.columns)
        if values > STILL_COLUMNS:
            yield f"The first {STILL_COLUMNS} of {values} value columns. "

    def _table(self) -> Html:
        sides = " to ".join(side.named for side in self.sides or ())
        keys = [f"{column.name} (key)" for column in self.columns if column.key]
        values = [column.name for column in self.columns if not column.key][:STILL_COLUMNS]
        return table(
            f"Differences in {self.table} of {self.name}, {sides}",
            [*keys, *values, "cause"],
            ([*row.keys, *map(_td, row.values[:STILL_COLUMNS]), row.cause] for row in self.page.rows),
            [row.mark for row in self.page.rows],
        )


def _td(value: DiffCell) -> Html:
    if value.was is None:
        return td(value.now)
    kind = "number" if "number" in (value.now.kind, value.was.kind) else value.now.kind
    return td(Cell(f"{value.was.text} → {value.now.text}", kind), changed=True)
