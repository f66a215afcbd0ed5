"""The thread that asks a running query how it is, so that nobody who draws has to wait for the JVM."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from streamstate.widgets.dashboard.sample import Probe, Sample
from streamstate.widgets.settings import refresh

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

    from streamstate.snapshots.follow import Capture, CaptureStatus

__all__ = ["LATE", "Watcher"]

LATE = 5.0
"""Seconds without an answer after which it is said that the figures are older."""
_PATIENCE = 2.0


class Watcher:
    """Keeps the newest sample of a query; any thread may ask for it, and none waits for long.

    Args:
        query: Spark's handle; None where the query runs elsewhere.
        capture: the capture in the background; None where there is none.
        name: the query's name, for the thread's.
    """

    def __init__(self, query: StreamingQuery | None, capture: Capture | None, name: str) -> None:
        self._capture = capture
        self._name = name
        self._lock = threading.Lock()
        self._stopping: threading.Event | None = None
        self._thread: threading.Thread | None = None
        self._probe = None if query is None else Probe(query)
        self._sample: Sample | None = None
        self._asking = threading.Lock()
        self._asked: float | None = None
        self._first = threading.Event()

    @property
    def captured(self) -> CaptureStatus | None:
        """How the capture stands; needs no JVM."""
        return None if self._capture is None else self._capture.status

    @property
    def late(self) -> bool:
        """Whether Spark has not answered for longer than :data:`LATE`."""
        asked = self._asked
        return asked is not None and time.monotonic() - asked > LATE

    def start(self) -> None:
        """Ask again and again, from a thread of its own. Idempotent."""
        with self._lock:
            if self._probe is not None and self._thread is None:
                self._stopping = threading.Event()
                self._thread = threading.Thread(
                    target=self._run, args=(self._stopping,), name=f"streamstate-watch-{self._name}", daemon=True
                )
                self._thread.start()

    def stop(self) -> None:
        """End the thread; one that waits for a JVM which is busy ends as soon as that answers. Idempotent."""
        with self._lock:
            thread, self._thread = self._thread, None
            if self._stopping:
                self._stopping.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(_PATIENCE)

    def sample(self) -> Sample | None:
        """The newest sample; None where there is no query in this process.

        Where nobody asks again and again, the query is asked now, and given a moment to answer.
        """
        if self._probe is None:
            return None
        with self._lock:
            watched = self._thread is not None
        if watched:
            self._first.wait(_PATIENCE)
        else:
            once = threading.Thread(target=self._ask, name=f"streamstate-ask-{self._name}", daemon=True)
            once.start()
            once.join(_PATIENCE)
        return self._sample or Sample("waiting")

    def _run(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            self._ask()
            stopping.wait(refresh())

    def _ask(self) -> None:
        """Ask once, however long that takes."""
        with self._asking:
            if self._probe is not None:
                self._asked = time.monotonic()
                self._sample = self._probe.sample()
                self._asked = None
        self._first.set()
