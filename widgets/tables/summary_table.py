"""A small table for people: aligned text, and HTML in which every value is escaped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.calls.html import Html, head, joined, table, tag

if TYPE_CHECKING:
    import pandas as pd

# JupyterLab styles tables for data: numbers right-aligned, alternating rows. These override it.
_CELL = "text-align:{};padding:.25em .8em;vertical-align:top;white-space:{}"
_SHORT = 34
"""Longer texts may wrap. A time with its zone has 33 characters."""
_HEAD = "text-align:{};padding:.25em .8em;white-space:nowrap;border-bottom:1px solid var(--jp-border-color1, #8888)"
_CAPTION = "text-align:left;caption-side:top;padding:.25em .8em;color:inherit;opacity:.75"

# Each state has its own sign, so that nobody has to rely on colour. The colours are those of JupyterLab's theme; the
# fallbacks are readable on light and on dark backgrounds.
_SIGNS = {
    "running": ("●", "var(--jp-success-color1, #2e9e44)"),
    "restarting": ("↻", "var(--jp-warn-color1, #c77700)"),
    "finished": ("✓", "var(--jp-success-color1, #2e9e44)"),
    "followed": ("◌", "var(--jp-info-color1, #1f8fd6)"),
    "stopped": ("■", "var(--jp-ui-font-color2, #808080)"),
    "failed": ("✕", "var(--jp-error-color1, #e0442e)"),
    "not captured": ("○", "var(--jp-warn-color1, #c77700)"),
}


@dataclass(frozen=True)
class TableCell:
    """A value and how it is displayed."""

    value: Any
    """What ``to_pandas`` returns."""
    text: str | None = None
    """What is displayed; by default the value, with thousands separators."""
    title: str | None = None
    """The full text, shown as a tooltip."""
    sign: str = ""
    """A symbol before the text."""
    colour: str = ""
    """CSS colour of the sign."""
    number: bool = False
    """Whether to align it right although it is text."""

    @property
    def plain(self) -> str:
        """The cell as plain text."""
        return f"{self.sign} {self._shown}" if self.sign else self._shown

    def html(self) -> Html:
        """Return the cell as HTML; screen readers read the text without the sign."""
        if not self.sign:
            return joined(self._shown)
        return joined(tag("span", self.sign, aria_hidden="true", style=f"color:{self.colour}"), f" {self._shown}")

    @property
    def _shown(self) -> str:
        return _formatted(self.value) if self.text is None else self.text


def state_cell(state: str, detail: str | None = None) -> TableCell:
    """Return a query's state with its sign, and a detail in brackets."""
    sign, colour = _SIGNS[state]
    return TableCell(state, f"{state} ({detail})" if detail else None, sign=sign, colour=colour)


class SummaryTable:
    """Rows of values or cells under named columns, always shown in full; the first column labels the row.

    None is displayed as a dash, and ``empty`` if there are no rows.
    """

    def __init__(
        self, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, empty: str = "", caption: str = ""
    ) -> None:
        self.columns = list(columns)
        self._cells = [[value if isinstance(value, TableCell) else TableCell(value) for value in row] for row in rows]
        self.rows = [[cell.value for cell in row] for row in self._cells]
        self._empty = empty
        self._caption = caption

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (dict(zip(self.columns, row, strict=True)) for row in self.rows)

    def to_pandas(self) -> pd.DataFrame:
        """Return the values as a DataFrame."""
        import pandas as pd

        return pd.DataFrame(self.rows, columns=pd.Index(self.columns), dtype=object)

    def __repr__(self) -> str:
        if not self.rows:
            return self._empty
        lines = [self.columns, *([cell.plain for cell in row] for row in self._cells)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.columns))]
        numeric = self._numeric()
        return "\n".join(
            "  ".join(
                text.rjust(width) if number else text.ljust(width)
                for text, width, number in zip(line, widths, numeric, strict=True)
            ).rstrip()
            for line in lines
        )

    def _repr_html_(self) -> str:
        if not self.rows:
            return tag("p", self._empty)
        sides = ["right" if number else "left" for number in self._numeric()]
        heads = [head(name, style=_HEAD.format(side)) for name, side in zip(self.columns, sides, strict=True)]
        caption = tag("caption", self._caption, style=_CAPTION) if self._caption else None
        return table(heads, (self._row_html(row, sides) for row in self._cells), caption=caption, style="color:inherit")

    def _numeric(self) -> list[bool]:
        """Check for each column if it holds numbers, which are aligned right."""
        columns = [[cell for cell in column if cell.value is not None] for column in zip(*self._cells, strict=True)]
        return [
            bool(column) and all(cell.number or type(cell.value) in (int, float) for cell in column)
            for column in columns
        ]

    def _row_html(self, row: list[TableCell], sides: list[str]) -> list[Html]:
        cells = []
        for index, (cell, side) in enumerate(zip(row, sides, strict=True)):
            # Long texts, such as paths and errors, may wrap.
            style = _CELL.format(side, "nowrap" if len(cell.plain) <= _SHORT else "normal")
            name, scope = ("td", None) if index else ("th", "row")
            cells.append(tag(name, cell.html(), scope=scope, style=style, title=cell.title))
        return cells


def _formatted(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return f"{value:,.2f}" if isinstance(value, float) else str(value)
