"""Interrupts that end the work of one call, its Spark jobs included, and nothing else.

py4j 0.10.9.9 reacts to an interrupt by closing every connection to the JVM's port, on both sides, which is all of them
(https://github.com/py4j/py4j/pull/538). The next call may then fail with "Answer from Java side is empty", so may a
capture that runs beside it, and py4j logs the traceback into the cell. And if another exception cuts a call short, its
answer is taken for the answer to the next call.

No class of py4j is changed. The client of a single gateway gets a subclass that closes the interrupted connection only:
the client of a session that :func:`streamstate.session` starts, or that a magic or a step is waiting for.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from types import FrameType
from typing import Any

_LONGEST_CANCEL = 10.0
"""Seconds that an interrupt waits for the tasks of the jobs that it cancels to end; a second interrupt does not."""
_POLL = 0.02


class _OwnInterrupt:
    """The block of :func:`own_interrupt` that the main thread is in."""

    current: _OwnInterrupt | None = None

    def __init__(self) -> None:
        self.interrupted = False
        self.tag = f"streamstate-{uuid.uuid4().hex}"
        self._before: Any = None

    def begin(self) -> None:
        """Handle SIGINT, and tag the Spark jobs that this thread starts; again once Spark has started."""
        handler = signal.signal(signal.SIGINT, self._interrupt)
        if handler != self._interrupt:
            self._before = handler or signal.default_int_handler  # PySpark's, if Spark has just started
        if (context := _running_context()) is not None:
            context.addJobTag(self.tag)

    def end(self) -> None:
        """Handle SIGINT as before."""
        signal.signal(signal.SIGINT, self._before)
        with suppress(Exception):  # without Java the tag is gone anyway, and the block's own error counts
            if (context := _running_context()) is not None:
                context.removeJobTag(self.tag)

    def _interrupt(self, _signal: int, _frame: FrameType | None) -> None:
        if not self.interrupted:
            self.interrupted = True
            # The interrupted thread may be in a call into the JVM, so another one makes this call.
            cancelling = threading.Thread(target=self._cancel_jobs, name="streamstate-cancel", daemon=True)
            cancelling.start()
            cancelling.join(_LONGEST_CANCEL)
        raise KeyboardInterrupt

    def _cancel_jobs(self) -> None:
        if (context := _running_context()) is None:
            return
        context.cancelJobsWithTag(self.tag)
        # A task that still runs would write again what the interrupted call removes.
        tracker, deadline = context.statusTracker(), time.monotonic() + _LONGEST_CANCEL
        jobs = context._jsc.sc().statusTracker().getJobIdsForTag(self.tag)
        while time.monotonic() < deadline and any(_has_tasks(tracker, job) for job in jobs):
            time.sleep(_POLL)


@contextmanager
def own_interrupt() -> Iterator[None]:
    """Make an interrupt end the block with KeyboardInterrupt, cancel the Spark jobs that it waits for, and no others.

    PySpark's own handler cancels every job of the session, which would fail the running queries. An error that an
    engine raises because it was interrupted is replaced by the interrupt. Outside the main thread nothing changes.
    """
    if not _in_main_thread():
        yield
        return
    outer = _OwnInterrupt.current
    block = _OwnInterrupt.current = outer or _OwnInterrupt()
    try:
        if outer is None:
            block.begin()
            spare_other_calls()
        yield
    except KeyboardInterrupt:
        raise
    except BaseException:
        if block.interrupted:
            raise KeyboardInterrupt from None
        raise
    finally:
        _OwnInterrupt.current = outer
        if outer is None:
            block.end()


@contextmanager
def lasting_jobs() -> Iterator[None]:
    """Start in the block what outlives the call, such as a streaming query: an interrupt does not cancel its jobs."""
    block, context = _OwnInterrupt.current, _running_context()
    if block is None or context is None or not _in_main_thread():
        yield
        return
    context.removeJobTag(block.tag)
    try:
        yield
    finally:
        context.addJobTag(block.tag)


def _has_tasks(tracker: Any, job: int) -> bool:
    """Return whether tasks of a job are running, also after it has ended."""
    stages = getattr(tracker.getJobInfo(job), "stageIds", ())
    return any(getattr(tracker.getStageInfo(stage), "numActiveTasks", 0) for stage in stages)


def _in_main_thread() -> bool:
    """Return whether signals are handled in this thread."""
    return threading.current_thread() is threading.main_thread()


def _running_context() -> Any:
    """Spark's context, untyped; None if Spark does not run."""
    context = _context_class()
    return None if context is None else context._active_spark_context  # getOrCreate would start one


def _context_class() -> Any:
    """Spark's context class; None if Spark is not loaded, or only its client for Connect is installed."""
    return getattr(sys.modules.get("pyspark"), "SparkContext", None)


class _Interrupted(BaseException):
    """A KeyboardInterrupt on its way through py4j, which would otherwise handle it."""


def spare_other_calls() -> None:
    """Make an interrupted call of this process's Spark close only its own connection; the next call opens another.

    What the call started in the JVM continues there; stopping it is up to the caller, or to :func:`own_interrupt`. If
    Spark does not run, or uses py4j's other threading model, nothing happens.
    """
    if (context := _context_class()) is None:
        return
    from py4j.clientserver import JavaClient

    gateway: Any = context._gateway  # noqa: SLF001 (there is no public way)
    client = getattr(gateway, "_gateway_client", None)
    if type(client) is JavaClient:
        client.__class__ = _client_class()
    if _OwnInterrupt.current is not None and _in_main_thread():
        _OwnInterrupt.current.begin()  # PySpark has installed a handler of its own


@cache
def _client_class() -> Any:
    from py4j.clientserver import ClientServerConnection, JavaClient

    class Connection(ClientServerConnection):  # type: ignore[misc]  # py4j has no annotations
        """A connection that closes itself when anything but an ordinary exception cuts a call short."""

        def send_command(self, command: str) -> Any:
            try:
                return super().send_command(command)
            except Exception:  # py4j handles its own
                raise
            except KeyboardInterrupt:
                self.close()
                raise _Interrupted from None
            except BaseException:
                self.close()
                raise

    class Client(JavaClient):  # type: ignore[misc]
        """A client with such connections, also in place of those that threads opened before."""

        def _get_connection(self) -> Any:
            connection = super()._get_connection()
            if type(connection) is ClientServerConnection:
                connection.__class__ = Connection
            return connection

        def send_command(self, *arguments: Any, **options: Any) -> Any:
            try:
                return super().send_command(*arguments, **options)
            except _Interrupted:
                raise KeyboardInterrupt from None

    return Client
