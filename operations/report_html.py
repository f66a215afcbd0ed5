"""The style sheet of reports on a change, and its tables of columns side by side.

HTML without scripts, in the colours of the notebook's theme.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamstate.snapshots.calls.html import Html, head, table, tag, td
from streamstate.state_inspect.cell_text import Cell
from streamstate.state_inspect.cell_text import cell as value_cell

_ROOT = ".streamstate-report.streamstate-report"
"""Twice, to take precedence over JupyterLab's own styles of tables."""
_STYLE = """
R { font-size: 13px; line-height: 1.45; overflow-x: auto; }
R h4 { font-size: 13px; font-weight: 600; margin: 14px 0 2px; }
R p { margin: 4px 0; }
R ul { margin: 4px 0; padding-left: 1.4em; list-style: none; }
R li { margin: 4px 0; text-indent: -1.4em; }
R li > * { text-indent: 0; }
R pre { margin: 4px 0; padding: 4px 10px; white-space: pre-wrap; background: #8881; border-left: 3px solid #8886; }
R table { border-collapse: collapse; margin: 6px 0 10px; table-layout: auto; font-size: 13px;
  font-variant-numeric: tabular-nums; }
R caption { caption-side: top; text-align: left; padding: 2px 0; color: inherit; opacity: 0.75; }
R thead th { font-weight: 600; border-bottom: 1px solid #8888; }
R th, R td { padding: 2px 10px; text-align: left; vertical-align: top; white-space: nowrap;
  border-bottom: 1px solid #8884; }
R td.type, R td.how { white-space: normal; overflow-wrap: anywhere; min-width: 4em; max-width: 24em; }
R td.words { white-space: normal; min-width: 20em; }
R tbody tr:nth-child(n) { background: none; }
R .number { text-align: right; }
R td.null, R .faint { opacity: 0.65; }
R td.null { font-style: italic; }
R .right { border-left: 1px solid #8888; }
R .added { background: rgba(46, 158, 91, 0.16); }
R .removed, R .wrong { background: rgba(208, 68, 55, 0.14); }
R .changed { background: rgba(214, 148, 20, 0.2); }
R .problem { padding: 4px 10px; border-left: 3px solid #d04437; white-space: pre-line; }
""".replace("\nR ", f"\n{_ROOT} ").replace(", R ", f", {_ROOT} ")


def report(*parts: Html) -> Html:
    """Return parts in the style of a report."""
    return tag("div", tag("style", Html(_STYLE)), *parts, class_="streamstate-report")


def cell(content: Cell | str, css: str = "", *, rows: int = 1, columns: int = 1) -> Html:
    """Return a table cell: a text, or a value of the state with its whole text as a tooltip."""
    value = Cell(content) if isinstance(content, str) else content
    kind = "" if value.kind == "text" else value.kind
    spans = {name: span for name, span in (("rowspan", rows), ("colspan", columns)) if span > 1}
    return td(value.text, f"{kind} {css}".strip(), title=value.whole, **spans)


@dataclass(frozen=True)
class SchemaColumn:
    """A column of a state table."""

    name: str
    type: str
    key: bool = False
    """Whether it is part of the key."""

    def __str__(self) -> str:
        return f"{self.name} {self.type}{' (key)' * self.key}"


@dataclass(frozen=True)
class ColumnPair:
    """A column before and after a change; one of the two is missing if the column is dropped or new."""

    old: SchemaColumn | None
    new: SchemaColumn | None
    how: str = ""
    """The derivation of the new one from the old one, in a few words."""
    wrong: bool = False
    """True if the derivation is unknown."""

    @property
    def change(self) -> str:
        """``wrong``, ``added``, ``removed``, ``changed``, or nothing."""
        if self.wrong:
            return "wrong"
        if self.old is None or self.new is None:
            return "added" if self.old is None else "removed"
        return "" if self.old == self.new and self.how in ("", "copied") else "changed"


_MARKS = {"wrong": "✗", "added": "+", "removed": "−", "changed": "±", "": ""}


def columns_html(titles: tuple[str, str], pairs: Sequence[ColumnPair]) -> Html:
    """Return the columns before and after a change, side by side."""
    return table([titles[0], "type", head(titles[1], "right"), "type", ""], map(_pair_html, pairs))


def _pair_html(pair: ColumnPair) -> list[Html]:
    old, new = (
        (cell(_named(column), css), cell(column.type, "type faint")) if column else (cell("", css), cell(""))
        for column, css in ((pair.old, ""), (pair.new, "right"))
    )
    how = value_cell(f"{_MARKS[pair.change]} {pair.how}".strip()) if pair.how else ""
    return [*old, *new, cell(how, f"how {pair.change}".strip())]


def _named(column: SchemaColumn) -> str:
    return f"{column.name} (key)" if column.key else column.name


def columns_text(titles: tuple[str, str], pairs: Sequence[ColumnPair]) -> list[str]:
    """Return the same as lines of text."""
    lines = [(*titles, "")]
    for pair in pairs:
        how = value_cell(pair.how).text if pair.how else ""
        lines.append((str(pair.old or ""), str(pair.new or ""), f"{_MARKS[pair.change]:1} {how}"))
    widths = [max(len(line[at]) for line in lines) for at in range(2)]
    return [f"{old:{widths[0]}}   {new:{widths[1]}}   {how}".rstrip() for old, new, how in lines]
