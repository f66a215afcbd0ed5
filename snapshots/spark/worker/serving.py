"""The worker's side: it runs the calls of its client.

A client has a connection for each of its threads, so that a long call in one of them keeps no other waiting. Each is
served by a thread; that of the client's main thread by the main thread, which alone receives interrupts.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from multiprocessing.connection import Connection, Listener
from typing import Any, TypeAlias, cast

from streamstate.snapshots.calls.progress_callback import ProgressCallback, set_progress_display, silent
from streamstate.snapshots.spark.interrupted_calls import own_interrupt
from streamstate.snapshots.spark.java_process import end_java, java_runs
from streamstate.snapshots.spark.worker.forwarding import CLIENT_QUERIES
from streamstate.snapshots.spark.worker.kept_objects import KeptObjects
from streamstate.snapshots.spark.worker.sent_objects import packed_error, packed_result, unpacked_call
from streamstate.snapshots.spark.worker.server_only import lacks_class, of_server_only

_Call: TypeAlias = tuple[list[int], Mapping[str, str], set[str], bytes]
"""The numbers of released objects, the settings of the client's session, the ids of its queries, and the call."""
_PATIENCE = 20.0
"""Seconds that a call has to end in after the client is gone."""


class _Reporter:
    """Sends what happens during a call to the client that waits for it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def progress(self, message: str, share: float | None, /) -> None:
        """Report progress; an interrupt if the client has asked for one."""
        self.connection.send(("progress", message, share))
        if self.connection.poll():
            self.connection.recv()
            raise KeyboardInterrupt

    @contextmanager
    def display(self, call: str, interrupted: str, /) -> Iterator[ProgressCallback]:
        """Show the progress of a long call where the client's user is."""
        self.connection.send(("begin", call, interrupted))
        yield self.progress
        self.connection.send(("end",))

    def warn(self, message: Warning | str, category: type[Warning], filename: str, line: int, *_: Any) -> None:
        """Pass on a warning."""
        self.connection.send(("warning", str(message), category, filename, line))


class _Output:
    """Standard output or error: what a call prints goes to its client, everything else to the log."""

    def __init__(self, worker: Worker, name: str) -> None:
        self._worker, self._name, self._log = worker, name, getattr(sys, name)

    def write(self, text: str) -> int:
        """Write text."""
        reporter = self._worker.reporter
        if reporter is None:
            self._log.write(text)
        else:
            reporter.connection.send(("print", self._name, text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


class Worker:
    """A process's calls, kept objects and session."""

    def __init__(self, folder: str) -> None:
        self.kept = KeptObjects()
        self._folder = folder
        self._threads = threading.local()
        self._applied: dict[str, str] = {}
        self._starting = threading.Lock()

    @property
    def reporter(self) -> _Reporter | None:
        """The reporter of the call that this thread runs; None between calls."""
        return getattr(self._threads, "reporter", None)

    def session(self) -> Any:
        """Return the session, with the client's settings."""
        from streamstate.snapshots.spark.session import running_session, session

        settings: Mapping[str, str] = getattr(self._threads, "settings", {})
        with self._starting:
            spark = running_session()
            if spark is None:
                spark = session(**settings)
            else:
                self._adjust(spark, settings)
            self._applied = dict(settings)
        return spark

    def _adjust(self, spark: Any, settings: Mapping[str, str]) -> None:
        """Follow changes of the client's settings since the last call."""
        for key in {*settings, *self._applied}:
            if settings.get(key) == self._applied.get(key) or not spark.conf.isModifiable(key):
                continue
            if key in settings:
                spark.conf.set(key, settings[key])
            else:
                spark.conf.unset(key)

    def serve(self, connection: Connection) -> None:
        """Run the calls of a connection until the client closes it."""
        with suppress(EOFError, ConnectionError):
            while True:
                self._answer(connection)

    def _answer(self, connection: Connection) -> None:
        message: _Call | None = connection.recv()
        if message is None:
            return  # an interrupt that came too late
        self._threads.reporter = reporter = _Reporter(connection)
        answer: tuple[str, bytes]
        ends = False
        try:
            with _interruptible():
                answer = "result", packed_result(self._result(message, reporter), self.kept)
        except BaseException as error:  # noqa: BLE001 (the client raises it)
            ends = self.kept.empty and lacks_class(error)
            answer = "error", packed_error(of_server_only(error, ends=ends))
        finally:
            self._threads.reporter = None
        ends = ends or not java_runs()
        connection.send((*answer, ends))
        if ends:
            self._end()

    def _end(self) -> None:
        """End the process. The client then starts another worker, with the environment of that time."""
        shutil.rmtree(self._folder, ignore_errors=True)
        end_java()
        os._exit(1)

    def _result(self, message: _Call, reporter: _Reporter) -> Any:
        released, settings, queries, call = message
        self.kept.release(released)
        CLIENT_QUERIES.clear()
        CLIENT_QUERIES.update(queries)
        self._threads.settings = settings
        with own_interrupt():
            self.session()
            what, target, name, args, kwargs = unpacked_call(call, self.kept, self.session, reporter.progress)
            if what == "function":
                return _function(target, name)(*args, **kwargs)
            value = getattr(self.kept.get(target), name)
            return value(*args, **kwargs) if what == "method" else value


def _function(module: str, name: str) -> Callable[..., Any]:
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return cast("Callable[..., Any]", found)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let an interrupt end the block; outside of it interrupts are ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _end_with_client() -> None:
    """Wait until the client closes this process's input, then end the call that runs."""
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait(_PATIENCE)
    os._exit(1)


def _accept(listener: Listener, worker: Worker) -> None:
    while True:
        with suppress(Exception):  # a stray program that does not know the key
            connection = listener.accept()
            threading.Thread(target=worker.serve, args=[connection], daemon=True).start()


def _check_spark() -> None:
    """End with a message if this Python has no classic PySpark."""
    from streamstate.errors import require_extra

    require_extra("spark")
    if importlib.util.find_spec("py4j") is None:
        raise SystemExit("Its PySpark is only the client of Spark Connect.")


def main() -> None:
    """Serve the process that started this one, until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    key = bytes.fromhex(sys.stdin.buffer.readline().decode().strip())
    _check_spark()
    with tempfile.TemporaryDirectory(prefix="streamstate-") as folder:
        listener = Listener(None, authkey=key) if os.name == "nt" else Listener(f"{folder}/s", "AF_UNIX", authkey=key)
        _say_where(listener)
        connection = listener.accept()
        search_path, directory = connection.recv()
        sys.path[:] = dict.fromkeys([*search_path, *sys.path])
        os.chdir(directory)
        worker = Worker(folder)
        _show_at_client(worker)
        for target, arguments in ((_end_with_client, ()), (_accept, (listener, worker))):
            threading.Thread(target=target, args=arguments, daemon=True).start()
        worker.serve(connection)
        end_java()  # the client's end then leaves no process


def _say_where(listener: Listener) -> None:
    """Print where the worker can be reached. What its children print goes to the log."""
    answer = os.dup(1)
    os.dup2(2, 1)
    os.write(answer, f"{sys.version_info[0]}.{sys.version_info[1]} {listener.address}\n".encode())
    os.close(answer)


def _show_at_client(worker: Worker) -> None:
    """Send what calls print, warn of and report to the client."""

    def display(call: str, interrupted: str) -> AbstractContextManager[ProgressCallback]:
        reporter = worker.reporter
        return nullcontext(silent) if reporter is None else reporter.display(call, interrupted)

    def warn(*about: Any) -> None:
        if (reporter := worker.reporter) is not None:
            reporter.warn(*about)

    set_progress_display(display)
    vars(warnings)["showwarning"] = warn
    vars(sys).update({name: _Output(worker, name) for name in ("stdout", "stderr")})
