"""A thread that can be joined again after an interrupted join."""

from __future__ import annotations

import threading
from collections.abc import Callable


class BackgroundThread(threading.Thread):
    """A daemon thread whose :meth:`join` may be interrupted and repeated.

    Up to Python 3.12, an interrupted ``Thread.join`` marks the thread as ended, so that the next join returns at once.
    """

    def __init__(self, target: Callable[[], object], name: str) -> None:
        super().__init__(target=target, name=name, daemon=True)
        self._over = threading.Event()

    def run(self) -> None:
        """Run the target; the thread calls this."""
        try:
            super().run()
        finally:
            self._over.set()

    def join(self, timeout: float | None = None) -> None:
        """Wait until the thread has ended, or for a number of seconds."""
        if self._over.wait(timeout):
            super().join()
