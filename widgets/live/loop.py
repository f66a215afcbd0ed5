"""The thread behind a live view: looks for new epochs, plays, and draws at most five times a second.

Whatever is asked for between two drawings only sets what the next one shows: the latest wins, and
nothing queues up. The thread never prints; what fails is handed to the drawing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

__all__ = ["PERIOD", "Loop"]

PERIOD = 0.2
"""Seconds between two drawings, at least."""


class Loop:
    """Calls ``turn`` when woken, and again after the seconds it returned.

    Args:
        turn: one turn of the loop; returns the seconds until the next, even if nothing wakes it, and whether it drew.
            Only after a drawing the period has to pass: who acts after a pause is answered at once.
        name: the thread's name.
    """

    def __init__(self, turn: Callable[[], tuple[float, bool]], name: str) -> None:
        self._turn = turn
        self._woken = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Take the next turn as soon as the period allows."""
        self._woken.set()

    def stop(self) -> None:
        """End the thread; waits for the turn under way unless called from it."""
        self._stopped.set()
        self._woken.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=10)

    def _run(self) -> None:
        rest = 0.0
        while not self._stopped.is_set():
            self._woken.wait(rest)
            self._woken.clear()
            if self._stopped.is_set():
                return
            started = time.monotonic()
            rest, drew = self._turn()
            if drew:
                self._stopped.wait(max(0.0, PERIOD - (time.monotonic() - started)))
