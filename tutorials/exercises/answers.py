"""What a call of a worksheet shows: a line, a few more, and a small table; in text and in HTML."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from streamstate.snapshots.calls.html import Html, head, joined, table, tag, td

Mark = Literal["right", "wrong", "waiting", "note"]

NOT_YET = "Not answered yet."

_SIGNS: dict[Mark, str] = {"right": "✓", "wrong": "✗", "waiting": "…", "note": "i"}
_COLOURS: dict[Mark, str] = {"right": "#2e9d4f", "wrong": "#d9534f", "waiting": "#8888", "note": "#4a90d9"}
_LONGEST = 300


@dataclass(frozen=True)
class Table:
    """Rows of values below a heading."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]

    def __repr__(self) -> str:
        lines = [list(self.columns), *([shown(value) for value in row] for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        aligned = ("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
        return "\n".join(aligned)

    def _repr_html_(self) -> str:
        cell = "padding: 2px 12px 2px 0; text-align: left; vertical-align: top; color: inherit; background: none"
        heads = [head(column, style=cell) for column in self.columns]
        rows = [[td(_html_value(value), style=cell) for value in row] for row in self.rows]
        return table(heads, rows, style="margin: 6px 0; border: 0")


@dataclass(frozen=True)
class Answer:
    """What a worksheet says. A notebook shows it below the cell.

    Args:
        mark: "right", "wrong", "waiting" (for the learner) or "note".
        title: the first line.
        lines: more lines; text between backticks is code.
        table: a table below them.
        picture: any object with ``_repr_html_``, shown at the end.

    Example:
        >>> Answer("wrong", "Not yet.", ["`evict` returned too much."], Table(["input", "yours"], [[{1: 2}, {}]]))
        ✗ Not yet.
          `evict` returned too much.
        <BLANKLINE>
          input   yours
          {1: 2}  {}
    """

    mark: Mark
    title: str
    lines: Sequence[str] = ()
    table: Table | None = None
    picture: Any = None

    def __repr__(self) -> str:
        text = [f"{_SIGNS[self.mark]} {self.title}", *(f"  {line}" for line in self.lines)]
        if self.table:
            text += ["", *(f"  {line}" for line in repr(self.table).splitlines())]
        return "\n".join(text)

    def _repr_html_(self) -> str:
        return tag(
            "div",
            tag("b", _SIGNS[self.mark], " ", _marked_up(self.title)),
            [tag("div", _marked_up(line)) for line in self.lines],
            Html(self.table._repr_html_()) if self.table else None,
            None if self.picture is None else Html(self.picture._repr_html_()),
            role="status",
            style=f"border-left: 4px solid {_COLOURS[self.mark]}; padding: 2px 0 2px 10px; color: inherit",
        )


def shown(value: Any) -> str:
    """A value as a line of text, not too long."""
    if isinstance(value, str):
        text = value
    elif isinstance(value, (set, frozenset)):
        text = "{" + ", ".join(sorted(map(str, value))) + "}" if value else "{}"
    else:
        try:
            text = repr(value)
        except Exception as error:  # noqa: BLE001 - a learner's object may have any fault
            text = f"<{type(value).__name__}, whose repr raised {type(error).__name__}>"
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text)} characters)"


def _marked_up(text: str) -> Html:
    parts = re.split(r"`([^`]+)`", text)  # every second one is code
    return joined(tag("code", part) if number % 2 else part for number, part in enumerate(parts))


def _html_value(value: Any) -> Html:
    return _marked_up(value) if isinstance(value, str) else tag("code", shown(value))
