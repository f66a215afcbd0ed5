"""The client's side: it starts the worker process when it is first needed, and makes calls in it."""

from __future__ import annotations

import atexit
import sys
import threading
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from multiprocessing.connection import Connection
from typing import Any

from streamstate.errors import SparkConnectError
from streamstate.snapshots.calls.progress_callback import ProgressCallback, display_of, report_progress
from streamstate.snapshots.spark.connect import connect_session
from streamstate.snapshots.spark.worker.kept_objects import StandIns
from streamstate.snapshots.spark.worker.process import WorkerProcess
from streamstate.snapshots.spark.worker.sent_objects import Progress, packed_call, unpacked_error, unpacked_result

_TAKEN_OVER = ("spark.sql.", "spark.hadoop.", "spark.jars")
_SERVERS_OWN = ("spark.sql.connect.", "spark.sql.artifact.")
_SERVER_WAIT = 5.0
"""Seconds to wait for the server. One that is gone must not keep the worker from what needs none."""


class WorkerClient:
    """A worker process, and the objects that it keeps for this one."""

    def __init__(self) -> None:
        self.process = WorkerProcess.start()
        self.stand_ins = StandIns(self)
        self._threads = threading.local()
        self._released: list[int] = []
        self._settings: dict[str, str] = {}
        self._queries: set[str] = set()
        self._reading: threading.Thread | None = None

    @property
    def alive(self) -> bool:
        """True if it was started by this process, and runs."""
        return self.process.alive

    def call_kept(self, number: int, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Call a method of a kept object."""
        return self.call("method", number, name, args, kwargs)

    def read_kept(self, number: int, name: str) -> Any:
        """Return an attribute of a kept object."""
        return self.call("attribute", number, name, (), {})

    def release(self, number: int) -> None:
        """Note that a stand-in is gone; the next call says so."""
        self._released.append(number)

    def call(self, what: str, target: str | int, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Make a call in the worker, and wait for its result.

        Raises:
            SparkConnectError: the worker has ended.
            InvalidArgumentError: an argument cannot leave this process.
        """
        __tracebackhide__ = True
        progress = kwargs.get("progress")
        given = kwargs if progress is None else {**kwargs, "progress": Progress()}
        call = packed_call((what, target, name, args, given), self)
        if what == "function":
            self._read_session(kwargs.get("spark") or connect_session())
        released, self._released = self._released, []
        try:
            with _Waiting(self.process, self._connection(), progress) as waiting:
                kind, answer = waiting.answer((released, self._settings, self._queries, call))
        except (EOFError, OSError) as error:
            raise SparkConnectError(self.process.obituary(name)) from error
        if kind == "error":
            raise unpacked_error(answer)
        return unpacked_result(answer, self.stand_ins)

    def _connection(self) -> Connection:
        """Return this thread's connection; the worker's main thread serves that of the main thread."""
        if not self.alive:
            raise EOFError
        if threading.current_thread() is threading.main_thread():
            return self.process.connection
        if not hasattr(self._threads, "connection"):
            self._threads.connection = self.process.connect()
        connection: Connection = self._threads.connection
        return connection

    def _read_session(self, session: Any) -> None:
        """Read the settings and queries of the user's session; those read last count while its server is silent."""

        def read() -> None:
            with suppress(Exception):  # the call itself may need no server
                self._settings, self._queries = _settings_of(session), {query.id for query in session.streams.active}

        if session is None or (self._reading is not None and self._reading.is_alive()):
            return
        self._reading = threading.Thread(target=read, name="settings of Spark Connect", daemon=True)
        self._reading.start()
        self._reading.join(_SERVER_WAIT)


def _settings_of(session: Any) -> dict[str, str]:
    """Return the settings of a session of Spark Connect that a query may depend on; before Spark 4.0 it has no list."""
    return {
        key: value
        for key, value in getattr(session.conf, "getAll", {}).items()
        if key.startswith(_TAKEN_OVER) and not key.startswith(_SERVERS_OWN)
    }


class _Waiting:
    """The wait for a call's answer: shows its progress and output, and passes interrupts on."""

    def __init__(self, process: WorkerProcess, connection: Connection, progress: ProgressCallback | None) -> None:
        self._process, self._connection, self._callback = process, connection, progress
        self._displays: list[ExitStack] = []

    def __enter__(self) -> _Waiting:
        return self

    def __exit__(self, *error: object) -> bool | None:
        while self._displays:
            self._displays.pop().__exit__(*error)  # type: ignore[arg-type]
        return None

    def answer(self, message: object) -> tuple[str, bytes]:
        """Send a call and return its answer; an interrupt, or an error of the progress callback, ends the call."""
        __tracebackhide__ = True
        self._connection.send(message)
        try:
            return self._received()
        except (EOFError, OSError):
            raise
        except BaseException:
            self._interrupt()
            raise

    def _interrupt(self) -> None:
        """End the call that runs in the worker, and wait until it has; a second interrupt ends the worker."""
        self._connection.send(None)
        if self._connection is self._process.connection:
            self._process.interrupt()
        try:
            while (message := self._connection.recv())[0] not in ("result", "error"):
                pass
            if message[-1]:
                self._process.wait()
        except BaseException:
            self._process.kill()
            raise

    def _received(self) -> tuple[str, bytes]:
        while True:
            kind, *about = self._connection.recv()
            if kind in ("result", "error"):
                answer, ends = about
                if ends:
                    self._process.wait()
                return kind, answer
            getattr(self, f"_{kind}")(*about)

    def _begin(self, call: str, interrupted: str) -> None:
        stack = ExitStack()
        block: AbstractContextManager[ProgressCallback] | None = display_of(call, interrupted)
        if self._callback is None and block is not None:
            stack.enter_context(block)
        self._displays.append(stack)

    def _end(self) -> None:
        self._displays.pop().close()

    def _progress(self, message: str, share: float | None) -> None:
        (self._callback or report_progress)(message, share)

    @staticmethod
    def _print(name: str, text: str) -> None:
        getattr(sys, name).write(text)

    @staticmethod
    def _warning(message: str, category: type[Warning], filename: str, line: int) -> None:
        warnings.warn_explicit(message, category, filename, line)


class _Current:
    """The worker of this process."""

    client: WorkerClient | None = None
    starting = threading.Lock()
    process_ends = False


def call_in_worker(module: str, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Run a function in the worker process, which is started if none runs.

    Raises:
        SparkConnectError: the worker cannot be started, or ends during the call.
        InvalidArgumentError: an argument cannot leave this process.
    """
    __tracebackhide__ = True
    with _Current.starting:
        if _Current.process_ends:
            raise SparkConnectError(f"{name} was not called: this process is ending.")
        if _Current.client is None or not _Current.client.alive:
            _Current.client = WorkerClient()
        client = _Current.client
    return client.call("function", module, name, args, kwargs)


def has_worker() -> bool:
    """Return whether a worker process runs."""
    return _Current.client is not None and _Current.client.alive


def end_worker() -> None:
    """End the worker process, if one runs; the next call starts another."""
    with _Current.starting:
        client, _Current.client = _Current.client, None
    if client is not None:
        client.process.end()


@atexit.register
def _end_for_good() -> None:
    """End the worker process with this one: a capture in the background would start another."""
    _Current.process_ends = True
    end_worker()
