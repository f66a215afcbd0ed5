"""The state browser: one query's state through its epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamstate.widgets.browser.model import BrowserModel
from streamstate.widgets.browser.selection import Selection
from streamstate.widgets.view import View

if TYPE_CHECKING:
    from streamstate.state_inspect import History

__all__ = ["StateBrowser"]


class StateBrowser(View[Selection]):
    """Shows the state of a query: an epoch slider, the table at that epoch, and what changed.

    Displayed in JupyterLab it is live: it follows new epochs while the query runs, pages, sorts and
    filters in the kernel, and shows one key's history when its row is clicked. In a saved notebook
    and in exported HTML a static table stands in its place; elsewhere, a line of text.

    Args:
        history: the query, ``store[name]``.
        table: the state table to show first; the query's first if left out.
        epoch: the epoch to show first; the newest is followed if left out.

    Raises:
        UnknownTableError: the query has no such table.
        UnknownEpochError: that epoch was not captured.

    Example:
        >>> StateBrowser(store["delays"])  # doctest: +SKIP
        delays: table op0 · epoch 41 (captured: 0–41) · 34 rows · +0 ~5 −0 since epoch 40
    """

    def __init__(self, history: History, table: str | None = None, *, epoch: int | None = None) -> None:
        model = BrowserModel(history)
        selection = Selection(table=table, epoch=epoch)
        model.check(selection)
        super().__init__(model, selection)
