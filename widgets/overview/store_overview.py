"""The store overview: which queries a store has, how fresh they are, and what they take on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamstate.widgets.overview.model import OverviewModel, Selection
from streamstate.widgets.view import View

if TYPE_CHECKING:
    from streamstate.state_inspect import Store

__all__ = ["StoreOverview"]


class StoreOverview(View[Selection]):
    """Shows the queries of a store: state tables, epochs, gaps, freshness, rows of state and bytes on disk.

    Forks stand below the query that they were forked from. It follows while queries run. Choosing a query lists its
    state tables, and tells those who listen: ``overview.on_look`` hears of it as ``focus.query``. A query that cannot
    be read says why, beside the others. Sizes come from Delta's file lists; no data file is opened.

    Args:
        store: ``ss.open_store(path)``.

    Example:
        >>> StoreOverview(ss.open_store("store"))  # doctest: +SKIP
        store · 2 queries · 1.2 MB · delays: epoch 41, 34 rows, 1.1 MB · weather: epoch 12, 2 gaps, 800 rows, 90.3 kB
    """

    def __init__(self, store: Store) -> None:
        super().__init__(OverviewModel(store), Selection())
