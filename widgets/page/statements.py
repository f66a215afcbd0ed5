"""SQL statements of a page's viewers, run by processes of their own, so that no statement harms the server."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from typing import TYPE_CHECKING, Any

from streamstate.state_inspect.temporal_index.query_interrupts import interruptible
from streamstate.widgets.page.statement_worker import SECONDS

if TYPE_CHECKING:
    from streamstate.state_inspect import Store

PROCESSES = 2
"""The most statements that run at once."""
_WAIT = 10.0
"""Seconds that a statement waits for its turn."""
_START = 120.0
_GRACE = 2.0
"""Seconds that a process gets to stop a statement by itself."""
_IDLE = 300.0
"""Seconds after its last statement after which a process ends."""
_COMMAND = [sys.executable, "-P", "-m", "streamstate.widgets.page.statement_worker"]


class StatementEnded(Exception):  # noqa: N818 (the page shows why)
    """The process ended before it had an answer."""


class _Process:
    """One process, which is started for a statement and again after it was killed."""

    def __init__(self, store: Store) -> None:
        self._where = {"path": str(store.path), "options": store.layout.options and dict(store.layout.options)}
        self._process: subprocess.Popen[str] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._idle: threading.Timer | None = None

    def run(self, text: str) -> dict[str, Any]:
        """Return the answer to a statement.

        Raises:
            StatementEnded: the process needed too much memory or time, or was interrupted.
        """
        if self._idle is not None:
            self._idle.cancel()
        try:
            if (self._process is None or self._process.poll() is not None) and (refused := self._start()):
                return refused
            return self._answer(text, SECONDS + _GRACE)
        finally:
            self._idle = threading.Timer(_IDLE, self.interrupt)
            self._idle.daemon = True
            self._idle.start()

    def interrupt(self) -> None:
        """Kill the process. Idempotent; any thread may call this."""
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        """Kill the process and remove its files."""
        if self._idle is not None:
            self._idle.cancel()
        self.interrupt()
        self._clear()

    def _start(self) -> dict[str, Any]:
        """Start the process; returns why it cannot open the store, if that is so."""
        self._clear()
        self._folder = tempfile.TemporaryDirectory(prefix="streamstate-statements-")
        self._process = subprocess.Popen(
            _COMMAND,
            env=os.environ | {"TMPDIR": self._folder.name},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )
        return self._answer(self._where, _START)

    def _answer(self, message: Any, seconds: float) -> dict[str, Any]:
        """Return the answer to a message; the process is killed if it takes longer."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        late = threading.Event()

        def stop() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(seconds, stop)
        timer.daemon = True
        timer.start()
        try:
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError:
            line = ""
        finally:
            timer.cancel()
        if not line:
            process.kill()
            process.wait()
            raise StatementEnded("it took too long" if late.is_set() else "it needed too much memory")
        answer: dict[str, Any] = json.loads(line)
        if answer.pop("last", False):
            process.wait()
        return answer

    def _clear(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


class Statements:
    """Runs statements over a store for many viewers. Thread-safe."""

    def __init__(self, store: Store) -> None:
        self._processes = [_Process(store) for _ in range(PROCESSES)]
        self._free: queue.LifoQueue[_Process] = queue.LifoQueue()
        for process in self._processes:
            self._free.put(process)

    def run(self, text: str) -> dict[str, Any]:
        """Return the result of a statement as JSON types; ``problem`` says why there is none.

        Raises:
            QueryStopped: a newer request made the answer useless.
        """
        try:
            process = self._free.get(timeout=_WAIT)
        except queue.Empty:
            return {"problem": "Statements of other viewers are still running. Run yours again in a moment."}
        try:
            with interruptible(process, StatementEnded):
                return process.run(text)
        except StatementEnded as ended:
            return {"problem": f"The statement was stopped: {ended}. Run large statements in a notebook: %%statesql."}
        finally:
            self._free.put(process)

    def close(self) -> None:
        """End all processes."""
        for process in self._processes:
            process.close()
