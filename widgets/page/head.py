"""The head of the page: the queries of the store, the sections of a query, and the address of what is shown."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.calls.html import Html, tag
from streamstate.widgets.dashboard.model import QueryDashboard
from streamstate.widgets.diffs.model import DiffView
from streamstate.widgets.key_history.model import KeyHistoryView
from streamstate.widgets.model import Drawing, Focus, ViewModel
from streamstate.widgets.page.address import Address
from streamstate.widgets.page.statement_view import StatementView
from streamstate.widgets.state_browser.model import StateBrowser
from streamstate.widgets.timeline.model import Timeline

if TYPE_CHECKING:
    from streamstate.state_inspect import History, Store
    from streamstate.widgets.page.statements import Statements
    from streamstate.widgets.view import View

FRESH = 2.0
"""Seconds for which the list of queries is cached, for all viewers together."""


@dataclass(frozen=True)
class Section:
    """A view of a query: its name in an address, its title on the page, and what opens it for an address."""

    name: str
    title: str
    opened: Callable[[History, Address, Statements], View[Any]]


def _difference(history: History, address: Address, _: Statements) -> View[Any]:
    """Return the two epochs of an address; by default an epoch and the one captured before it."""
    if address.between:
        return DiffView(history, *address.between, address.table)
    captured = history.captured()
    last = captured[-1] if address.epoch is None else address.epoch
    first = max((epoch for epoch in captured if epoch < last), default=last)
    return DiffView(history, first, last, address.table)


SECTIONS = (
    Section("browser", "State", lambda history, at, _: StateBrowser(history, at.table, epoch=at.epoch)),
    Section("timeline", "Timeline", lambda history, *_: Timeline(history)),
    Section("diff", "Differences", _difference),
    Section("key", "Key", lambda history, at, _: KeyHistoryView(history, at.table, at.key)),
    Section("dashboard", "Query", lambda history, at, _: QueryDashboard(history, table=at.table)),
    Section("sql", "SQL", lambda history, _, statements: StatementView(history, statements)),
)
"""The sections in the order of their links; the first is the default."""


class Catalogue:
    """A store and its queries, which are looked up once for many viewers, and what runs their statements."""

    def __init__(self, store: Store, statements: Statements) -> None:
        self.store = store
        self.statements = statements
        self._lock = threading.Lock()
        self._known: list[str] = []
        self._until = 0.0

    def queries(self) -> list[str]:
        """Their names, sorted; at most two seconds old."""
        with self._lock:
            if time.monotonic() >= self._until:
                self._known = self.store.queries()
                self._until = time.monotonic() + FRESH
            return self._known


class PageModel(ViewModel[Address]):
    """Draws the head of the page for one viewer."""

    kind = "page"

    def __init__(self, catalogue: Catalogue) -> None:
        self.name = str(catalogue.store.path)
        self._catalogue = catalogue
        self.notice = ("", "")
        """A message below the head, and before it its kind: ``working``, ``wrong``, or empty for no message."""

    def newest(self) -> object:
        """Return the queries and the message."""
        return self._catalogue.queries(), self.notice

    def drawing(self, selection: Address) -> Drawing:
        """Return the links of the page."""
        queries, (kind, text) = self._catalogue.queries(), self.notice
        section = selection.section or SECTIONS[0].name
        elsewhere = Address(section=selection.section)  # another query has other tables, epochs and keys
        message = {
            "store": self.name,
            "queries": [self._link(name, replace(elsewhere, query=name), selection.query) for name in queries],
            "sections": [
                self._link(known.name, replace(selection, section=known.name, view={}), section, known.title)
                for known in (SECTIONS if selection.query else ())
            ],
            "query": selection.query,
            "epoch": selection.epoch,
            "address": selection.text(),
            "notice": {"kind": kind, "text": text},
        }
        return Drawing(message, queries)

    def acted(self, selection: Address, action: str, value: Any, kept: Any) -> Address:
        """Return the address of the link that was followed, or that the browser went back or forward to."""
        return Address.read(str(value)) if action == "address" else selection

    def focus(self, selection: Address) -> Focus:
        """Return the place that the address names."""
        return selection.focus

    def focused(self, selection: Address, focus: Focus) -> Address:
        """Return the address of a view's focus; epochs and keys that the focus leaves out are removed."""
        return replace(
            selection,
            table=focus.table or selection.table,
            epoch=None if focus.live else focus.epoch,
            between=focus.between,
            key=focus.key,
        )

    def text(self, drawing: Drawing) -> str:
        """Return the store and its queries."""
        return f"{self.name}: {', '.join(drawing.kept) or 'no query yet'}"

    def html(self, drawing: Drawing) -> Html:
        """Return the store and its queries, escaped."""
        return tag("p", self.text(drawing))

    @staticmethod
    def _link(name: str, to: Address, current: str | None, title: str | None = None) -> dict[str, Any]:
        return {"name": title or name, "address": to.text(), "current": name == current}
