"""The comparison view: two timelines of a query side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamstate.widgets.comparison.model import ComparisonModel, Selection
from streamstate.widgets.view import View

if TYPE_CHECKING:
    from streamstate.state_inspect.branches.comparison import Comparison

__all__ = ["ComparisonView"]


class ComparisonView(View[Selection]):
    """Shows where two timelines part: how many keys differ at each epoch, and the first of them side by side.

    Displayed in JupyterLab the state table and the column can be chosen; in a saved notebook and in exported HTML
    still pictures stand in its place; elsewhere, a few lines of text.

    Args:
        comparison: what ``history.compare(other)`` gives, or a replay's ``.comparison``.

    Example:
        >>> ComparisonView(store["delays"].compare(store["what_if"]))  # doctest: +SKIP
        Comparison of delays with what_if: epochs 40 to 52, table op0 …
    """

    def __init__(self, comparison: Comparison) -> None:
        super().__init__(ComparisonModel(comparison), Selection())
