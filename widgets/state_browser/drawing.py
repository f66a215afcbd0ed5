"""The drawing of a state browser: plain data, JSON for a page, text and still HTML.

Only one page of rows is ever turned into cells; sorting, filtering and counting happen in the state table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from streamstate.snapshots.calls.html import Html
from streamstate.state_inspect.cell_text import Cell, cell
from streamstate.state_inspect.expiry_times import expiry
from streamstate.widgets.number_text import described, ranges
from streamstate.widgets.state_browser.actions import BrowserSelection
from streamstate.widgets.state_browser.marks import SliderMarks
from streamstate.widgets.still import frame, table, td
from streamstate.widgets.why import WhyPanel


@dataclass(frozen=True)
class BrowserColumn:
    """A column of the table: its name, whether it is part of the key, and whether it says when the row expires."""

    name: str
    key: bool
    expires: bool = False

    def cell(self, value: Any) -> Cell:
        """Return a value of the column."""
        return cell(expiry(value) if self.expires else value)


@dataclass(frozen=True)
class BrowserRow:
    """A row of cells; ``mark`` is ``+``, ``~`` or ``−`` if it differs from the previous epoch.

    ``was`` holds the old value of each cell that changed, and ``copies`` its key as the end of each text to copy.
    """

    cells: Sequence[Cell]
    mark: str = ""
    was: dict[int, Cell] = field(default_factory=dict)
    copies: Sequence[str] = ()


@dataclass(frozen=True)
class ColumnWindow:
    """The visible value columns of a wide table: ``shown`` from ``first`` on, of those whose name was found."""

    first: int
    shown: int
    found: int
    total: int
    named: str


@dataclass(frozen=True)
class BrowserPage:
    """A page of rows: where it starts, how many rows match, the key of each row, and the row that is open."""

    columns: Sequence[BrowserColumn] = ()
    rows: Sequence[BrowserRow] = ()
    offset: int = 0
    matching: int = 0
    keys: Sequence[Mapping[str, Any]] = ()
    chosen: int | None = None
    window: ColumnWindow | None = None

    def message(self) -> dict[str, Any]:
        """Return the page as JSON types; written out, because ``asdict`` is slow for thousands of cells."""
        rows = [
            {
                "mark": row.mark,
                "cells": [vars(cell) for cell in row.cells],
                "was": {at: vars(cell) for at, cell in row.was.items()},
                "copies": list(row.copies),
            }
            for row in self.rows
        ]
        return {
            "columns": [vars(column) for column in self.columns],
            "rows": rows,
            "offset": self.offset,
            "matching": self.matching,
            "chosen": self.chosen,
            "window": vars(self.window) if self.window else None,
        }


@dataclass(frozen=True)
class WholeValue:
    """A cell's whole value; ``size`` is its length in characters, even if the text is cut."""

    column: str
    key: str
    text: str
    size: int


@dataclass(frozen=True)
class ChangeCounts:
    """The number of keys that differ from the previous epoch."""

    since: int
    added: int
    changed: int
    removed: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.added + self.changed + self.removed

    def __str__(self) -> str:
        return f"+{self.added:,} ~{self.changed:,} −{self.removed:,} since epoch {self.since}"


@dataclass(frozen=True)
class KeyPanelRow:
    """A change of a key: its epoch, when that was committed, and the values after it."""

    epoch: int
    mark: str
    committed: str
    cells: Sequence[Cell]
    changed: Sequence[int]
    after_gap: bool


@dataclass(frozen=True)
class KeyPanel:
    """The history of one key, newest change first; ``more`` changes are not listed."""

    key: Sequence[tuple[str, Cell]]
    columns: Sequence[str]
    changes: Sequence[KeyPanelRow]
    more: int = 0


@dataclass(frozen=True)
class BrowserDrawing:
    """Everything that a drawing needs; with ``counting``, the counts of changes follow in the next drawing.

    ``why_not`` says why no change can be explained here; it is empty if changes can. ``naming`` says what columns that
    Spark has named are, and ``copies`` are the beginnings of the texts that read a row again.
    """

    name: str
    tables: Sequence[str] = ()
    table: str | None = None
    columns: Sequence[str] = ()
    naming: str = ""
    copies: Mapping[str, str] = field(default_factory=dict)
    captured: Sequence[int] = ()
    epoch: int | None = None
    facts: Sequence[tuple[str, str]] = ()
    marks: SliderMarks = field(default_factory=SliderMarks)
    total: int = 0
    counts: ChangeCounts | None = None
    counting: bool = False
    page: BrowserPage = field(default_factory=BrowserPage)
    history: KeyPanel | None = None
    value: WholeValue | None = None
    problem: str = ""
    selection: BrowserSelection = field(default_factory=BrowserSelection)
    why: WhyPanel | None = None
    why_not: str = ""

    @property
    def waiting(self) -> bool:
        """True if no epoch has been captured yet."""
        return self.epoch is None

    def message(self) -> dict[str, Any]:
        """Return the drawing as JSON types, epochs as ranges."""
        chosen = dict(vars(self.selection))
        for large in ("key", "cell"):
            del chosen[large]
        content = dict(vars(self)) | {"captured": ranges(self.captured), "following": self.selection.following}
        content |= {
            "selection": chosen,
            "page": self.page.message(),
            "marks": [vars(mark) for mark in self.marks.drawn],
            "mark_facts": self.marks.facts,
        }
        for part in ("counts", "value", "history", "why"):
            known = content[part]
            content[part] = asdict(known) if known else None
        return content

    def text(self) -> str:
        """Return the drawing as a line of text."""
        return f"{self.name}: " + " · ".join(self._parts())

    def html(self) -> Html:
        """Return the drawing as a table, without scripts."""
        why = self.why.html() if self.why else None
        body = () if self.waiting else (self._table(), why)
        return frame(self.name, self._parts(), *body, note="".join(self._notes()))

    def _parts(self) -> Iterator[str]:
        if self.waiting:
            yield "no epoch captured yet"
            return
        yield f"table {self.table}"
        yield f"epoch {self.epoch} (captured: {described(self.captured)})"
        yield f"{self.total:,} rows"
        if self.counts:
            yield str(self.counts)
        yield from (f"{label} {value}" for label, value in (*self.facts, *self.marks.facts))
        if self.why:
            yield self.why.text()

    def _notes(self) -> Iterator[str]:
        if self.naming:
            yield f"{self.naming} "
        if not self.waiting and self.page.matching > len(self.page.rows):
            yield f"The first {len(self.page.rows)} of {self.page.matching:,} rows. "
        if window := self.page.window:
            yield f"{window.shown} of {window.total} value columns. "

    def _table(self) -> Html:
        return table(
            f"State table {self.table} of {self.name} at epoch {self.epoch}",
            [f"{column.name} (key)" if column.key else column.name for column in self.page.columns],
            ([td(cell, changed=at in row.was) for at, cell in enumerate(row.cells)] for row in self.page.rows),
            [row.mark for row in self.page.rows],
        )
