"""A small table for people: aligned text, and HTML in which every value is escaped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Table"]


class Table:
    """Rows under named columns, shown whole.

    Args:
        columns: the names.
        rows: one value per column; None is shown as a dash.
        empty: what is shown where there are no rows.
        caption: what the table is about, for screen readers.
    """

    def __init__(
        self, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, empty: str = "", caption: str = ""
    ) -> None:
        self.columns = list(columns)
        self.rows = [list(row) for row in rows]
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
        lines = [self.columns, *([_text(value) for value in row] for row in self.rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.columns))]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
        )

    def _repr_html_(self) -> str:
        if not self.rows:
            return f"<p>{escape(self._empty)}</p>"
        head = "".join(f'<th scope="col" style="text-align:left">{escape(name)}</th>' for name in self.columns)
        body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in self.rows)
        caption = f"<caption>{escape(self._caption)}</caption>" if self._caption else ""
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    return f'<td style="text-align:left">{escape(_text(value))}</td>'


def _text(value: object) -> str:
    """A value as people write it: numbers with thousands separators."""
    if value is None:
        return "-"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return f"{value:,.2f}" if isinstance(value, float) else str(value)
