"""The Panel app of a store: a document for each tab, and what the tab shows."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import panel as pn

from streamstate.errors import StreamStateError
from streamstate.widgets.address_fields import address_parts, restored
from streamstate.widgets.live.component import component
from streamstate.widgets.model import Focus
from streamstate.widgets.overview import StoreOverview
from streamstate.widgets.page.address import Address
from streamstate.widgets.page.guard import Visitors
from streamstate.widgets.page.head import SECTIONS, Catalogue, PageModel
from streamstate.widgets.view import View

if TYPE_CHECKING:
    from bokeh.document import Document

_TEMPLATE = """
{% extends base %}
{% block title %}streamstate{% endblock %}
{% block postamble %}
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<style>
  :root { color-scheme: light dark; }
  html, body { background: Canvas; color: CanvasText; height: auto; }
  main { max-width: 1400px; margin: 0 auto; padding: 8px; box-sizing: border-box; min-width: 0; }
</style>
{% endblock %}
{% block contents %}
<main>{{ embed(roots.page) }}</main>
{% endblock %}
"""
"""The frame of the page. It loads nothing from elsewhere, and uses the colours that the viewer prefers."""
_WAITING = 200
"""The most work items that may wait. A person never gets there; beyond that, messages are dropped."""
_log = logging.getLogger(__name__)


class WorkQueue:
    """The work of one viewer, done in order; after each item it is the next viewer's turn on the shared threads."""

    def __init__(self, threads: Executor) -> None:
        self._threads = threads
        self._lock = threading.Lock()
        self._waiting: deque[Callable[[], None]] = deque()
        self._working = False

    def submit(self, work: Callable[[], None], *, always: bool = False) -> None:
        """Run work on another thread, without waiting. Work that closes something must ``always`` be done."""
        with self._lock:
            if len(self._waiting) >= _WAITING and not always:
                return
            self._waiting.append(work)
            if self._working:
                return
            self._working = True
        self._next()

    def _next(self) -> bool:
        """Give the next item to a thread, unless the server has stopped."""
        try:
            self._threads.submit(self._run)
        except RuntimeError:
            return False
        return True

    def _run(self) -> None:
        done = False
        while not done:
            work = self._waiting.popleft()
            try:
                work()
            except Exception:  # noqa: BLE001 (a page can send anything; the view shows errors of the store)
                _log.debug("A message of a page could not be handled.", exc_info=True)
            with self._lock:
                self._working = bool(self._waiting)
                done = not self._working
            # A server that stops takes no more work, but waits for this thread, which still has to close views.
            done = done or self._next()


class _Head(View[Address]):
    """The head of the page, which can go to another address."""

    def go(self, address: Address) -> None:
        """Show an address."""
        self._live.select(address)


def _restore(view: View[Any], address: Address, *, focused: bool = True) -> None:
    """Show in a view its own choices that an address names, such as a filter, and where it looks if ``focused``."""
    selection = view.model.focused(view.selection, address.focus) if focused else view.selection
    view._live.select(restored(selection, address.view))  # noqa: SLF001 (View.look_at knows only the focus)


class TabViewer:
    """One tab: the head and the view below it.

    The threads are shared by all viewers. They handle messages, open views and close them, so that the event loop
    never waits for the store.
    """

    def __init__(
        self, catalogue: Catalogue, threads: Executor, document: Document, address: Address, *, owner: bool
    ) -> None:
        self._catalogue = catalogue
        self._owner = owner
        self._work = WorkQueue(threads)
        self._document = document
        self._model = PageModel(catalogue)
        self._head = _Head(self._model, address)
        self._head.on_look(self._moved)
        self._place = pn.Column(sizing_mode="stretch_width", margin=0)
        self._shown: View[Any] | None = None
        self._at = Address()
        self._gone = False
        self._loaded: Future[None] = Future()
        pn.state.onload(lambda: self._loaded.set_result(None))
        self._go(address)

    def layout(self) -> pn.viewable.Viewable:
        """Return the tab's content."""
        return pn.Column(self._component(self._head), self._place, sizing_mode="stretch_width", margin=0)

    def close(self, *, wait: bool = False) -> None:
        """Close the views of the tab; the shared threads may ``wait`` for the views' own. Idempotent."""
        self._gone = True
        self._close(self._head, wait=wait)
        shown, self._shown = self._shown, None
        if shown is not None:
            self._close(shown, wait=wait)

    def _component(self, view: View[Any]) -> pn.viewable.Viewable:
        """Return a view as a component whose messages go through the viewer's queue."""
        return component(view._live, self._work.submit)  # noqa: SLF001 (like View.__panel__)

    def _close(self, view: View[Any], *, wait: bool = False) -> None:
        """Close a view, by default without waiting for the drawing in progress."""
        self._work.submit(lambda: view.close(wait=wait), always=True)

    def _moved(self, _: Focus) -> None:
        """A person followed a link, or went back or forward."""
        address = self._head.selection
        shown, before = self._shown, self._at
        same = (address.query, address.section) == (before.query, before.section)
        cleared = (before.key and not address.key) or (before.between and not address.between)
        if shown is not None and same and not cleared:
            self._at = address
            _restore(shown, address)
        else:
            self._go(address)

    def _go(self, address: Address) -> None:
        """Show another view as soon as it is open."""
        self._at = address
        self._head.go(address)
        self._say("working", f"Opening {address.query or 'the store'} …")
        self._work.submit(lambda: self._open(address), always=True)

    def _open(self, address: Address) -> None:
        if self._gone or address is not self._at:
            return  # another address was requested meanwhile
        view, problem = None, ""
        try:
            view = self._view(address)
        except StreamStateError as error:
            problem = str(error)
        except Exception as error:  # noqa: BLE001 (the page shows it: no one else sees this thread)
            problem = f"{type(error).__name__}: {error}"
        self._on_page(lambda: self._show(address, view, problem))

    def _on_page(self, work: Callable[[], None]) -> None:
        """Change the document on the server's thread, but not before the page is loaded.

        A page pulls the document, and reports later that it is loaded; Panel sends it no change from between.
        """

        def schedule(_: Future[None]) -> None:
            with contextlib.suppress(RuntimeError):  # the tab is gone
                self._document.add_next_tick_callback(work)

        self._loaded.add_done_callback(schedule)

    def _view(self, address: Address) -> View[Any]:
        if address.query is None:
            return StoreOverview(self._catalogue.store)
        history = self._catalogue.store[address.query]
        section = next((section for section in SECTIONS if section.name == address.section), SECTIONS[0])
        view = section.opened(history, address, self._catalogue.statements)
        if not self._owner:
            view.model.serve()
        _restore(view, address, focused=bool(address.key or address.between) or address.epoch is not None)
        return view

    def _show(self, address: Address, view: View[Any] | None, problem: str) -> None:
        """Replace the view, unless another address was requested meanwhile."""
        if self._gone or address is not self._at:
            if view is not None:
                self._close(view)
            return
        before, self._shown = self._shown, view
        self._place.objects = [] if view is None else [self._component(view)]
        if before is not None:
            self._close(before)
        if view is not None:
            view.on_look(lambda focus: self._looked(view, focus))
        self._say("wrong" if problem else "", problem)

    def _looked(self, view: View[Any], focus: Focus) -> None:
        """The view looks elsewhere, and the address follows; another query is another view."""
        query = focus.query
        if view is not self._shown:
            return  # it is about to be replaced
        if query is None or query == self._at.query:
            at = self._model.focused(self._at, focus)
            self._at = replace(at, view=address_parts(view.selection))
            self._head.go(self._at)
        else:
            self._go(Address(query, table=focus.table, epoch=focus.epoch))

    def _say(self, kind: str, text: str) -> None:
        self._model.notice = (kind, text)
        self._head.go(self._head.selection)


def app(catalogue: Catalogue, threads: Executor, visitors: Visitors) -> Callable[[], pn.Template]:
    """Return the function that Panel calls for each tab."""

    def opened() -> pn.Template:
        document = pn.state.curdoc
        assert document is not None
        page = pn.Template(_TEMPLATE)
        context = document.session_context
        visitor = getattr(getattr(context, "request", None), "streamstate_visitor", None)
        if full := visitors.full(visitor):  # a tab that reconnects after it was forgotten
            page.add_panel("page", pn.pane.Str(full))  # type: ignore[no-untyped-call]
            return page
        arguments = {name: values[0].decode("utf-8", "replace") for name, values in pn.state.session_args.items()}
        address = Address.read(urlencode(arguments))
        viewer = TabViewer(catalogue, threads, document, address, owner=visitors.owns(visitor))
        visitors.tabs[viewer] = visitor

        def gone(_: Any) -> None:
            visitors.tabs.pop(viewer, None)
            viewer.close()

        document.on_session_destroyed(gone)
        page.add_panel("page", viewer.layout())
        return page

    return opened
