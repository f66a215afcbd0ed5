"""Which columns of a wide table are shown: the key always, of the values a window that can be moved and searched."""

from __future__ import annotations

from collections.abc import Sequence

from streamstate.widgets.browser.drawing import Column, Window
from streamstate.widgets.browser.selection import Selection

__all__ = ["SHOWN", "shown_columns"]

SHOWN = 30
"""Value columns that are shown at once."""


def shown_columns(
    keys: Sequence[str], values: Sequence[str], selection: Selection
) -> tuple[list[Column], Window | None]:
    """The columns to show, and what of the others is said; nothing where all are shown anyway.

    Example:
        >>> columns, window = shown_columns(["k"], [f"v{n}" for n in range(200)], Selection(from_column=30))
        >>> columns[1].name, window.first, window.found, window.total
        ('v30', 30, 200, 200)
    """
    key = [Column(name, key=True) for name in keys]
    if len(values) <= SHOWN:
        return key + [Column(name, key=False) for name in values], None
    wanted = selection.named.casefold()
    found = [name for name in values if wanted in name.casefold()]
    last = max(0, (len(found) - 1) // SHOWN * SHOWN)
    first = min(selection.from_column, last)
    shown = found[first : first + SHOWN]
    window = Window(first, len(shown), len(found), len(values), selection.named)
    return key + [Column(name, key=False) for name in shown], window
