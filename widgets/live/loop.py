"""The thread behind a live view: looks for new epochs, plays, and draws at most five times a second.

Requests between two drawings only change what the next drawing shows: the latest wins, and nothing queues up. The
thread never prints; errors are shown in the view.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from weakref import WeakSet

MINIMUM = 0.2
"""The least seconds between two drawings of a view: at most five per second."""

_refresh = 0.5
_running: WeakSet[Loop] = WeakSet()


def refresh() -> float:
    """Seconds between two looks for new epochs."""
    return _refresh


def set_refresh(seconds: float) -> None:
    """Change how often every live view looks for new epochs; a view never draws more than five times a second.

    Args:
        seconds: the time between two looks; values below :data:`MINIMUM` count as that.

    Example:
        >>> set_refresh(2)
        >>> refresh()
        2.0
        >>> set_refresh(0.5)
    """
    global _refresh  # noqa: PLW0603 (a setting of the process, like %config)
    _refresh = max(MINIMUM, float(seconds))


class Loop:
    """Calls ``turn`` when woken, and again after the seconds it returned.

    Args:
        turn: one turn of the loop; returns the seconds until the next turn, unless it is woken, and whether it drew.
            The period has to pass only after a drawing, so that an action after a pause is answered at once.
        name: the thread's name.
        interrupt: ends the current turn early; must return at once.
        ended: called by the thread when it ends.
    """

    def __init__(
        self,
        turn: Callable[[], tuple[float, bool]],
        name: str,
        *,
        interrupt: Callable[[], None],
        ended: Callable[[], None],
    ) -> None:
        self._turn = turn
        self._interrupt = interrupt
        self._ended = ended
        self._woken = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        _running.add(self)
        self._thread.start()

    def wake(self) -> None:
        """Take the next turn as soon as the period allows."""
        self._woken.set()

    def stop(self) -> None:
        """End the thread after the current turn, without waiting for it, because the caller may be an event loop."""
        self._stopped.set()
        self._woken.set()
        self._interrupt()

    def join(self) -> None:
        """Wait for the thread, unless called from it; call :meth:`stop` before."""
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=10)

    def _run(self) -> None:
        self._turns()
        self._ended()

    def _turns(self) -> None:
        rest = 0.0
        while not self._stopped.is_set():
            self._woken.wait(rest)
            self._woken.clear()
            if self._stopped.is_set():
                return
            started = time.monotonic()
            rest, drew = self._turn()
            if drew:
                self._stopped.wait(max(0.0, MINIMUM - (time.monotonic() - started)))


@atexit.register
def _end() -> None:
    """End all threads before Python exits: a thread inside DuckDB would crash the process."""
    loops = list(_running)
    for loop in loops:
        loop.stop()
    for loop in loops:
        loop.join()
