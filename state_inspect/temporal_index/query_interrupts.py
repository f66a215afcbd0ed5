"""Stops queries of the index after a time limit, or when their answers are no longer needed.

A query blocks its thread until DuckDB answers. Another thread can interrupt queries that run inside
:meth:`RunningStatements.active` or :func:`time_limit`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Protocol

import duckdb

from streamstate.errors import TimeLimitError

_LONGEST = 10.0
_AGAIN = 0.05
"""Seconds between two interrupts: one that comes just before a query begins has no effect."""


class QueryStopped(Exception):  # noqa: N818 (the answer is not needed, so no user sees it)
    """The query was stopped because its answer is no longer needed."""


class Interruptible(Protocol):
    """A DuckDB cursor or a Spark job group."""

    def interrupt(self) -> None:
        """End the query, which then raises an error. Called repeatedly, from another thread."""


class RunningStatements:
    """The queries of one task. Any thread may stop them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cursors: list[Interruptible] = []
        self._stopped = threading.Event()
        self._ending = False
        self._interrupter: threading.Thread | None = None

    @property
    def stopped(self) -> bool:
        """True if the task was stopped; no further query of it starts."""
        return self._stopped.is_set()

    def stop_after(self, seconds: float) -> None:
        """Stop the task if it still runs after some seconds. Only the first call counts. Returns immediately."""
        with self._lock:
            if self._ending:
                return
            self._ending = True
        timer = threading.Timer(max(0.0, seconds), self.stop)
        timer.daemon = True
        timer.start()

    def stop(self) -> None:
        """Interrupt running queries and refuse new ones. Returns immediately."""
        with self._lock:
            if self._stopped.is_set():
                return
            self._stopped.set()
            busy = bool(self._cursors)
        if busy:
            thread = threading.Thread(target=self._interrupt, name="streamstate-interrupt", daemon=True)
            thread.start()
            self._interrupter = thread

    def wait(self) -> None:
        """Wait until all interrupts are done. Call :meth:`stop` first."""
        if self._interrupter is not None:
            self._interrupter.join(timeout=_LONGEST)

    def _interrupt(self) -> None:
        while True:
            with self._lock:
                for cursor in self._cursors:
                    cursor.interrupt()
                if not self._cursors:
                    return
            threading.Event().wait(_AGAIN)

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Queries of the index that start in this block, on this thread, belong to the task."""
        token = _active.set((*_active.get(), self))
        try:
            yield
        finally:
            _active.reset(token)

    @contextlib.contextmanager
    def holding(self, cursor: Interruptible) -> Iterator[None]:
        """Register a cursor while it is in use."""
        with self._lock:
            if self._stopped.is_set():
                raise QueryStopped("The answer is no longer needed.")
            self._cursors.append(cursor)
        try:
            yield
        finally:
            with self._lock:
                self._cursors.remove(cursor)


_active: ContextVar[tuple[RunningStatements, ...]] = ContextVar("streamstate_running", default=())


@contextlib.contextmanager
def interruptible(cursor: Interruptible, interrupted: type[Exception] = duckdb.InterruptException) -> Iterator[None]:
    """Use a cursor such that the tasks active on this thread can interrupt it.

    ``interrupted`` is the error of an interrupted query.

    Raises:
        QueryStopped: one of the tasks was stopped.
    """
    tasks = _active.get()
    with contextlib.ExitStack() as stack:
        for task in tasks:
            stack.enter_context(task.holding(cursor))
        try:
            yield
        except interrupted as error:
            if any(task.stopped for task in tasks):
                raise QueryStopped("The answer is no longer needed.") from error
            raise


@contextlib.contextmanager
def time_limit(seconds: float, what: str) -> Iterator[None]:
    """Stop the queries of this block after a time limit.

    Args:
        seconds: the time that they may take together.
        what: the name of the operation, for the message.

    Raises:
        TimeLimitError: they took longer.

    Example:
        >>> with time_limit(5, "The condition"):
        ...     table.count(where="count > 74")
        2
    """
    task = RunningStatements()
    timer = threading.Timer(seconds, task.stop)
    timer.daemon = True
    timer.start()
    try:
        with task.active():
            yield
    except QueryStopped as error:
        if not task.stopped:
            raise
        raise TimeLimitError(f"{what} took longer than {seconds:g} s and was stopped.") from error
    finally:
        timer.cancel()
