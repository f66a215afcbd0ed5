"""One viewer of the page: the head, the view below it, and how they hear of each other."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import panel as pn

from streamstate.snapshots.errors import StreamStateError
from streamstate.widgets.model import Focus
from streamstate.widgets.overview.store_overview import StoreOverview
from streamstate.widgets.page.address import Address
from streamstate.widgets.page.model import Catalogue, PageModel
from streamstate.widgets.page.sections import SECTIONS
from streamstate.widgets.view import View

if TYPE_CHECKING:
    from bokeh.document import Document

    from streamstate.state_inspect import Store

__all__ = ["Shared", "Viewer"]


@dataclass(frozen=True)
class Shared:
    """What all viewers of a server use.

    Attributes:
        store: what is read.
        catalogue: its queries.
        work: opens and closes views, so that the server's own thread never waits for the store.
    """

    store: Store
    catalogue: Catalogue
    work: Executor


class _Head(View[Address]):
    """The head of the page, which can be sent to another address."""

    def go(self, address: Address) -> None:
        """Show an address."""
        self._live.select(address)


class Viewer:
    """What one tab shows.

    Args:
        shared: what all viewers use.
        document: the tab's.
        address: what to show first.
    """

    def __init__(self, shared: Shared, document: Document, address: Address) -> None:
        self._shared = shared
        self._document = document
        self._model = PageModel(shared.store, shared.catalogue)
        self._head = _Head(self._model, address)
        self._head.on_look(self._moved)
        self._place = pn.Column(sizing_mode="stretch_width", margin=0)
        self._shown: View[Any] | None = None
        self._at = Address()
        self._gone = False
        self._go(address)

    def layout(self) -> pn.viewable.Viewable:
        """What the tab shows."""
        return pn.Column(self._head, self._place, sizing_mode="stretch_width", margin=0)

    def close(self) -> None:
        """The tab is gone: leave no thread behind. Idempotent."""
        self._gone = True
        self._shared.work.submit(self._head.close)
        shown, self._shown = self._shown, None
        if shown is not None:
            self._shared.work.submit(shown.close)

    def _moved(self, _: Focus) -> None:
        """Someone followed a link, or went back or forward."""
        address = self._head.selection
        shown, before = self._shown, self._at
        same = (address.query, address.section) == (before.query, before.section)
        closed = (before.key and not address.key) or (before.between and not address.between)
        if shown is not None and same and not closed:
            self._at = address
            shown.look_at(address.focus)
        else:
            self._go(address)

    def _go(self, address: Address) -> None:
        """Show another view, as soon as it is open."""
        self._at = address
        self._head.go(address)
        self._say("working", f"Opening {address.query or 'the store'} …")
        self._shared.work.submit(self._open, address)

    def _open(self, address: Address) -> None:
        view, problem = None, ""
        try:
            view = self._view(address)
        except StreamStateError as error:
            problem = str(error)
        except Exception as error:  # noqa: BLE001 (the page says it: nobody else sees this thread)
            problem = f"{type(error).__name__}: {error}"
        self._later(lambda: self._show(address, view, problem))

    def _view(self, address: Address) -> View[Any]:
        if address.query is None:
            return StoreOverview(self._shared.store)
        history = self._shared.store[address.query]
        section = next((each for each in SECTIONS if each.name == address.section), SECTIONS[0])
        view = section.opened(history, address)
        if address.key or address.epoch is not None or address.between:
            view.look_at(address.focus)
        return view

    def _show(self, address: Address, view: View[Any] | None, problem: str) -> None:
        """Put a view in the place of the one before, unless another was asked for meanwhile."""
        if self._gone or address is not self._at:
            if view is not None:
                self._shared.work.submit(view.close)
            return
        before, self._shown = self._shown, view
        self._place.objects = [] if view is None else [view]
        if before is not None:
            self._shared.work.submit(before.close)
        if view is not None:
            view.on_look(self._looked)
        self._say("wrong" if problem else "", problem)

    def _looked(self, focus: Focus) -> None:
        """The view looks elsewhere: the address follows; another query is another view."""
        query = focus.query
        if query is None or query == self._at.query:
            self._head.look_at(focus)
            self._at = self._model.focused(self._at, focus)
        else:
            self._go(Address(query, table=focus.table, epoch=focus.epoch))

    def _say(self, kind: str, text: str) -> None:
        self._model.say(kind, text)
        self._head.go(self._head.selection)

    def _later(self, what: Callable[[], None]) -> None:
        """Do something on the server's thread, where the document may be changed."""
        with contextlib.suppress(RuntimeError):  # the tab is gone
            self._document.add_next_tick_callback(what)
