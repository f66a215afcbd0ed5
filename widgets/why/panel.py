"""The drawing of an explanation of a key's change: plain data, JSON for a page, text and still HTML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.calls.html import Html, joined, tag
from streamstate.state_inspect.frames import frame_tuples, with_values
from streamstate.state_inspect.values import Cell, canonical, cell, key_text
from streamstate.widgets.number_text import amount
from streamstate.widgets.still import STILL_COLUMNS, table, td

if TYPE_CHECKING:
    import pandas as pd

    from streamstate.state_inspect import Why
    from streamstate.state_inspect.inputs.shown_rows import InputSides

_COLUMNS = 50
"""The most columns of a table; an input row may have thousands."""
_STILL_ROWS = 10
"""Rows in a saved notebook."""


@dataclass(frozen=True)
class WhyRow:
    """A row of cells, with its name if it has one; without cells, the key was absent."""

    cells: Sequence[Cell]
    name: str = ""


@dataclass(frozen=True)
class WhyTable:
    """A table of the panel: ``differ`` are its columns whose value changed, ``note`` says what is left out."""

    title: str
    columns: Sequence[str]
    rows: Sequence[WhyRow]
    differ: Sequence[int] = ()
    note: str = ""

    def html(self) -> Html:
        """Return the table with its title, without scripts."""
        columns = self.columns[:STILL_COLUMNS]
        names = any(row.name for row in self.rows)
        rows = ([*([row.name] if names else []), *self._still(row)] for row in self.rows[:_STILL_ROWS])
        short = f"The first {_STILL_ROWS} are shown." if len(self.rows) > _STILL_ROWS else ""
        title = " ".join(filter(None, [self.title, self.note, short]))
        return joined(tag("p", title), table(self.title, [*([""] if names else []), *columns], rows))

    def _still(self, row: WhyRow) -> list[Html]:
        cells = [td(value, changed=at in self.differ) for at, value in enumerate(row.cells[:STILL_COLUMNS])]
        return cells or [td(Cell("absent", "null"))]


@dataclass(frozen=True)
class WhyPanel:
    """The explanation of a key's change in an epoch; ``problem`` says why there is none.

    ``nearest`` are the epochs before and after at which the key changed, None where there is none.
    """

    key: str
    epoch: int
    busy: bool = False
    problem: str = ""
    summary: str = ""
    nearest: tuple[int | None, int | None] = (None, None)
    tables: Sequence[WhyTable] = ()

    def message(self) -> dict[str, Any]:
        """As JSON types."""
        return asdict(self)

    def text(self) -> str:
        """As a part of a line of text."""
        return f"why at epoch {self.epoch}: {self.summary or self.problem or 'not read yet'}"

    def html(self) -> Html:
        """As tables, without scripts."""
        title = tag("strong", f"Why {self.key} changed in epoch {self.epoch}")
        answer = self.summary or self.problem or "not read yet"
        return joined(tag("p", title, f" · {answer}"), [shown.html() for shown in self.tables])


def panel_of(why: Why, key: Mapping[str, Any]) -> WhyPanel:
    """Return the panel of an answer."""
    panel = WhyPanel(key_text(key), why.epoch)
    values = _changes(why.changes) if why.is_join else [_before_and_after(why)]
    moved = [] if why.moved is None else [_moved(why.moved, why.epoch)]
    rows = [*_rows("Input", why), *_rows("Dropped as late", why.late_rows)]
    return replace(panel, summary=_summary(why), nearest=why.nearest, tables=[*values, *rows, *moved])


def _summary(why: Why) -> str:
    came = f"{amount(why.count(), 'input row')} fell on it"
    late = f"{amount(why.dropped, 'row')} dropped as late" if why.dropped else ""
    cause = f"cause: {why.cause}" if why.cause else "its state did not change"
    return " · ".join(filter(None, [came, late, cause, why.may_differ]))


def _before_and_after(why: Why) -> WhyTable:
    before, after = (row or {} for row in why.shown_values)
    columns = [name for name in after or before if name not in why.key]
    both = [(before.get(name), after.get(name)) for name in columns]
    compared = enumerate(both) if before and after else ()
    differ = [at for at, (old, new) in compared if canonical(old) != canonical(new)]
    rows = [
        WhyRow([cell(row[name]) for name in columns] if row else [], label)
        for label, row in (("before", before), ("after", after))
    ]
    return _short(WhyTable("Before and after", columns, rows, differ))


def _changes(changes: pd.DataFrame) -> list[WhyTable]:
    """Return the changes of a join's state by table: both sides have columns of their own."""
    shown = changes.drop(columns=[name for name in ("epoch", "committed_at") if name in changes])
    tables = shown.pop("table") if "table" in shown else None
    if tables is None:
        return []
    return [_of_frame(f"Changes of {name}", with_values(shown[tables == name])) for name in dict.fromkeys(tables)]


def _rows(title: str, found: InputSides) -> Iterator[WhyTable]:
    """Yield a table for each side that has rows."""
    for side, frame in found.shown.items():
        if count := found.counts[side]:
            note = f"The first {len(frame):,} of {count:,} rows." if count > len(frame) else ""
            yield _of_frame(title if side == "rows" else f"{title}, {side} side", frame, note)


def _moved(row: Mapping[str, Any], epoch: int) -> WhyTable:
    title = f"The row of epoch {epoch - 1} that moved the watermark"
    return _short(WhyTable(title, [*row], [WhyRow([cell(value) for value in row.values()])]))


def _of_frame(title: str, frame: pd.DataFrame, note: str = "") -> WhyTable:
    rows = [WhyRow([cell(value) for value in row]) for row in frame_tuples(frame.iloc[:, :_COLUMNS])]
    return _short(WhyTable(title, [str(name) for name in frame.columns], rows, note=note))


def _short(whole: WhyTable) -> WhyTable:
    """Return the table with as many columns as are shown."""
    if len(whole.columns) <= _COLUMNS:
        return whole
    rows = [replace(row, cells=row.cells[:_COLUMNS]) for row in whole.rows]
    note = f"{whole.note} The first {_COLUMNS} of {len(whole.columns):,} columns.".strip()
    return replace(whole, columns=whole.columns[:_COLUMNS], rows=rows, note=note)
