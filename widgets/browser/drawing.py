"""What a browser shows for one selection, as plain data: built in the kernel, drawn elsewhere.

Only one page of rows is ever turned into cells; sorting, filtering and counting happen in the state
table. The same view is drawn by the live page, by the static table of a saved notebook and as text.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from streamstate.widgets.browser.marks import Marks
from streamstate.widgets.browser.selection import Selection
from streamstate.widgets.values import Cell

__all__ = [
    "Column",
    "Counts",
    "KeyChange",
    "KeyHistory",
    "Row",
    "Rows",
    "View",
    "WholeValue",
    "Window",
    "described",
    "ranges",
]

RUNS = 4
"""Runs of epochs that are named one by one."""


@dataclass(frozen=True)
class Column:
    """A column of the table: its name, and whether it is part of the key."""

    name: str
    key: bool


@dataclass(frozen=True)
class Row:
    """A row of cells; ``mark`` is ``+``, ``~`` or ``−`` where it differs from the previous epoch.

    ``was`` holds, for each cell that changed, the old value.
    """

    cells: Sequence[Cell]
    mark: str = ""
    was: dict[int, Cell] = field(default_factory=dict)


@dataclass(frozen=True)
class Rows:
    """One page: where it starts, how many rows there are to page through, the key of each row, the row that is open."""

    columns: Sequence[Column] = ()
    rows: Sequence[Row] = ()
    offset: int = 0
    matching: int = 0
    keys: Sequence[Mapping[str, Any]] = ()
    chosen: int | None = None
    window: Window | None = None


@dataclass(frozen=True)
class Window:
    """Which of many value columns are shown: so many from the first, of those whose name was looked for."""

    first: int
    shown: int
    found: int
    total: int
    named: str


@dataclass(frozen=True)
class WholeValue:
    """One cell's whole value; ``size`` is its length in characters, which may be more than the text has."""

    column: str
    key: str
    text: str
    size: int


@dataclass(frozen=True)
class Counts:
    """How many keys differ from the previous epoch."""

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
class KeyHistory:
    """The changes of one key, newest first; ``more`` are not listed."""

    key: Sequence[tuple[str, Cell]]
    columns: Sequence[str]
    changes: Sequence[KeyChange]
    more: int = 0


@dataclass(frozen=True)
class KeyChange:
    """One change of a key: the epoch it happened in, when that was committed, and the values after it."""

    epoch: int
    mark: str
    committed: str
    cells: Sequence[Cell]
    changed: Sequence[int]
    after_gap: bool


@dataclass(frozen=True)
class View:
    """Everything one drawing needs; ``counting`` says that the counts are still to come."""

    name: str
    tables: Sequence[str] = ()
    table: str | None = None
    columns: Sequence[str] = ()
    captured: Sequence[int] = ()
    epoch: int | None = None
    facts: Sequence[tuple[str, str]] = ()
    marks: Marks = field(default_factory=Marks)
    total: int = 0
    counts: Counts | None = None
    counting: bool = False
    page: Rows = field(default_factory=Rows)
    history: KeyHistory | None = None
    value: WholeValue | None = None
    problem: str = ""
    selection: Selection = field(default_factory=Selection)

    @property
    def waiting(self) -> bool:
        """Whether there is no epoch to show yet."""
        return self.epoch is None

    def message(self) -> dict[str, Any]:
        """The view as JSON types, epochs as ranges: what goes to a page."""
        chosen = dict(vars(self.selection))
        for large in ("key", "cell"):
            del chosen[large]
        content = dict(vars(self)) | {"captured": ranges(self.captured), "following": self.selection.following}
        content |= {
            "selection": chosen,
            "page": _rows_message(self.page),
            "marks": [vars(one) for one in self.marks.drawn],
            "told": self.marks.facts,
        }
        for part in ("counts", "value", "history"):
            known = content[part]
            content[part] = asdict(known) if known else None
        return content


def _rows_message(page: Rows) -> dict[str, Any]:
    """Written out, because ``asdict`` takes its time over thousands of cells."""
    rows = [
        {
            "mark": row.mark,
            "cells": [vars(cell) for cell in row.cells],
            "was": {at: vars(cell) for at, cell in row.was.items()},
        }
        for row in page.rows
    ]
    return {
        "columns": [vars(column) for column in page.columns],
        "rows": rows,
        "offset": page.offset,
        "matching": page.matching,
        "chosen": page.chosen,
        "window": vars(page.window) if page.window else None,
    }


def ranges(numbers: Sequence[int]) -> list[list[int]]:
    """Ascending numbers as inclusive runs; ten thousand epochs are a few pairs.

    Example:
        >>> ranges([0, 1, 2, 5, 6])
        [[0, 2], [5, 6]]
    """
    return [[run[0], run[-1]] for run in _runs(numbers)]


def described(captured: Sequence[int]) -> str:
    """Which epochs there are, with the gaps between them.

    Example:
        >>> described([0, 1, 2, 5, 6])
        '0–2, 5–6'
    """
    runs = [f"{a}–{b}" if a != b else f"{a}" for a, b in ranges(captured)]
    return ", ".join(runs) if len(runs) <= RUNS else f"{runs[0]}, …, {runs[-1]} ({len(runs) - 1} gaps)"


def _runs(numbers: Sequence[int]) -> Iterator[list[int]]:
    for _, run in itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        yield [number for _, number in run]
