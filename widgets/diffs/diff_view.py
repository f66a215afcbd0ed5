"""The diff view: what differs between two epochs of a state table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamstate.widgets.diffs.model import DiffModel
from streamstate.widgets.diffs.selection import LIVE, Selection
from streamstate.widgets.view import View

if TYPE_CHECKING:
    from streamstate.state_inspect import History

__all__ = ["DiffView"]


class DiffView(View[Selection]):
    """Shows which keys were added, removed and changed between two epochs, and which moved the most.

    Displayed in JupyterLab it is live: either epoch can be moved, the keys are paged, sorted and searched in the
    kernel, and where the later epoch is ``"live"`` it follows the query. In a saved notebook and in exported HTML
    the counts, the first keys and a picture of the largest movers stand in its place; elsewhere, a line of text.

    Args:
        history: the query, ``store[name]``.
        a: the epoch compared from: a number, or ``"live - 10"``, which moves on as epochs are captured.
        b: the epoch compared to; the newest, whichever that is, if left out.
        table: the state table to show first; the query's first if left out.
        other: the query that ``b`` is an epoch of, where it is another: a fork, or the query in another store.

    Raises:
        UnknownTableError: the query has no such table.
        UnknownEpochError: an epoch was not captured.
        InvalidArgumentError: an epoch cannot be meant.

    Example:
        >>> DiffView(store["delays"], 10, 12)  # doctest: +SKIP
        delays: table op0 · epoch 10 → 12 · +3 ~412 −1 (added, changed, removed) · 1,020 → 1,022 rows
    """

    def __init__(
        self,
        history: History,
        a: int | str,
        b: int | str = LIVE,
        table: str | None = None,
        *,
        other: History | None = None,
    ) -> None:
        model = DiffModel(history, other)
        selection = Selection(a, b, table)
        model.check(selection)
        super().__init__(model, selection)
