"""A small table for people: aligned text, and HTML in which every value is escaped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Shown", "Table"]

# What JupyterLab's own style says of tables is for data: numbers to the right, lines that alternate.
_CELL = "text-align:{};padding:.25em .8em;vertical-align:top;white-space:{}"
_HEAD = "text-align:{};padding:.25em .8em;white-space:nowrap;border-bottom:1px solid var(--jp-border-color1, #8888)"
_CAPTION = "text-align:left;caption-side:top;padding:.25em .8em;color:inherit;opacity:.75"


@dataclass(frozen=True)
class Shown:
    """A value, and how it is shown.

    Args:
        value: what ``to_pandas`` gives.
        text: what is read; by default the value as people write it.
        title: what is said in full where a pointer rests on it.
        sign: a sign before the text.
        colour: CSS of the sign's colour; it says nothing that the sign does not.
        number: whether it stands to the right, as numbers do, although it is text.
    """

    value: Any
    text: str | None = None
    title: str | None = None
    sign: str = ""
    colour: str = ""
    number: bool = False

    @property
    def plain(self) -> str:
        """As text."""
        text = _text(self.value) if self.text is None else self.text
        return f"{self.sign} {text}" if self.sign else text

    def html(self) -> str:
        """As escaped HTML."""
        text = escape(_text(self.value) if self.text is None else self.text)
        return f"{self.sign_html()} {text}" if self.sign else text

    def sign_html(self) -> str:
        """The sign alone; who hears the page hears the text beside it."""
        return f'<span aria-hidden="true" style="color:{escape(self.colour)}">{escape(self.sign)}</span>'


class Table:
    """Rows under named columns, shown whole.

    Args:
        columns: the names.
        rows: one value per column, or how it is :class:`Shown`; None is shown as a dash. The first names the row.
        empty: what is shown where there are no rows.
        caption: what the table is about.
    """

    def __init__(
        self, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, empty: str = "", caption: str = ""
    ) -> None:
        self.columns = list(columns)
        self._shown = [[one if isinstance(one, Shown) else Shown(one) for one in row] for row in rows]
        self.rows = [[one.value for one in row] for row in self._shown]
        self._empty = empty
        self._caption = caption

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (dict(zip(self.columns, row, strict=True)) for row in self.rows)

    def to_pandas(self) -> pd.DataFrame:
        """The values as a data frame."""
        import pandas as pd

        return pd.DataFrame(self.rows, columns=pd.Index(self.columns), dtype=object)

    def __repr__(self) -> str:
        if not self.rows:
            return self._empty
        lines = [self.columns, *([one.plain for one in row] for row in self._shown)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.columns))]
        numbers = self._numbers()
        return "\n".join(
            "  ".join(
                cell.rjust(width) if number else cell.ljust(width)
                for cell, width, number in zip(line, widths, numbers, strict=True)
            ).rstrip()
            for line in lines
        )

    def _repr_html_(self) -> str:
        if not self.rows:
            return f"<p>{escape(self._empty)}</p>"
        sides = ["right" if number else "left" for number in self._numbers()]
        head = "".join(
            f'<th scope="col" style="{_HEAD.format(side)}">{escape(name)}</th>'
            for name, side in zip(self.columns, sides, strict=True)
        )
        body = "".join(f"<tr>{self._row_html(row, sides)}</tr>" for row in self._shown)
        caption = f'<caption style="{_CAPTION}">{escape(self._caption)}</caption>' if self._caption else ""
        return f'<table style="color:inherit">{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'

    def _numbers(self) -> list[bool]:
        """For each column whether it is of numbers, which stand to the right."""
        there = [[one for one in column if one.value is not None] for column in zip(*self._shown, strict=True)]
        return [
            bool(column) and all(one.number or type(one.value) in (int, float) for one in column) for column in there
        ]

    def _row_html(self, row: list[Shown], sides: list[str]) -> str:
        cells = []
        for at, (one, side) in enumerate(zip(row, sides, strict=True)):
            # Long texts, such as paths and errors, may be broken; what is glanced at may not.
            style = _CELL.format(side, "nowrap" if len(one.plain) <= 30 else "normal")
            title = f' title="{escape(one.title)}"' if one.title else ""
            tag, scope = ("th", ' scope="row"') if at == 0 else ("td", "")
            cells.append(f'<{tag}{scope} style="{style}"{title}>{one.html()}</{tag}>')
        return "".join(cells)


def _text(value: object) -> str:
    """A value as people write it: numbers with thousands separators."""
    if value is None:
        return "-"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return f"{value:,.2f}" if isinstance(value, float) else str(value)
