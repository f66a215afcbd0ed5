"""What the reports of a change share in a notebook: one style sheet, tables, and columns side by side.

HTML without scripts, in the colours of the notebook's theme. Every text is escaped here, except what is already HTML.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from streamstate.state_inspect.values import Cell
from streamstate.state_inspect.values import cell as value_cell

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


def report(*parts: str) -> str:
    """Parts, which are HTML, in the style of a report."""
    return f'<div class="streamstate-report"><style>{_STYLE}</style>{"".join(parts)}</div>'


def element(name: str, text: str, css: str = "") -> str:
    """A text in an element."""
    return f"<{name}{_class(css)}>{escape(text)}</{name}>"


def cell(content: Cell | str, css: str = "", *, rows: int = 1, columns: int = 1) -> str:
    """A table cell: a text, or a value of the state."""
    value = Cell(content) if isinstance(content, str) else content
    kind = value.kind if value.kind != "text" else ""
    title = f' title="{escape(value.whole)}"' if value.whole else ""
    spans = "".join(f' {name}="{span}"' for name, span in (("rowspan", rows), ("colspan", columns)) if span > 1)
    return f"<td{_class(f'{kind} {css}'.strip())}{title}{spans}>{escape(value.text)}</td>"


def table(caption: str, heads: Iterable[str], rows: Iterable[str]) -> str:
    """A table of heads made by :func:`head`, and of rows of cells made by :func:`cell`."""
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    above = element("caption", caption) if caption else ""
    return f"<table>{above}<thead><tr>{''.join(heads)}</tr></thead><tbody>{body}</tbody></table>"


def head(text: str, css: str = "") -> str:
    """The head of a column."""
    return f'<th scope="col"{_class(css)}>{escape(text)}</th>'


def _class(css: str) -> str:
    return f' class="{css}"' if css else ""


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
    """A column before a change and what it is after it; one of the two is missing if it is dropped or new."""

    old: SchemaColumn | None
    new: SchemaColumn | None
    how: str = ""
    """How the new one follows from the old one, in a few words."""
    wrong: bool = False
    """Whether there is no telling how the new one follows."""

    @property
    def change(self) -> str:
        """``wrong``, ``added``, ``removed``, ``changed``, or nothing."""
        if self.wrong:
            return "wrong"
        if self.old is None or self.new is None:
            return "added" if self.old is None else "removed"
        return "" if self.old == self.new and self.how in ("", "copied") else "changed"


_MARKS = {"wrong": "✗", "added": "+", "removed": "−", "changed": "±", "": ""}


def columns_html(titles: tuple[str, str], pairs: Sequence[ColumnPair]) -> str:
    """The columns before and after a change, side by side."""
    heads = [head(titles[0]), head("type"), head(titles[1], "right"), head("type"), head("")]
    return table("", heads, map(_pair_html, pairs))


def _pair_html(pair: ColumnPair) -> str:
    old, new = (
        (cell(_named(column), css), cell(column.type, "type faint")) if column else (cell("", css), cell(""))
        for column, css in ((pair.old, ""), (pair.new, "right"))
    )
    how = value_cell(f"{_MARKS[pair.change]} {pair.how}".strip()) if pair.how else ""
    return "".join([*old, *new, cell(how, f"how {pair.change}".strip())])


def _named(column: SchemaColumn) -> str:
    return f"{column.name} (key)" if column.key else column.name


def columns_text(titles: tuple[str, str], pairs: Sequence[ColumnPair]) -> list[str]:
    """The same as lines of text."""
    lines = [(*titles, "")]
    for pair in pairs:
        how = value_cell(pair.how).text if pair.how else ""
        lines.append((str(pair.old or ""), str(pair.new or ""), f"{_MARKS[pair.change]:1} {how}"))
    widths = [max(len(line[at]) for line in lines) for at in range(2)]
    return [f"{old:{widths[0]}}   {new:{widths[1]}}   {how}".rstrip() for old, new, how in lines]
