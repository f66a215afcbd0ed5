"""The signals that end a command which runs as a service."""

from __future__ import annotations

import queue
import signal
from collections.abc import Iterator
from contextlib import suppress
from typing import Generic, TypeVar

_T = TypeVar("_T")
WAKE_SECONDS = 1.0
"""Python calls a signal's handler in the main thread, and only between two steps of it.

A signal that comes just before the thread blocks, or that another thread receives, does not wake it: no wait is longer.
"""


class Stopping(Generic[_T]):
    """SIGTERM and SIGINT: the first ends the captures after the passes under way, the second ends the process at once.

    Attributes:
        asked: whether the first has come.
        outcomes: receives what the captures did; None: they are to end. It is the only queue whose put may be called by
            a signal handler.
    """

    def __init__(self) -> None:
        self.asked = False
        self.outcomes: queue.SimpleQueue[_T | None] = queue.SimpleQueue()
        self._before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def __enter__(self) -> Stopping[_T]:
        self.watch_signals()
        return self

    def __exit__(self, *_error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def watch_signals(self) -> None:
        """Handle the signals, also if something else has begun to handle them."""
        for number in self._before:
            signal.signal(number, signal.SIG_DFL if self.asked else self._ask)

    def next_outcome(self) -> _T | None:
        """Wait for the next outcome, and return it; None: the captures are to end."""
        while True:
            with suppress(queue.Empty):
                return self.outcomes.get(timeout=WAKE_SECONDS)

    def left(self) -> Iterator[_T]:
        """Yield the outcomes that have not been taken yet."""
        while not self.outcomes.empty():
            if (outcome := self.outcomes.get()) is not None:
                yield outcome

    def _ask(self, _number: int, _frame: object) -> None:
        self.asked = True
        self.outcomes.put(None)
        self.watch_signals()
