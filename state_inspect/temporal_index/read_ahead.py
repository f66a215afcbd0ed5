"""Loads what will probably be looked at next, while nobody waits."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from streamstate.errors import StreamStateError
from streamstate.snapshots.capture.background import BackgroundThread
from streamstate.state_inspect.temporal_index.query_interrupts import QueryStopped, RunningStatements


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
