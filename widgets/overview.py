"""The store overview: which queries a store holds, how fresh they are, and what they take on disk."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.calls.html import Html, joined, tag
from streamstate.state_inspect.cell_text import Cell, timestamp
from streamstate.state_inspect.overview import QueryFacts
from streamstate.state_inspect.store_facts import StoreFacts
from streamstate.widgets.chart import ACCENT
from streamstate.widgets.model import Drawing, Focus, ViewModel, first_row
from streamstate.widgets.number_text import amount, size, span
from streamstate.widgets.still import frame, table
from streamstate.widgets.view import View

if TYPE_CHECKING:
    from streamstate.state_inspect import Store

ROWS = 25
"""Queries per page."""
_HEADS = ("Query", "Newest epoch", "Epochs", "State rows", "On disk", "State tables")


@dataclass(frozen=True)
class OverviewDrawing:
    """The queries of the store at ``path``, read ``now``.

    Attributes:
        chosen: the name of the query whose tables are listed.
        page: the page that is shown; beyond the end, the last one.
    """

    path: str
    queries: Sequence[QueryFacts]
    now: datetime
    chosen: str | None = None
    page: int = 0

    @property
    def offset(self) -> int:
        """The number of the page's first query."""
        return first_row(self.page, ROWS, len(self.queries))

    @property
    def shown(self) -> Sequence[QueryFacts]:
        """The queries of the page."""
        return self.queries[self.offset : self.offset + ROWS]

    @property
    def bytes(self) -> int:
        """The size of the whole store on disk."""
        return sum(query.bytes for query in self.queries)

    @property
    def largest(self) -> int:
        """The size of the largest query on disk."""
        return max((query.bytes for query in self.queries), default=0)

    def message(self) -> dict[str, Any]:
        """Return the drawing as JSON types."""
        chosen = next((query for query in self.queries if query.name == self.chosen), None)
        return {
            "path": self.path,
            "facts": self.facts(),
            "now": self.now.timestamp() * 1000,
            "rows": [self._row(at + self.offset, query) for at, query in enumerate(self.shown)],
            "offset": self.offset,
            "total": len(self.queries),
            "size": ROWS,
            "chosen": None if chosen is None else _detail(chosen),
        }

    def text(self) -> str:
        """Return the drawing as a line of text."""
        return " · ".join([self.path, *self.facts(), *map(_summary, self.shown)])

    def html(self) -> Html:
        """Return the drawing as a table, without scripts."""
        rows = table("Queries of the store", _HEADS, map(self._still_row, self.shown))
        first, last = self.offset + 1, self.offset + len(self.shown)
        paged = f"Queries {first:,}–{last:,} of {len(self.queries):,}. " if len(self.shown) < len(self.queries) else ""
        return frame(self.path, self.facts(), rows, note=f"{paged}As of {timestamp(self.now)}.")

    def facts(self) -> list[str]:
        """Return the facts about the whole store in the head."""
        facts = [amount(len(self.queries), "query", "queries"), size(self.bytes)]
        broken = sum(bool(query.problem) for query in self.queries)
        behind = sum(bool(query.backlog) for query in self.queries)
        facts += [f"{broken:,} cannot be read"] if broken else []
        return [*facts, f"{behind:,} behind"] if behind else facts

    def _row(self, at: int, query: QueryFacts) -> dict[str, Any]:
        return {
            "at": at,
            "name": query.name,
            "depth": query.depth,
            "fork": _origin(query),
            "tables": [facts.name for facts in query.tables],
            "captured": query.captured,
            "gaps": _gaps(query),
            "epoch": query.epoch,
            "committed": timestamp(query.committed) if query.committed else "",
            "moment": query.committed.timestamp() * 1000 if query.committed else None,
            "lag": _lag(query),
            "delays": _delays(query),
            "changes": _changes(query),
            "rows": query.rows,
            "size": size(query.bytes),
            "share": query.bytes / self.largest if self.largest else 0,
            "problem": query.problem,
            "chosen": query.name == self.chosen,
        }

    def _still_row(self, query: QueryFacts) -> list[Cell | str]:
        lead = "\u2003" * query.depth + ("└ " if query.depth else "")
        name = tag("td", lead + query.name, _aside(_origin(query)))
        if query.problem:
            problem = f"Cannot be read. {query.problem}"
            return [name, tag("td", problem, colspan=len(_HEADS) - 1, style="white-space:normal")]
        newest = "none captured yet" if query.epoch is None else f"{query.epoch}"
        when = timestamp(query.committed) if query.committed else ""
        share = round(80 * query.bytes / self.largest) if self.largest else 0
        return [
            name,
            tag("td", newest, _aside(when), _aside(_lag(query) and f"captured {_lag(query)}"), _aside(_delays(query))),
            tag("td", f"{query.captured:,}", _aside(_gaps(query))),
            tag("td", _count(query.rows), _aside(_changes(query)), style="text-align:right"),
            tag("td", size(query.bytes), tag("div", style=f"height:4px;width:{share}px;background:{ACCENT}")),
            ", ".join(facts.name for facts in query.tables),
        ]


def _summary(query: QueryFacts) -> str:
    if query.problem:
        return f"{query.name}: cannot be read: {query.problem.splitlines()[0]}"
    if query.epoch is None:
        return f"{query.name}: " + ", ".join(filter(None, ["no epoch captured yet", _behind(query)]))
    rows = "" if query.rows is None else f"{query.rows:,} rows"
    parts = [f"epoch {query.epoch}", _behind(query), _gaps(query), rows, size(query.bytes)]
    return f"{query.name}: " + ", ".join(part for part in parts if part)


def _count(rows: int | None) -> str:
    return "not counted" if rows is None else f"{rows:,}"


def _origin(query: QueryFacts) -> str:
    """Return the origin of a fork, or of a version of a flow with others; empty for any other query."""
    parent, epoch = query.branch.parent, query.branch.parent_epoch
    if parent is None:
        return "" if query.version is None else str(query.version)
    return f"fork of {parent}" + ("" if epoch is None else f" after epoch {epoch}")


def _gaps(query: QueryFacts) -> str:
    """Return the number of a query's gaps, in words; empty if it has none."""
    return amount(query.gaps, "gap") if query.gaps else ""


def _lag(query: QueryFacts) -> str:
    """Return the time from the commit of the newest epoch to its capture."""
    return "" if query.lag is None else f"{span(query.lag)} after its commit"


def _behind(query: QueryFacts) -> str:
    """Return how far the capture is behind the checkpoint, in words; empty if it is not."""
    return f"{query.backlog:,} behind" if query.backlog else ""


def _delays(query: QueryFacts) -> str:
    """Return how far the capture is behind the checkpoint, and the watermark before the commit, in words."""
    lag = query.watermark_lag
    watermark = "" if lag is None else f"watermark {span(lag.total_seconds())} earlier"
    return ", ".join(part for part in (_behind(query), watermark) if part)


def _changes(query: QueryFacts) -> str:
    """Return how many rows an epoch changes, in words."""
    return "" if query.changes is None else f"{query.changes:,} changed an epoch"


def _aside(text: str) -> Html | None:
    return joined(Html("<br>"), tag("small", text, style="font-weight:normal")) if text else None


def _detail(query: QueryFacts) -> dict[str, Any]:
    """Return the tables of the chosen query."""
    largest = max((facts.bytes for facts in query.tables), default=0)
    tables = [
        asdict(facts) | {"size": size(facts.bytes), "share": facts.bytes / largest if largest else 0}
        for facts in query.tables
    ]
    return {"name": query.name, "checkpoint": query.branch.checkpoint, "tables": tables}


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
    that cannot be read is listed with the reason. Sizes come from Delta's logs; no data file is opened.

    Args:
        store: ``ss.open_store(path)``.

    Example:
        >>> StoreOverview(ss.open_store("store"))
        /.../store · 7 queries · ... kB · airports: epoch 13, 3 rows, ... kB · by_route: epoch 13, 8 rows, ... kB · ...
    """

    def __init__(self, store: Store) -> None:
        super().__init__(OverviewModel(store), OverviewSelection())
