"""A view while pages show it: takes the actions of people, and draws the results.

Actions arrive on the thread on which the page's host handles messages; they only change the selection. One thread per
watched view looks for new epochs, plays and draws. Without a page there is no thread.

A slider move arrives in :meth:`Live.received`; the view's ``actions`` module turns it into a selection, and the thread
draws that in :meth:`Live._turn`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol

from streamstate.snapshots.capture.allocator_settings import give_back, plain_memory
from streamstate.snapshots.store.consistent_read import consistent_read
from streamstate.state_inspect.temporal_index.query_interrupts import QueryStopped, RunningStatements
from streamstate.widgets.front import plot_library
from streamstate.widgets.live.loop import Loop, refresh
from streamstate.widgets.live.outputs import Pace
from streamstate.widgets.model import Drawing, S, ViewModel

STEP = 0.4
"""Seconds that an epoch is shown while playing."""
PAGES = 3
"""The most pages of a notebook that show one view; beyond that, the oldest is closed, which may be gone already."""
PATIENCE = 1.0
"""Seconds before a newer request stops a drawing, so that quick drawings are seen while a slider moves."""
UNFINISHED = 4
"""The most quick drawings in a row; the next one is whole, even if there is a newer request."""
REMEMBERED = 20
"""Drawings whose rows can still be clicked: a new one may be drawn just before a click arrives."""
_log = logging.getLogger(__name__)


class Page(Protocol):
    """A page that shows a view."""

    handled: int
    """The number of the last action that arrived from the page."""

    def send(self, content: Mapping[str, Any]) -> None:
        """Send a message; any thread may call this."""

    def close(self) -> None:
        """Tell the page to return to its still form, and hang up."""


class Live(Generic[S]):
    """The pages of a view and what they show.

    ``ended`` is called when the view is closed, before its pages are, ``chosen`` with the selection after a person
    changed it, and ``settled`` with a drawing that pages have shown for a moment.
    """

    def __init__(
        self,
        model: ViewModel[S],
        selection: S,
        *,
        ended: Callable[[], None],
        chosen: Callable[[S], None],
        settled: Callable[[Drawing], None],
    ) -> None:
        self.model = model
        self.selection = selection
        self._ended = ended
        self._chosen = chosen
        self._settled = settled
        self._pace = Pace()
        self._whole: Drawing | None = None
        self._cells: int | None = None
        self._caught_up: object = None
        self._lock = threading.RLock()
        self._pages: list[Page] = []
        self._closed = False
        self._loop: Loop | None = None
        self._stopped_loop: Loop | None = None
        self._running = RunningStatements()
        self._began = 0.0
        self._busy = False
        self._asked = 0
        self._drawn: object = None
        self._kept: dict[int, Any] = {}
        self._number = 0
        self._problem = ""
        self._stepped = 0.0
        self._unfinished = 0

    @property
    def kind(self) -> str:
        """The JavaScript module that draws the view."""
        return self.model.kind

    @property
    def watched(self) -> bool:
        """True if a page shows the view now."""
        return bool(self._pages)

    @property
    def closed(self) -> bool:
        """True if the view was closed."""
        return self._closed

    def joined(self, page: Page) -> None:
        """Draw for another page; the first one starts the thread. After :meth:`close`, the page is closed."""
        with self._lock:
            crowded = [page]
            if not self._closed:
                self._pages.append(page)
                crowded, self._pages = self._pages[:-PAGES], self._pages[-PAGES:]
                if self._loop is None:
                    name = f"streamstate-{self.kind}-{self.model.name}"
                    self._loop = Loop(self._turn, name, interrupt=self._interrupt, ended=self.model.release)
                self._ask()
        for old in crowded:
            old.close()

    def left(self, page: Page) -> None:
        """Drop a page; the last one ends the thread. Does not wait for the drawing in progress."""
        with self._lock:
            self._pages = [known for known in self._pages if known is not page]
            watched = bool(self._pages)
        if not watched:
            self._rest()

    def received(self, page: Page, content: Mapping[str, Any]) -> None:
        """Handle an action of a person, or a message of the page itself."""
        match str(content.get("do")):
            case "leave":
                self.left(page)
                page.close()
            case "here":
                page.send({"kind": "here"})
            case "library":
                page.send({"kind": "library", "script": plot_library()})
            case action:
                self._change(page, action, content)

    def select(self, selection: S) -> None:
        """Show another selection that was not chosen in a page."""
        with self._lock:
            self.selection = selection
            self._ask()

    def wake(self) -> None:
        """Draw again, because the model has something new. Any thread may call this."""
        with self._lock:
            self._ask()

    def displayed(self) -> None:
        """Note that the running cell has displayed the view."""
        self._cells = 0

    def catch_up(self) -> None:
        """At the end of a cell, draw for the outputs alone if no page shows the view and there is something new.

        At the end of the cell that displayed the view, its output is current, and a page may be about to join.
        """
        if self._cells is None or self._pages or self._closed:
            return
        self._cells += 1
        if self._cells == 1:
            return
        try:
            news = (self.model.newest(), self.selection)
            if news != self._caught_up:
                self._caught_up = news
                self._settled(self.model.drawing(self.selection))
        except Exception:  # noqa: BLE001 (the outputs stay as they are; the cell that ended is not to blame)
            _log.debug("The outputs of %s could not be replaced.", self.model.name, exc_info=True)
        if not self._pages:
            self.model.release()

    def close(self, *, wait: bool = True) -> None:
        """Close every page and end the thread. Idempotent.

        Args:
            wait: return only when the thread has ended and caches are dropped.
        """
        self._closed = True
        self._ended()
        with self._lock:
            pages, self._pages = self._pages, []
        self._rest()
        if wait:
            if self._stopped_loop:  # including one that was stopped when the last page left, a moment ago
                self._stopped_loop.join()
            self._running.wait()
            self.model.release()
        for page in pages:
            page.close()

    def _change(self, page: Page, action: str, content: Mapping[str, Any]) -> None:
        with self._lock:
            page.handled = int(content.get("n", 0))
            if action == "play":
                self._stepped = time.monotonic()  # so that the first epoch is shown as long as the others
            kept = self._kept.get(int(content.get("view") or 0))
            before, self.selection = (
                self.selection,
                self.model.acted(self.selection, action, content.get("value"), kept),
            )
            self._ask()
            now = self.selection
        if now != before:
            self._chosen(now)

    def _ask(self) -> None:
        """Request a drawing, and stop the one in progress if it takes long."""
        self._asked += 1
        if self._busy:
            self._running.stop_after(PATIENCE - (time.monotonic() - self._began))
        if self._loop:
            self._loop.wake()

    @consistent_read()
    def _turn(self) -> tuple[float, bool]:
        """Draw if there is something new; returns the seconds until the next turn, and whether it drew."""
        with self._lock:
            asked, selection = self._asked, self.selection
            pages = [(page, page.handled) for page in self._pages]
            self._running = running = RunningStatements()
            self._began, self._busy = time.monotonic(), True
            if self._loop is None:
                running.stop()  # the last page left just now
        drew = True
        try:
            with running.active():
                newest = self.model.newest()
                selection = self._played(selection)
                drew = self._draw_news((asked, selection, newest), selection, pages)
            self._settle()
        except QueryStopped:
            self._drawn, self._unfinished, drew = None, 0, False
        except Exception as problem:  # noqa: BLE001 (the page shows it: no one else sees this thread)
            self._drawn, self._unfinished = None, 0
            self._report(f"{problem}" or type(problem).__name__, pages)
        with self._lock:
            self._busy = False
        if drew and plain_memory():
            give_back()
        return self._pause(selection), drew

    def _draw_news(self, news: object, selection: S, pages: Sequence[tuple[Page, int]]) -> bool:
        """Draw what is new: first a quick drawing, then, unless there is a newer request, the whole one."""
        if self._drawn == news and not self._unfinished:
            return False
        whole = self._drawn == news or self._unfinished >= UNFINISHED
        drawing = self.model.drawing(selection) if whole else self.model.quick(selection)
        self._draw(drawing, pages)
        self._unfinished = self._unfinished + 1 if drawing.unfinished else 0
        self._drawn = news
        return True

    def _settle(self) -> None:
        """Pass on the newest whole drawing, if it is time."""
        if self._whole is None or self._pace.wait() > 0:
            return
        drawing, self._whole = self._whole, None
        began = time.monotonic()
        try:
            self._settled(drawing)
        finally:
            self._pace.replaced(time.monotonic() - began)

    def _pause(self, selection: S) -> float:
        """Seconds until the next turn."""
        if self._unfinished:
            return 0
        if self.model.playing(selection):
            return max(0.0, STEP - (time.monotonic() - self._stepped))
        return refresh() if self._whole is None else min(refresh(), self._pace.wait())

    def _draw(self, drawing: Drawing, pages: Sequence[tuple[Page, int]]) -> None:
        with self._lock:
            self._number += 1
            self._kept[self._number] = drawing.kept
            self._kept.pop(self._number - REMEMBERED, None)
        self._problem = ""
        if not drawing.unfinished:
            self._whole = drawing
            self._pace.drawn()
        message = dict(drawing.message) | {"kind": "show", "view": self._number}
        for page, handled in pages:
            page.send(message | {"handled": handled})

    def _played(self, selection: S) -> S:
        """Return the next step if it is time, unless a person just chose another selection."""
        if not self.model.playing(selection) or time.monotonic() - self._stepped < STEP:
            return selection
        self._stepped = time.monotonic()
        moved = self.model.played(selection)
        with self._lock:
            unchanged = self.selection is selection
            if unchanged:
                self.selection = moved
            now = self.selection
        if unchanged:
            self._chosen(now)
        return now

    def _report(self, problem: str, pages: Sequence[tuple[Page, int]]) -> None:
        if problem == self._problem:
            return
        self._problem = problem
        for page, handled in pages:
            try:
                page.send({"kind": "problem", "text": problem, "handled": handled})
            except Exception:  # noqa: BLE001 (the line is broken, as when a server drops a session while it is drawn)
                self.left(page)

    def _rest(self) -> None:
        """Stop the thread, which may still be drawing, and drop what is kept, because nobody watches."""
        with self._lock:
            loop, self._loop = self._loop, None
            self._stopped_loop = loop or self._stopped_loop
            self.selection = self.model.paused(self.selection)
            self._drawn, self._unfinished, self._whole = None, 0, None
            self._kept.clear()
        if loop:
            loop.stop()

    def _interrupt(self) -> None:
        """End the drawing in progress."""
        self._running.stop()
