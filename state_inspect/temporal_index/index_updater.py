"""Keeps a store's index current while epochs arrive, so that readers do not wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from streamstate.errors import InvalidArgumentError, StreamStateError
from streamstate.snapshots.capture.background import BackgroundThread


def _seconds(interval: object) -> bool:
    return isinstance(interval, (int, float)) and not isinstance(interval, bool) and interval > 0


class Tail:
    """A thread that loads new epochs of the tables that were read before; :meth:`Store.tail` returns it.

    It reads the store, so it makes no difference which process writes the epochs.
    """

    def __init__(self, advance: Callable[[], None], interval: float) -> None:
        if not _seconds(interval):
            raise InvalidArgumentError(f"Invalid interval={interval!r}: expected seconds above 0, such as 0.5.")
        self.error: StreamStateError | None = None
        """The error of the last check, if it failed; the next check tries again."""
        self._advance = advance
        self._interval = interval
        self._stopped = threading.Event()
        self._thread = BackgroundThread(self._run, "streamstate-tail")
        self._thread.start()

    @property
    def running(self) -> bool:
        """True while the thread runs."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Stop the thread. Loaded epochs stay. Safe to call more than once."""
        self._stopped.set()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "running" if self.running else "stopped"
        return f"<Tail, {state}, every {self._interval:g} s{f'; last error: {self.error}' if self.error else ''}>"

    def _run(self) -> None:
        while not self._stopped.wait(self._interval):
            try:
                self._advance()
                self.error = None
            except StreamStateError as error:
                self.error = error
