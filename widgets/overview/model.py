"""The store overview: which queries a store holds, how fresh they are, and what they take on disk."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from streamstate.state_inspect.overview import StoreFacts
from streamstate.widgets.model import Drawing, Focus, ViewModel
from streamstate.widgets.overview.drawing import ROWS, OverviewDrawing
from streamstate.widgets.view import View

if TYPE_CHECKING:
    from streamstate.state_inspect import Store


@dataclass(frozen=True)
class OverviewSelection:
    """The query whose tables are listed, and the page of queries."""

    query: str | None = None
    page: int = 0


class OverviewModel(ViewModel[OverviewSelection]):
    """Reads the bookkeeping of one store; a lock allows one drawing at a time."""

    kind = "overview"

    def __init__(self, store: Store) -> None:
        self.store = store
        self.name = str(store.path).rstrip("/").rsplit("/", 1)[-1]
        self._facts = StoreFacts(store)
        self._lock = threading.Lock()

    def newest(self) -> object:
        """Return the queries and their epochs."""
        with self._lock:
            return self._facts.state()

    def quick(self, selection: OverviewSelection) -> Drawing:
        """Return the drawing without the rows that are still to be counted; the next drawing has them."""
        view = self.view(selection, whole=False)
        return Drawing(view.message(), view, unfinished=any(query.rows is None for query in view.shown))

    def view(self, selection: OverviewSelection, *, whole: bool = True) -> OverviewDrawing:
        """Return all queries, by page; without ``whole``, rows that capture has not counted are left out."""
        with self._lock:
            queries = self._facts.queries()
            view = OverviewDrawing(str(self.store.path), queries, datetime.now(UTC), selection.query, selection.page)
            if not whole:
                return view
            counted = {query.name: self._facts.counted(query) for query in view.shown}
        return replace(view, queries=[counted.get(query.name, query) for query in queries])

    def acted(self, selection: OverviewSelection, action: str, value: Any, kept: Any) -> OverviewSelection:
        """The selection after an action. A page names a query by its row; choosing it again clears the choice."""
        match action, value:
            case "query", int() if isinstance(kept, OverviewDrawing) and 0 <= value < len(kept.queries):
                name = kept.queries[value].name
                return replace(selection, query=None if name == selection.query else name)
            case "page", int():
                return replace(selection, page=max(0, value))
        return selection

    def focus(self, selection: OverviewSelection) -> Focus:
        """Return the query."""
        return Focus(query=selection.query)

    def focused(self, selection: OverviewSelection, focus: Focus) -> OverviewSelection:
        """Return the query of another view, if the store has it."""
        if focus.query is None or focus.query == selection.query:
            return selection
        with self._lock:
            names = [facts.name for facts in self._facts.queries()]
        if focus.query not in names:
            return selection
        return replace(selection, query=focus.query, page=names.index(focus.query) // ROWS)


class StoreOverview(View[OverviewSelection]):
    """Shows the queries of a store: state tables, epochs, gaps, freshness, state rows and bytes on disk.

    Forks are listed below the query that they were forked from. The view is updated while queries run. Choosing a
    query lists its state tables and notifies listeners: ``overview.on_look`` receives it as ``focus.query``. A query
    that cannot be read is listed with the reason. Sizes come from Delta's file lists; no data file is opened.

    Args:
        store: ``ss.open_store(path)``.

    Example:
        >>> StoreOverview(ss.open_store("store"))
        /.../store · 7 queries · ... kB · airports: epoch 13, 3 rows, ... kB · by_route: epoch 13, 8 rows, ... kB · ...
    """

    def __init__(self, store: Store) -> None:
        super().__init__(OverviewModel(store), OverviewSelection())
