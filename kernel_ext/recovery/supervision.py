"""Starting a query again after it failed, from its last committed epoch, less and less eagerly.

A streaming query is deterministic up to its sources: started again from its checkpoint it goes on as though it had
not failed. What keeps failing is left alone, and says so.
"""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from streamstate.recovery.back_off import BackOff, Restarts
from streamstate.recovery.failures import failure_of, in_one_line
from streamstate.snapshots.checkpoint import Checkpoint
from streamstate.snapshots.errors import QueryError, WaitTimeoutError
from streamstate.snapshots.follow import checkpoint_of
from streamstate.spark_session import running_session

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["BackOff", "Supervised", "supervise"]

_POLL_SECONDS = 0.2

_supervised: weakref.WeakSet[Supervised] = weakref.WeakSet()


def supervise(
    start: Callable[[], StreamingQuery],
    *,
    back_off: BackOff | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Supervised:
    """Start a query, and start it again whenever it fails.

    Between a failure and the next start is a wait that doubles, until an epoch is committed. Supervision ends when
    you stop it, when the query ends by itself, when it fails again and again without committing an epoch, or too
    often; :attr:`Supervised.state` says which. A query that another one stops has not failed.

    Args:
        start: starts the query from its checkpoint and returns it; called once now, and once per restart from a
            thread of its own.
        back_off: how patient to be; by default five restarts in ten minutes.
        clock: seconds that never go back, for tests.

    Returns:
        A handle with ``.query``, ``.state``, ``.stop()`` and ``.wait()``. What ``start`` raises the first time is
        raised as it is.

    Example:
        >>> def start():
        ...     return frame.writeStream.format("noop").option("checkpointLocation", "checkpoints/delays").start()
        >>> delays = ss.supervise(start)  # doctest: +SKIP
        >>> delays  # doctest: +SKIP
        <Supervised: restarting (attempt 2, in 4 s: ArithmeticException: ...)>
        >>> delays.stop()  # doctest: +SKIP
    """
    return Supervised(start, start(), back_off=back_off, clock=clock)


class Supervised:
    """A query that is started again when it fails; :func:`streamstate.supervise` makes one.

    Args:
        start: starts the query again.
        query: as it was started first.
        back_off: how patient to be.
        clock: seconds that never go back.
        ended: is called once, when the query is not started again any more.
    """

    def __init__(
        self,
        start: Callable[[], StreamingQuery],
        query: StreamingQuery,
        *,
        back_off: BackOff | None = None,
        clock: Callable[[], float] = time.monotonic,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        self._start = start
        self._clock = clock
        self._on_end = ended
        self._checkpoint = Checkpoint(checkpoint_of(query), running_session())
        self._restarts = Restarts(back_off or BackOff())
        self._changed = threading.Condition()
        self._stopping = self._leaving = self._over = False
        self._due: float | None = None
        self.query = query
        """The query as it was started last."""
        self.error: str | None = None
        """The last failure, in one line; None where there was none."""
        self.restarts = 0
        """How often the query was started again."""
        self._began = self._newest()
        self._thread = threading.Thread(target=self._watch, name="streamstate-supervision", daemon=True)
        _supervised.add(self)
        self._thread.start()

    @property
    def state(self) -> str:
        """'running', 'restarting (attempt 2, in 4 s: why)', 'failed', 'stopped' or 'finished'."""
        with self._changed:
            if self._over:
                return self._ended_as()
            if self._due is None:
                return "running"
            return f"restarting ({self._next_start(self._due)}: {self.error})"

    @property
    def next_start(self) -> str | None:
        """Which attempt comes next and when, such as 'attempt 2, in 4 s'; None while the query needs none."""
        with self._changed:
            return None if self._due is None or self._over else self._next_start(self._due)

    @property
    def restarting(self) -> bool:
        """Whether the query has failed and will be started again."""
        with self._changed:
            return self._due is not None and not self._over

    @property
    def over(self) -> bool:
        """Whether it is not started again any more."""
        with self._changed:
            return self._over

    @property
    def given_up(self) -> str | None:
        """Why a query that failed is not started again; None where it is, or has not failed."""
        return self._restarts.given_up

    def stop(self) -> None:
        """Stop the query and its supervision; nothing of either is left when this returns."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def leave(self) -> None:
        """End the supervision and let the query be; returns at once."""
        with self._changed:
            self._stopping = self._leaving = True
            self._changed.notify_all()

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the query ends for good.

        Args:
            timeout: seconds; without it there is no limit.

        Raises:
            QueryError: where it failed for good.
            WaitTimeoutError: where it goes on after ``timeout``.
        """
        with self._changed:
            ended = self._changed.wait_for(lambda: self._over, timeout)
        if not ended:
            raise WaitTimeoutError(f"The query goes on after {timeout:g} s: it is {self.state}.")
        if self.given_up is not None:
            raise QueryError(
                f"The query is not started again: {self.given_up}. Last failure: {self.error}\n"
                "Mend what failed, then start it again; it goes on after its last committed epoch."
            )

    def __repr__(self) -> str:
        again = f", started again {self.restarts} times" if self.restarts else ""
        why = f": {self.given_up}. Last failure: {self.error}" if self.given_up else ""
        return f"<Supervised: {self.state}{again}{why}>"

    def _next_start(self, due: float) -> str:
        return f"attempt {self._restarts.attempt}, in {max(due - self._clock(), 0):.0f} s"

    def _ended_as(self) -> str:
        if self._restarts.given_up is not None:
            return "failed"
        return "stopped" if self._stopping else "finished"

    def _watch(self) -> None:
        try:
            while self._runs_on() or self._again():
                pass
        finally:
            with self._changed:
                self._over, self._due = True, None
                self._changed.notify_all()
            self._on_end()

    def _runs_on(self) -> bool:
        """Wait while the query runs; False where it has ended or is to."""
        if self._leaving:
            return False
        if self._stopping:
            self.query.stop()
            return False
        if not self.query.isActive:
            return False
        with self._changed:
            if not self._stopping:
                self._changed.wait(_POLL_SECONDS)
        return True

    def _again(self) -> bool:
        """After a query ended: start it again where it failed; False where that is the end."""
        failure = None if self._stopping else failure_of(self.query)
        return failure is not None and self._start_again(failure)

    def _start_again(self, failure: str) -> bool:
        while True:
            newest = self._newest()
            wait = self._note(failure, progressed=newest > self._began)
            if wait is None or not self._waited():
                return False
            self._began = newest
            try:
                query = self._start()
            except Exception as error:  # noqa: BLE001 (as any failure: shown, and tried again while there is hope)
                failure = in_one_line(str(error))
                continue
            with self._changed:
                self.query, self._due = query, None
                self.restarts += 1
                self._changed.notify_all()
            return True

    def _note(self, failure: str, *, progressed: bool) -> float | None:
        with self._changed:
            self.error = failure
            now = self._clock()
            wait = self._restarts.after_failure(progressed=progressed, now=now)
            self._due = None if wait is None else now + wait
            self._changed.notify_all()
            return wait

    def _waited(self) -> bool:
        """Wait until the next start is due; False where it is not wanted any more."""
        with self._changed:
            while not self._stopping and self._due is not None and self._clock() < self._due:
                self._changed.wait(min(_POLL_SECONDS, max(self._due - self._clock(), 0.001)))
            return not self._stopping

    def _newest(self) -> int:
        return max(self._checkpoint.committed(), default=-1)


def leave_all() -> None:
    """End every supervision of this process; at its end the queries go with Spark."""
    for one in list(_supervised):
        one.leave()


atexit.register(leave_all)
