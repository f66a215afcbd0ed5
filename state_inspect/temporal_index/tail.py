"""Keeps the index of a store current while epochs arrive, so that no reader waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from streamstate.snapshots.errors import InvalidArgumentError, StreamStateError


def _seconds(every: object) -> bool:
    return isinstance(every, (int, float)) and not isinstance(every, bool) and every > 0


class Tail:
    """A thread that loads new epochs of whatever was read before; :meth:`Store.tail` gives it.

    Whether a capture of this process writes the epochs or another's does not matter: it looks at the store.

    Args:
        advance: loads what has arrived.
        every: seconds between two looks.
    """

    def __init__(self, advance: Callable[[], None], every: float) -> None:
        if not _seconds(every):
            raise InvalidArgumentError(f"every={every!r} cannot be meant: give seconds, more than none, such as 0.5.")
        self.error: StreamStateError | None = None
        """Why the last look failed; None where it did not. The next one tries again."""
        self._advance = advance
        self._every = every
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="streamstate-tail", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether it still looks."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """End it; what was loaded stays. Idempotent."""
        self._stopped.set()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "running" if self.running else "stopped"
        return f"<Tail, {state}, every {self._every:g} s{f'; last error: {self.error}' if self.error else ''}>"

    def _run(self) -> None:
        while not self._stopped.wait(self._every):
            try:
                self._advance()
                self.error = None
            except StreamStateError as error:
                self.error = error
