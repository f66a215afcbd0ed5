"""The key history view: one key of a state table through all epochs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from streamstate.widgets.key_life.model import KeyLifeModel
from streamstate.widgets.key_life.selection import Selection
from streamstate.widgets.view import View

if TYPE_CHECKING:
    from streamstate.state_inspect import History

__all__ = ["KeyHistoryView"]


class KeyHistoryView(View[Selection]):
    """Shows one key through the epochs: a plot for each column, and below them each change with its cause.

    Displayed in JupyterLab it is live: it follows new epochs, shows the key that is clicked in a linked view, and a
    click on a change takes linked views to its epoch. In a saved notebook and in exported HTML still pictures and the
    newest changes stand in its place; elsewhere, a line of text.

    Args:
        history: the query, ``store[name]``.
        table: the state table; if left out, the first that has such keys.
        key: a value for each key column; may be left out where a linked view chooses it, or a person types it.

    Raises:
        UnknownTableError: the query has no such table.
        UnknownColumnError: the table's key has no such column.
        InvalidArgumentError: a key column is missing, or a value does not fit its type.

    Example:
        >>> KeyHistoryView(store["delays"], "op0", {"carrier": "HA", "origin": "JFK"})  # doctest: +SKIP
        delays: table op0 · key carrier HA, origin JFK · 31 changes · changed at epoch 40 (input) · there now
    """

    def __init__(self, history: History, table: str | None = None, key: Mapping[str, Any] | None = None) -> None:
        model = KeyLifeModel(history)
        selection = Selection(table, None if key is None else dict(key))
        model.check(selection)
        super().__init__(model, selection)
