"""The head of the page: the queries of the store, the sections of one, and the address of what is looked at."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any

from streamstate.widgets.model import Drawing, Focus, ViewModel
from streamstate.widgets.page.address import Address
from streamstate.widgets.page.sections import SECTIONS

if TYPE_CHECKING:
    from streamstate.state_inspect import Store

__all__ = ["Catalogue", "PageModel"]

FRESH = 2.0
"""Seconds for which the list of queries is believed, for all viewers together."""


class Catalogue:
    """The queries of a store, looked up once for many viewers.

    Args:
        queries: looks them up.
    """

    def __init__(self, queries: Callable[[], list[str]]) -> None:
        self._queries = queries
        self._lock = threading.Lock()
        self._known: list[str] = []
        self._until = 0.0

    def queries(self) -> list[str]:
        """Their names, sorted; at most two seconds old."""
        with self._lock:
            if time.monotonic() >= self._until:
                self._known = self._queries()
                self._until = time.monotonic() + FRESH
            return self._known


class PageModel(ViewModel[Address]):
    """Draws the head of the page for one viewer."""

    kind = "page"

    def __init__(self, store: Store, catalogue: Catalogue) -> None:
        self.name = str(store.path)
        self._catalogue = catalogue
        self._said = ("", "")

    def say(self, kind: str, text: str = "") -> None:
        """Tell the viewer something below the head: ``working``, ``wrong``, or nothing."""
        self._said = (kind, text)

    def newest(self) -> object:
        """The queries there are, and what there is to say."""
        return self._catalogue.queries(), self._said

    def drawing(self, selection: Address) -> Drawing:
        """The links of the page."""
        queries, (kind, text) = self._catalogue.queries(), self._said
        section = selection.section or SECTIONS[0].name
        message = {
            "store": self.name,
            "queries": [self._link(name, replace(_kept(selection), query=name), selection.query) for name in queries],
            "sections": [
                self._link(each.name, replace(selection, section=each.name), section, each.title)
                for each in (SECTIONS if selection.query else ())
            ],
            "query": selection.query,
            "epoch": selection.epoch,
            "address": selection.text(),
            "said": {"kind": kind, "text": text},
        }
        return Drawing(message, queries)

    def acted(self, selection: Address, action: str, value: Any, kept: Any) -> Address:
        """A link was followed, or the browser went back or forward."""
        return Address.read(str(value)) if action == "address" else selection

    def focus(self, selection: Address) -> Focus:
        """What the address names."""
        return selection.focus

    def focused(self, selection: Address, focus: Focus) -> Address:
        """The address of what a view looks at; it says all of it, so what it leaves out is not looked at any more."""
        return replace(
            selection,
            table=focus.table or selection.table,
            epoch=None if focus.live else focus.epoch,
            between=focus.between,
            key=focus.key,
        )

    def text(self, drawing: Drawing) -> str:
        """The store and its queries."""
        return f"{self.name}: {', '.join(drawing.kept) or 'no query yet'}"

    def html(self, drawing: Drawing) -> str:
        """The same, escaped."""
        return f"<p>{escape(self.text(drawing))}</p>"

    @staticmethod
    def _link(name: str, to: Address, current: str | None, title: str | None = None) -> dict[str, Any]:
        return {"name": title or name, "address": to.text(), "current": name == current}


def _kept(selection: Address) -> Address:
    """What stays when another query is chosen: it has other tables, epochs and keys, and the same sections."""
    return Address(section=selection.section)
