"""The drawing of a store overview: plain data, JSON for a page, text and still HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from streamstate.snapshots.calls.html import Html, joined, tag
from streamstate.state_inspect.overview import QueryFacts
from streamstate.state_inspect.values import Cell, timestamp
from streamstate.widgets.chart import ACCENT
from streamstate.widgets.model import first_row
from streamstate.widgets.number_text import amount, size, span
from streamstate.widgets.still import frame, table

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
        return [*facts, f"{broken:,} cannot be read"] if broken else facts

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
            tag("td", newest, _aside(when), _aside(_lag(query) and f"captured {_lag(query)}")),
            tag("td", f"{query.captured:,}", _aside(_gaps(query))),
            Cell(_count(query.rows), "number"),
            tag("td", size(query.bytes), tag("div", style=f"height:4px;width:{share}px;background:{ACCENT}")),
            ", ".join(facts.name for facts in query.tables),
        ]


def _summary(query: QueryFacts) -> str:
    if query.problem:
        return f"{query.name}: cannot be read: {query.problem.splitlines()[0]}"
    if query.epoch is None:
        return f"{query.name}: no epoch captured yet"
    rows = "" if query.rows is None else f"{query.rows:,} rows"
    parts = [f"epoch {query.epoch}", _gaps(query), rows, size(query.bytes)]
    return f"{query.name}: " + ", ".join(part for part in parts if part)


def _count(rows: int | None) -> str:
    return "not counted" if rows is None else f"{rows:,}"


def _origin(query: QueryFacts) -> str:
    """Return the origin of a fork; empty if the query is not a fork."""
    parent, epoch = query.branch.parent, query.branch.parent_epoch
    if parent is None:
        return ""
    return f"fork of {parent}" + ("" if epoch is None else f" after epoch {epoch}")


def _gaps(query: QueryFacts) -> str:
    """Return the number of a query's gaps, in words; empty if it has none."""
    return amount(query.gaps, "gap") if query.gaps else ""


def _lag(query: QueryFacts) -> str:
    """Return the time from the commit of the newest epoch to its capture."""
    return "" if query.lag is None else f"{span(query.lag)} after its commit"


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
