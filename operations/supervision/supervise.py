"""Supervision: restart a query that fails from its last committed epoch, with growing waits, and notice stalls.

Started again from its checkpoint, a streaming query continues as though it had not failed, because it is deterministic
up to its sources. A query that keeps failing is given up, and its handle says why. :class:`BackOff` says when an epoch
takes so long that the query stalls, and what is done then.

A run that is stopped for a stall must have ended before another one begins. Spark cancels its tasks, and kills their
Python workers two seconds later; a Python source ends too. A function of ``foreachBatch`` that does not return cannot
be stopped: the query then stays as it is, and keeps its lease.
"""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from streamstate.errors import QueryError, StreamStateError, WaitTimeoutError, first_line, require_extra
from streamstate.operations.supervision.restart_policy import BackOff, Restarts, failure_of, in_one_line
from streamstate.operations.supervision.stall_watch import Stall, StallWatch
from streamstate.snapshots.capture.background import BackgroundThread
from streamstate.snapshots.capture.reached_checkpoint import checkpoint_of
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.spark.session import running_session

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_POLL_SECONDS = 0.2
_STOP_SECONDS = 10.0
"""Seconds after which a run that is being stopped counts as one that cannot be."""

Note: TypeAlias = Callable[[str, int, str, Mapping[str, float | str | None]], object]
"""Called with an event of supervision, the newest committed epoch, the reason in words, and numbers."""

_supervised: weakref.WeakSet[Supervised] = weakref.WeakSet()


def supervise(
    start: Callable[[], StreamingQuery],
    *,
    back_off: BackOff | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Supervised:
    """Start a query, and restart it whenever it fails.

    The wait before a restart doubles until an epoch is committed. Supervision ends when you stop it, when the query
    ends without an error, or when it fails too often or repeatedly without committing an epoch;
    :attr:`Supervised.state` says which. Stopping the query elsewhere is not a failure.

    Args:
        start: starts the query from its checkpoint and returns it; called once now, and once for each restart, in a
            background thread.
        back_off: how often to restart and how long to wait; by default five restarts in ten minutes.
        clock: a monotonic clock in seconds, for tests.

    Returns:
        A handle with ``.query``, ``.state``, ``.stop()`` and ``.wait()``.

    Raises:
        MissingDependencyError: Spark is not installed.
        Exception: whatever the first call of ``start`` raises.

    Example:
        >>> def start():
        ...     writer = frame.writeStream.format("noop").outputMode("update")
        ...     return writer.option("checkpointLocation", "checkpoints/delays").start()
        >>> delays = supervise(start)
        >>> delays.state, delays.restarts
        ('running', 0)
        >>> delays.stop()
    """
    require_extra("spark")
    return Supervised(start, start(), back_off=back_off, clock=clock)


class Supervised:
    """A query that is restarted when it fails; :meth:`streamstate.Running.supervise` returns one.

    Args:
        start: restarts the query.
        query: the running query.
        back_off: how often to restart and how long to wait.
        clock: a monotonic clock in seconds.
        ended: called once, when supervision ends.
        checkpoint: its checkpoint; by default it is asked for.
        note: writes down what is decided, before it is done.
        has_standby: returns whether a standby would take the query over if its lease was given back.
    """

    def __init__(
        self,
        start: Callable[[], StreamingQuery],
        query: StreamingQuery,
        *,
        back_off: BackOff | None = None,
        clock: Callable[[], float] = time.monotonic,
        ended: Callable[[], None] = lambda: None,
        checkpoint: str | None = None,
        note: Note = lambda *_: None,
        has_standby: Callable[[], bool] = lambda: False,
    ) -> None:
        self._start = start
        self._clock = clock
        self._on_end = ended
        self._checkpoint = CheckpointFiles(checkpoint or checkpoint_of(query), running_session())
        self._restarts = Restarts(back_off or BackOff())
        self._note_event, self._has_standby = note, has_standby
        self._stalls = StallWatch(self._restarts.back_off, self._checkpoint, clock)
        self._ending: _EndingRun | None = None
        self._changed = threading.Condition()
        self._stopping = self._leaving = self._over = self._paused = False
        self._due: float | None = None
        self.query = query
        """The query as it was last started."""
        self.error: str | None = None
        """The last failure, in one line; None if there was none."""
        self.restarts = 0
        """How many times the query was restarted."""
        self.unwritten: str | None = None
        """Why the last decision could not be written to the store; None if it could."""
        self._started_after = self._newest_epoch()
        self._thread = BackgroundThread(self._watch, "streamstate-supervision")
        _supervised.add(self)
        self._thread.start()

    @property
    def state(self) -> str:
        """'running', 'restarting (attempt 2, in 4 s: reason)', 'failed', 'stopped' or 'finished'.

        While it stalls, it is for example 'running (no epoch for 42 s, usually 1.3 s: task 3 of stage 12 runs 41 s, the
        others took 0.4 s)'.
        """
        with self._changed:
            if self._over:
                return self._end_state()
            if self._due is None:
                return "running" if self.stalled is None else f"running ({self.stalled})"
            return f"restarting ({self._describe_start(self._due)}: {self.error})"

    @property
    def stall(self) -> Stall | None:
        """The stall that the query is in, as of the last look for its cause; None if it is in none."""
        return None if self._over else self._stalls.stall

    @property
    def stalled(self) -> str | None:
        """The stall in words, and if the query could not be stopped; None if it does not stall."""
        stall, ending = self.stall, self._ending
        if stall is None:
            return None
        return f"{stall}; it cannot be stopped: {ending.why}" if ending is not None and ending.why else str(stall)

    @property
    def next_start(self) -> str | None:
        """The next attempt and its time, such as 'attempt 2, in 4 s'; None if no restart is due."""
        with self._changed:
            return None if self._due is None or self._over else self._describe_start(self._due)

    @property
    def restarting(self) -> bool:
        """True if the query has failed and will be restarted."""
        with self._changed:
            return self._due is not None and not self._over

    @property
    def over(self) -> bool:
        """True if supervision has ended."""
        with self._changed:
            return self._over

    @property
    def given_up(self) -> str | None:
        """The reason that a failed query is not restarted; None if it is, or has not failed."""
        return self._restarts.given_up

    def stop(self) -> None:
        """Stop the query and its supervision, and wait until both have ended."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def leave(self) -> None:
        """End the supervision without stopping the query; returns at once."""
        with self._changed:
            self._stopping = self._leaving = True
            self._changed.notify_all()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Within the block, the end of the query is no failure: it is stopped and started again."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    def goes_on_with(self, query: StreamingQuery, start: Callable[[], StreamingQuery]) -> None:
        """Supervise the query as it was started again, and from now on start it in another way."""
        with self._changed:
            self.query, self._start = query, start

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the query ends and is not restarted.

        Args:
            timeout: seconds to wait; by default there is no limit.

        Raises:
            QueryError: the query failed and was given up.
            WaitTimeoutError: the query has not ended after ``timeout`` seconds.
        """
        with self._changed:
            ended = self._changed.wait_for(lambda: self._over, timeout)
        if not ended:
            raise WaitTimeoutError(f"The query has not ended after {timeout:g} s; it is {self.state}.")
        if self.given_up is not None:
            raise QueryError(
                f"The query is not restarted: {self.given_up}. Last failure: {self.error}\n"
                "Fix the cause, then start the query again; it continues after its last committed epoch."
            )

    def __repr__(self) -> str:
        restarts = f", restarted {self.restarts} times" if self.restarts else ""
        reason = f": {self.given_up}. Last failure: {self.error}" if self.given_up else ""
        return f"<Supervised: {self.state}{restarts}{reason}>"

    def _describe_start(self, due: float) -> str:
        return f"attempt {self._restarts.attempt}, in {max(due - self._clock(), 0):.0f} s"

    def _end_state(self) -> str:
        if self._restarts.given_up is not None:
            return "failed"
        return "stopped" if self._stopping else "finished"

    def _watch(self) -> None:
        try:
            while self._wait_while_running() or self._restart_after_failure():
                pass
        finally:
            with self._changed:
                self._over, self._due = True, None
                self._changed.notify_all()
            self._on_end()

    def _wait_while_running(self) -> bool:
        """Wait a moment; False if the query has ended or is to be stopped."""
        if self._leaving:
            return False
        if self._ending is not None and not self._stopping:
            return self._wait_for_end(self._ending)
        if self._stopping:
            self.query.stop()
            return False
        if not self.query.isActive and not self._paused:
            return False
        if not self._paused:
            self._look_for_stall()
        with self._changed:
            if not self._stopping:
                self._changed.wait(_POLL_SECONDS)
        return True

    def _look_for_stall(self) -> None:
        """Note if the query stalls, or does not any more; begin to stop it if that is the policy and nothing moves."""
        known, seconds = self._stalls.stall, self._stalls.busy_for()
        try:
            if not self._stalls.look(self.query):
                return
        except Exception:  # noqa: BLE001 (Spark is ending, or busy; the next look tells)
            return
        stall, policy = self._stalls.stall, self._restarts.back_off
        if stall is None:
            self._note("went on", f"The query went on by itself after {seconds:.0f} s.", seconds=seconds)
            return
        act = policy.when_stalled if stall.moves is False else "wait"
        if known is None or act != "wait":
            numbers = {"seconds": stall.seconds, "usual_seconds": stall.usual, "cause": stall.cause.kind}
            self._note("stalled", f"{stall}.", evidence=stall.cause.evidence, act=act, **numbers)
        if act != "wait":
            self._ending = _EndingRun(self.query, self._clock())

    def _wait_for_end(self, ending: _EndingRun) -> bool:
        """Wait a moment for the end of a run that stalled; False once it has ended, so that it is restarted."""
        if ending.wait(_POLL_SECONDS):
            if self._paused or ending.query is not self.query:  # it is being rescaled, or was
                self._ending = None
                return True
            return False
        if ending.why is None and (ending.error or self._clock() - ending.began > _STOP_SECONDS):
            ending.why = ending.error or f"it has not ended after {_STOP_SECONDS:.0f} s"
            self._note("cannot be stopped", f"The query cannot be stopped: {ending.why}.")
        return True

    def _note(self, event: str, reason: str, **numbers: float | str | None) -> None:
        """Write down what happened, or is decided."""
        try:
            self._note_event(event, self._newest_epoch(), reason, numbers)
            self.unwritten = None
        except (StreamStateError, OSError) as error:
            self.unwritten = f"What supervision decides cannot be written: {first_line(error)}"

    def _failure(self) -> str | None:
        """Return why the run failed, or was stopped; None if it ended by itself or is to be stopped."""
        ending, stall = self._ending, str(self._stalls.stall)
        self._ending = self._stalls.stall = None
        if self._stopping:
            return None
        if ending is None:
            return failure_of(self.query)
        if self._restarts.back_off.when_stalled != "hand over":
            return stall
        if not self._has_standby():
            return f"{stall}; no standby is ready to take over"
        with self._changed:
            self.error, self._restarts.given_up = stall, "it was handed over to its standby"
        self._note("handed over", f"The lease is given back for the standby: {stall}.")
        return None

    def _restart_after_failure(self) -> bool:
        """Restart a query that ended with an error, or stalled; False if it ended without one or is given up."""
        failure = self._failure()
        while failure is not None:
            newest = self._newest_epoch()
            self._schedule(failure, progressed=newest > self._started_after)
            if not self._wait_until_due():
                return False
            self._started_after = newest
            try:
                query = self._start()
            except Exception as error:  # noqa: BLE001 (a start that fails counts like a query that fails)
                failure = in_one_line(str(error))
                continue
            with self._changed:
                self.query, self._due = query, None
                self.restarts += 1
                self._changed.notify_all()
            return True
        return False

    def _schedule(self, failure: str, *, progressed: bool) -> None:
        """Record a failure and set the time of the next start, or give up."""
        with self._changed:
            self.error = failure
            now = self._clock()
            wait = self._restarts.after_failure(progressed=progressed, now=now)
            self._due = None if wait is None else now + wait
            self._changed.notify_all()
        if wait is None:
            self._note("given up", f"The query is not restarted: {self.given_up}. Last failure: {failure}")
        else:
            attempt = self._restarts.attempt
            self._note("restart", f"The query is restarted: {failure}", attempt=attempt, wait_seconds=wait)

    def _wait_until_due(self) -> bool:
        """Wait for the time of the next start; False if there is none, or supervision was stopped meanwhile."""
        with self._changed:
            while not self._stopping and self._due is not None and self._clock() < self._due:
                self._changed.wait(min(_POLL_SECONDS, max(self._due - self._clock(), 0.001)))
            return not self._stopping and self._due is not None

    def _newest_epoch(self) -> int:
        return max(self._checkpoint.committed(), default=-1)


class _EndingRun:
    """A run that is being stopped, which may not end. Only when Spark's call returns has the run's thread ended.

    Attributes:
        began: when it was to be stopped.
        error: why Spark gave up; None: it did not.
        why: why it cannot be stopped; None: it may still end.
    """

    def __init__(self, query: StreamingQuery, now: float) -> None:
        self.began = now
        self.error: str | None = None
        self.why: str | None = None
        self.query = query
        self._ended = threading.Event()
        self._thread = BackgroundThread(self._stop, "streamstate-stopping")
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Wait for the end; False if it has not come."""
        return self._ended.wait(seconds)

    def _stop(self) -> None:
        while not self._ended.is_set():
            try:
                self.query.stop()
                self._ended.set()
            except Exception as error:  # noqa: BLE001 (Spark's own time is up, or Java is gone; the state says so)
                self.error = first_line(error)
                if "Timeout" not in str(error):
                    return


def _end_all() -> None:
    """End all supervision when the process exits; the queries end with Spark."""
    for supervised in list(_supervised):
        supervised.leave()


atexit.register(_end_all)
