"""Threads that load tables into an index: new epochs while they arrive, and what will probably be looked at next."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from streamstate.errors import InvalidArgumentError, StreamStateError
from streamstate.snapshots.capture.background import BackgroundThread
from streamstate.state_inspect.temporal_index.query_interrupts import QueryStopped, RunningStatements


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


class ReadAhead:
    """A thread that loads one thing after another; what is wanted next replaces what was wanted before.

    Args:
        load: loads the table of a name at an epoch. Its errors are left to whoever asks for that epoch.
    """

    def __init__(self, load: Callable[[str, int], object]) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._wanted: list[tuple[str, int]] = []
        self._loading: tuple[tuple[str, int], RunningStatements] | None = None
        self._thread: BackgroundThread | None = None

    def want(self, table: str, epochs: Sequence[int]) -> None:
        """Load a table at some epochs, in this order; stop loading anything else. Returns at once."""
        with self._lock:
            self._wanted = [(table, epoch) for epoch in epochs]
            if self._loading is not None:
                what, running = self._loading
                if what in self._wanted:
                    self._wanted.remove(what)
                else:
                    running.stop()
            if self._wanted and self._thread is None:
                self._thread = BackgroundThread(self._run, "streamstate-read-ahead")
                self._thread.start()
                atexit.register(self.stop)  # DuckDB aborts a process that ends while a thread is in a query

    def stop(self) -> None:
        """Stop loading, and wait until the thread has ended."""
        self.want("", [])
        with self._lock:
            thread, loading = self._thread, self._loading
        if thread is not None:
            thread.join()
        if loading is not None:
            loading[1].wait()

    def _run(self) -> None:
        while (work := self._next()) is not None:
            (table, epoch), running = work
            with suppress(QueryStopped, StreamStateError), running.active():
                self._load(table, epoch)

    def _next(self) -> tuple[tuple[str, int], RunningStatements] | None:
        with self._lock:
            self._loading = None
            if self._wanted:
                self._loading = self._wanted.pop(0), RunningStatements()
            else:
                self._thread = None
                atexit.unregister(self.stop)
            return self._loading
