"""A browser while pages show it: takes what people do, and draws what they then see.

Actions arrive on whichever thread the kernel handles messages; they only change the selection. One
thread per watched browser looks for new epochs, plays and draws. Without a page there is no thread.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from streamstate.widgets.comms import Page
from streamstate.widgets.loop import Loop
from streamstate.widgets.reader import Reader
from streamstate.widgets.selection import Selection, changed

__all__ = ["Live"]

POLL = 0.5
"""Seconds between two looks for new epochs."""
STEP = 0.4
"""Seconds an epoch stays while playing."""
PAGES = 3
"""Pages that show one browser at once; one that left without a word makes way."""
REMEMBERED = 20
"""Views whose rows can be clicked: while it follows, a new one may be drawn just before a click arrives."""


class Live:
    """The pages of one browser and what they show.

    Args:
        reader: builds the views; it locks itself.
        selection: what is shown first.
        ended: called when it is closed, before its pages are let go of.
    """

    def __init__(self, reader: Reader, selection: Selection, ended: Callable[[], None]) -> None:
        self.selection = selection
        self._ended = ended
        self._reader = reader
        self._lock = threading.RLock()
        self._pages: list[Page] = []
        self._loop: Loop | None = None
        self._asked = 0
        self._drawn: object = None
        self._keys: dict[int, Sequence[Mapping[str, Any]]] = {}
        self._number = 0
        self._problem = ""
        self._stepped = 0.0

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
                self._loop = Loop(self._turn, f"streamstate-browser-{self._reader.name}")
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
        """One action of a person."""
        action, value = str(content.get("do")), content.get("value")
        if action == "leave":
            self.left(page)
            page.close()
        elif action == "here":
            page.send({"kind": "here"})
        else:
            self._change(page, action, value, int(content.get("n", 0)))

    def _change(self, page: Page, action: str, value: Any, number: int) -> None:
        with self._lock:
            page.handled = number
            if action == "play":
                self._stepped = time.monotonic()  # the epoch it starts from stays as long as the others
            self.selection = changed(self.selection, action, self._key(value) if action == "key" else value)
            self._ask()

    def close(self) -> None:
        """Let go of every page and end the thread. Idempotent."""
        self._ended()
        with self._lock:
            pages, self._pages = self._pages, []
        self._rest()
        for page in pages:
            page.close()

    def _ask(self) -> None:
        """Have the thread draw again."""
        self._asked += 1
        if self._loop:
            self._loop.wake()

    def _key(self, value: Any) -> Mapping[str, Any] | None:
        """The key of a row of a view that was sent: a page names rows by number, never by value."""
        if value is None:
            return None
        keys = self._keys.get(int(value["view"]))
        return keys[int(value["row"])] if keys else self.selection.key

    def _turn(self) -> float:
        """Draw if there is something new; returns the seconds until the next look."""
        with self._lock:
            asked, selection = self._asked, self.selection
            pages = [(page, page.handled) for page in self._pages]
        try:
            captured = self._reader.captured()
            selection = self._played(selection, captured)
            if self._drawn != (asked, selection, captured):
                self._draw(selection, pages)
                self._drawn = (asked, selection, captured)
        except Exception as problem:  # noqa: BLE001 (whatever it is, the page says it: nobody else sees this thread)
            self._drawn = None
            self._tell(f"{problem}" or type(problem).__name__, pages)
        return STEP if selection.playing else POLL

    def _draw(self, selection: Selection, pages: Sequence[tuple[Page, int]]) -> None:
        view = self._reader.view(selection)
        with self._lock:
            self._number += 1
            self._keys[self._number] = view.page.keys
            self._keys.pop(self._number - REMEMBERED, None)
        self._problem = ""
        message = view.message() | {"kind": "show", "view": self._number}
        for page, handled in pages:
            page.send(message | {"handled": handled})

    def _played(self, selection: Selection, captured: Sequence[int]) -> Selection:
        """The next epoch when it is time, unless a person just chose another."""
        if not selection.playing or time.monotonic() - self._stepped < STEP:
            return selection
        self._stepped = time.monotonic()
        after = bisect_right(captured, selection.epoch or 0)
        onward = after < len(captured)
        moved = replace(selection, epoch=captured[after]) if onward else replace(selection, playing=False)
        with self._lock:
            if self.selection is selection:
                self.selection = moved
            return self.selection

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
            self.selection = replace(self.selection, playing=False)
            self._drawn = None
            self._keys.clear()
        if loop:
            loop.stop()
        self._reader.release()
