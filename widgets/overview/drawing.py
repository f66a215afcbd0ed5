"""What an overview shows, as plain data: built in the kernel, drawn elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from streamstate.widgets.overview.facts import QueryFacts
from streamstate.widgets.timeline.spans import span
from streamstate.widgets.values import timestamp

__all__ = ["ROWS", "View", "size"]

ROWS = 25
"""Queries a page has."""


@dataclass(frozen=True)
class View:
    """Everything one drawing needs.

    Attributes:
        path: the store.
        queries: all of them.
        now: when they were looked at.
        chosen: the name of the query whose tables are listed.
        page: the page that is shown; one beyond the end is the last.
    """

    path: str
    queries: Sequence[QueryFacts]
    now: datetime
    chosen: str | None = None
    page: int = 0

    @property
    def offset(self) -> int:
        """The number of the first query of the page."""
        return min(self.page, max(0, (len(self.queries) - 1) // ROWS)) * ROWS

    @property
    def shown(self) -> Sequence[QueryFacts]:
        """The queries of the page."""
        return self.queries[self.offset : self.offset + ROWS]

    @property
    def bytes(self) -> int:
        """What the whole store takes on disk."""
        return sum(query.bytes for query in self.queries)

    def message(self) -> dict[str, Any]:
        """The view as JSON types: what goes to a page."""
        largest = max((query.bytes for query in self.queries), default=0)
        chosen = next((query for query in self.queries if query.name == self.chosen), None)
        return {
            "path": self.path,
            "facts": self.facts(),
            "now": self.now.timestamp() * 1000,
            "rows": [self._row(at + self.offset, query, largest) for at, query in enumerate(self.shown)],
            "offset": self.offset,
            "total": len(self.queries),
            "size": ROWS,
            "chosen": None if chosen is None else _detail(chosen),
        }

    def facts(self) -> list[str]:
        """What is said of the whole store."""
        number = len(self.queries)
        broken = sum(bool(query.problem) for query in self.queries)
        told = [f"{number:,} {'query' if number == 1 else 'queries'}", size(self.bytes)]
        return [*told, f"{broken:,} cannot be read"] if broken else told

    def _row(self, at: int, query: QueryFacts, largest: int) -> dict[str, Any]:
        return {
            "at": at,
            "name": query.name,
            "depth": query.depth,
            "fork": forked(query),
            "tables": [table.name for table in query.tables],
            "captured": query.captured,
            "gaps": gaps_text(query) if query.gaps else "",
            "epoch": query.epoch,
            "committed": timestamp(query.committed) if query.committed else "",
            "moment": query.committed.timestamp() * 1000 if query.committed else None,
            "lag": lag(query),
            "rows": query.rows,
            "size": size(query.bytes),
            "share": query.bytes / largest if largest else 0,
            "problem": query.problem,
            "chosen": query.name == self.chosen,
        }


def forked(query: QueryFacts) -> str:
    """Where a fork comes from; empty where a query is none."""
    if query.parent is None:
        return ""
    return f"fork of {query.parent}" + ("" if query.parent_epoch is None else f" after epoch {query.parent_epoch}")


def gaps_text(query: QueryFacts) -> str:
    """How many gaps a query has."""
    return f"{query.gaps:,} {'gap' if query.gaps == 1 else 'gaps'}"


def lag(query: QueryFacts) -> str:
    """How long after its commit the newest epoch was captured."""
    return "" if query.lag is None else f"{span(query.lag)} after its commit"


def size(number: float) -> str:
    """Bytes as people say them.

    Example:
        >>> size(812), size(12_345), size(3_400_000)
        ('812 B', '12.3 kB', '3.4 MB')
    """
    if number < 1_000:
        return f"{number:.0f} B"
    for unit, each in (("kB", 1e3), ("MB", 1e6), ("GB", 1e9)):
        if number < 999.95 * each:
            return f"{number / each:.1f} {unit}"
    return f"{number / 1e12:,.1f} TB"


def _detail(query: QueryFacts) -> dict[str, Any]:
    """The tables of the query that was chosen."""
    largest = max((table.bytes for table in query.tables), default=0)
    tables = [
        asdict(table) | {"size": size(table.bytes), "share": table.bytes / largest if largest else 0}
        for table in query.tables
    ]
    return {"name": query.name, "checkpoint": query.checkpoint, "tables": tables}
