"""Builds an overview's drawings from a store."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from streamstate.widgets.model import Drawing, Focus, ViewModel
from streamstate.widgets.overview import static
from streamstate.widgets.overview.drawing import ROWS, View
from streamstate.widgets.overview.facts import StoreFacts

if TYPE_CHECKING:
    from streamstate.state_inspect import Store

__all__ = ["OverviewModel", "Selection"]


@dataclass(frozen=True)
class Selection:
    """What a person chose.

    Attributes:
        query: the query whose tables are listed.
        page: the page of queries.
    """

    query: str | None = None
    page: int = 0


class OverviewModel(ViewModel[Selection]):
    """Reads the bookkeeping of one store, one drawing at a time whichever threads ask."""

    kind = "overview"

    def __init__(self, store: Store) -> None:
        self.store = store
        self.name = str(store.path).rstrip("/").rsplit("/", 1)[-1]
        self._facts = StoreFacts(store)
        self._lock = threading.Lock()

    def newest(self) -> object:
        """Which queries and epochs there are now."""
        with self._lock:
            return self._facts.state()

    def drawing(self, selection: Selection) -> Drawing:
        """All queries, a page of them."""
        with self._lock:
            view = View(str(self.store.path), self._facts.queries(), datetime.now(UTC), selection.query, selection.page)
        return Drawing(view.message(), view)

    def acted(self, selection: Selection, action: str, value: Any, kept: Any) -> Selection:
        """A query is named by its row, and let go of by being chosen again."""
        match action, value:
            case "query", int() if isinstance(kept, View) and 0 <= value < len(kept.queries):
                name = kept.queries[value].name
                return replace(selection, query=None if name == selection.query else name)
            case "page", int():
                return replace(selection, page=max(0, value))
        return selection

    def text(self, drawing: Drawing) -> str:
        """The drawing in one line."""
        return static.summary(drawing.kept)

    def html(self, drawing: Drawing) -> str:
        """The drawing as a table."""
        return static.html(drawing.kept)

    def focus(self, selection: Selection) -> Focus:
        """The query."""
        return Focus(query=selection.query)

    def focused(self, selection: Selection, focus: Focus) -> Selection:
        """The query that another view looks at, if it is one of the store's."""
        if focus.query is None or focus.query == selection.query:
            return selection
        with self._lock:
            names = [facts.name for facts in self._facts.queries()]
        if focus.query not in names:
            return selection
        return replace(selection, query=focus.query, page=names.index(focus.query) // ROWS)
