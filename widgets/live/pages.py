"""A view while pages show it: takes what people do, and draws what they then see.

Actions arrive on whichever thread the page's host handles messages; they only change the selection. One
thread per watched view looks for news, plays and draws. Without a page there is no thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol

from streamstate.widgets.front import plot_library
from streamstate.widgets.live.loop import Loop
from streamstate.widgets.live.memory import give_back, use_plain_memory
from streamstate.widgets.model import Drawing, S, ViewModel
from streamstate.widgets.settings import refresh

__all__ = ["Live", "Page"]

STEP = 0.4
"""Seconds an epoch stays while playing."""
PAGES = 3
"""Pages of a notebook that show one view at once; one that left without a word makes way."""
UNFINISHED = 4
"""Quick drawings in a row; the next is a whole one, although something newer is asked for."""
REMEMBERED = 20
"""Drawings whose rows can be clicked: while it follows, a new one may be drawn just before a click arrives."""


class Page(Protocol):
    """One page that shows a view."""

    handled: int
    """The number of the last action that arrived from it."""

    def send(self, content: Mapping[str, Any]) -> None:
        """Send one message; any thread may."""

    def close(self) -> None:
        """Tell the page to go back to its still form, and hang up."""


class Live(Generic[S]):
    """The pages of one view and what they show.

    Args:
        model: builds the drawings.
        selection: what is shown first.
        ended: called when it is closed, before its pages are let go of.
        chosen: called after a person changed what is looked at, with the selection.
    """

    def __init__(
        self, model: ViewModel[S], selection: S, *, ended: Callable[[], None], chosen: Callable[[S], None]
    ) -> None:
        self.model = model
        self.selection = selection
        self._ended = ended
        self._chosen = chosen
        self._lock = threading.RLock()
        self._pages: list[Page] = []
        self._loop: Loop | None = None
        self._asked = 0
        self._drawn: object = None
        self._kept: dict[int, Any] = {}
        self._number = 0
        self._problem = ""
        self._stepped = 0.0
        self._unfinished = 0

    @property
    def kind(self) -> str:
        """The JavaScript module that draws it."""
        return self.model.kind

    @property
    def watched(self) -> bool:
        """Whether a page shows it now."""
        return bool(self._pages)

    def joined(self, page: Page) -> None:
        """Draw for one more page; the first starts the thread."""
        with self._lock:
            self._pages.append(page)
            crowded, self._pages = self._pages[:-PAGES], self._pages[-PAGES:]
            if self._loop is None:
                use_plain_memory()
                self._loop = Loop(self._turn, f"streamstate-{self.kind}-{self.model.name}")
            self._ask()
        for old in crowded:
            old.close()

    def left(self, page: Page) -> None:
        """A page is gone; the last ends the thread."""
        with self._lock:
            self._pages = [known for known in self._pages if known is not page]
            watched = bool(self._pages)
        if not watched:
            self._rest()

    def received(self, page: Page, content: Mapping[str, Any]) -> None:
        """One action of a person, or one of the page itself."""
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
        """Show another selection, not chosen in a page."""
        with self._lock:
            self.selection = selection
            self._ask()

    def wake(self) -> None:
        """Draw again: there is something new that the model heard of by itself. Any thread may call."""
        with self._lock:
            self._ask()

    def close(self) -> None:
        """Let go of every page and end the thread. Idempotent."""
        self._ended()
        with self._lock:
            pages, self._pages = self._pages, []
        self._rest()
        for page in pages:
            page.close()

    def _change(self, page: Page, action: str, content: Mapping[str, Any]) -> None:
        with self._lock:
            page.handled = int(content.get("n", 0))
            if action == "play":
                self._stepped = time.monotonic()  # the epoch it starts from stays as long as the others
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
        """Have the thread draw again."""
        self._asked += 1
        if self._loop:
            self._loop.wake()

    def _turn(self) -> tuple[float, bool]:
        """Draw if there is something new; returns the seconds until the next look, and whether it drew."""
        with self._lock:
            asked, selection = self._asked, self.selection
            pages = [(page, page.handled) for page in self._pages]
        drew = True
        try:
            newest = self.model.newest()
            selection = self._played(selection)
            drew = self._draw_news((asked, selection, newest), selection, pages)
        except Exception as problem:  # noqa: BLE001 (whatever it is, the page says it: nobody else sees this thread)
            self._drawn, self._unfinished = None, 0
            self._tell(f"{problem}" or type(problem).__name__, pages)
        if drew:
            give_back()
        return self._rests(selection), drew

    def _draw_news(self, news: object, selection: S, pages: Sequence[tuple[Page, int]]) -> bool:
        """Draw what is new: at first what is quick, then, when nothing newer is asked for, the whole."""
        if self._drawn == news and not self._unfinished:
            return False
        whole = self._drawn == news or self._unfinished >= UNFINISHED
        drawing = self.model.drawing(selection) if whole else self.model.quick(selection)
        self._draw(drawing, pages)
        self._unfinished = self._unfinished + 1 if drawing.unfinished else 0
        self._drawn = news
        return True

    def _rests(self, selection: S) -> float:
        """Seconds until the next look."""
        if self._unfinished:
            return 0
        if self.model.playing(selection):
            return max(0.0, STEP - (time.monotonic() - self._stepped))
        return refresh()

    def _draw(self, drawing: Drawing, pages: Sequence[tuple[Page, int]]) -> None:
        with self._lock:
            self._number += 1
            self._kept[self._number] = drawing.kept
            self._kept.pop(self._number - REMEMBERED, None)
        self._problem = ""
        message = dict(drawing.message) | {"kind": "show", "view": self._number}
        for page, handled in pages:
            page.send(message | {"handled": handled})

    def _played(self, selection: S) -> S:
        """The next step when it is time, unless a person just chose another."""
        if not self.model.playing(selection) or time.monotonic() - self._stepped < STEP:
            return selection
        self._stepped = time.monotonic()
        moved = self.model.played(selection)
        with self._lock:
            mine = self.selection is selection
            if mine:
                self.selection = moved
            now = self.selection
        if mine:
            self._chosen(now)
        return now

    def _tell(self, problem: str, pages: Sequence[tuple[Page, int]]) -> None:
        if problem == self._problem:
            return
        self._problem = problem
        for page, handled in pages:
            page.send({"kind": "problem", "text": problem, "handled": handled})

    def _rest(self) -> None:
        """Without a page there is no thread, and nothing is kept."""
        with self._lock:
            loop, self._loop = self._loop, None
            self.selection = self.model.paused(self.selection)
            self._drawn, self._unfinished = None, 0
            self._kept.clear()
        if loop:
            loop.stop()
        self.model.release()
