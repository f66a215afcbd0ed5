"""The thread that polls a running query, so that drawing never waits for the JVM."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from streamstate.snapshots.spark.epoch_reports import finished
from streamstate.snapshots.spark.plan_graph import PlanGraph, graph_of, last_execution
from streamstate.widgets.live.loop import refresh

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

    from streamstate.snapshots.capture.follow import Capture, CaptureStatus

BATCHES = 120
"""The most batches whose durations and rates are kept; Spark itself keeps a hundred."""

QueryState = Literal["waiting", "running", "stopped", "failed", "unreachable"]


@dataclass(frozen=True)
class BatchReport:
    """Spark's report on a batch."""

    epoch: int
    milliseconds: int
    input_per_second: float | None
    processed_per_second: float | None


@dataclass(frozen=True)
class QuerySample:
    """A query at one moment; equal to another sample if nothing is new."""

    state: QueryState
    batches: tuple[BatchReport, ...] = ()
    progress: Mapping[str, Any] | None = None
    """Spark's newest report of a batch."""
    graph: PlanGraph | None = None
    complete: bool = False
    """Whether the graph has the figures of a finished batch."""
    problem: str | None = None
    """Why the query failed or cannot be read, in full."""


class QueryProbe:
    """Reads the state of a query that runs in this process, through all its restarts. Not thread-safe."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._batches: dict[int, BatchReport] = {}
        self._progress: Mapping[str, Any] | None = None
        self._planned: Any = None
        self._graph: PlanGraph | None = None
        self._complete = False
        self._over: QuerySample | None = None

    def follow(self, query: StreamingQuery) -> None:
        """Read another run of the query from now on; the batches of the runs before stay known."""
        if query is not self._query:
            self._query, self._over, self._planned = query, None, None

    def sample(self) -> QuerySample:
        """The query now. A run that ended, or no longer answers, is not read again, but the next one is looked for."""
        if self._over is not None and self._over.state != "unreachable":
            self._look_for_restart()
        if self._over is None:
            try:
                return self._asked()
            except Exception as problem:  # noqa: BLE001 (py4j raises many errors when the JVM is gone; the dashboard shows them)
                if not _gone(problem):
                    return self._sample("running" if self._query.isActive else "stopped", f"{problem}")
                self._over = self._sample("unreachable", f"Spark does not answer: {problem}")
        return self._over

    def _look_for_restart(self) -> None:
        """Follow the query's next run, which has the same id, if its session has started one."""
        from pyspark.sql.streaming.query import StreamingQuery

        with contextlib.suppress(Exception):  # as when the JVM is gone: the last sample stays
            active = self._query._jsq.sparkSession().streams().get(self._query._jsq.id())
            if active is not None:
                self.follow(StreamingQuery(active))

    def _asked(self) -> QuerySample:
        active = bool(self._query.isActive)  # first, so that a query that ends meanwhile is read again
        self._read_progress()
        self._read_graph(active=active)
        if active:
            return self._sample("running")
        failure = self._query.exception()
        self._over = self._sample("stopped") if failure is None else self._sample("failed", str(failure))
        return self._over

    def _sample(self, state: QueryState, problem: str | None = None) -> QuerySample:
        batches = tuple(self._batches.values())
        return QuerySample(state, batches, self._progress, self._graph, self._complete, problem)

    def _read_progress(self) -> None:
        """Read new reports, through the JVM's own objects, because PySpark would parse all hundred of them."""
        events = self._query._jsq.recentProgress()
        known = max(self._batches, default=-1)
        fresh: list[Mapping[str, Any]] = []
        for at in range(len(events) - 1, -1, -1):
            event = events[at]
            if int(event.batchId()) <= known:
                break
            if (report := finished(event)) is not None:
                fresh.append(report)
        for report in reversed(fresh):
            self._progress = report
            self._batches[int(report["batchId"])] = _batch(report)
        for old in list(self._batches)[:-BATCHES]:
            del self._batches[old]

    def _read_graph(self, *, active: bool) -> None:
        """Read the plan of the newest finished batch; of a running batch only if none has finished."""
        newest = last_execution(self._query)
        if newest is None:
            return
        epoch = int(newest.currentBatchId())
        ended = not active or epoch <= max(self._batches, default=-1)
        if ended:
            self._take(newest, complete=True)
        elif self._planned is not None and int(self._planned.currentBatchId()) < epoch:
            self._take(self._planned, complete=True)  # it was running at the last look, and has finished since
        elif not self._complete:
            self._take(newest, complete=False)
        self._planned = None if ended else newest

    def _take(self, execution: Any, *, complete: bool) -> None:
        known = self._graph
        if not (known is not None and self._complete and known.epoch == int(execution.currentBatchId())):
            self._graph, self._complete = graph_of(execution), complete


def _batch(report: Mapping[str, Any]) -> BatchReport:
    return BatchReport(
        int(report["batchId"]),
        int(report["durationMs"].get("triggerExecution", 0)),
        _number(report.get("inputRowsPerSecond")),
        _number(report.get("processedRowsPerSecond")),
    )


def _number(value: Any) -> float | None:
    """Return a rate; Spark writes NaN and Infinity after a division by zero."""
    return float(value) if isinstance(value, int | float) and abs(value) < float("inf") else None


def _gone(problem: Exception) -> bool:
    """Check if the JVM is gone."""
    from py4j.protocol import Py4JError, Py4JJavaError

    if isinstance(problem, Py4JJavaError):
        return False
    return isinstance(problem, Py4JError | OSError)


LATE = 5.0
"""Seconds without an answer after which the dashboard says that figures are outdated."""
_PATIENCE = 2.0


FindQuery = Callable[[], "tuple[StreamingQuery | None, Capture | None]"]
"""Returns Spark's handle of a query's newest run, and its capture; None for what is not in this process."""


class QueryWatcher:
    """Keeps the newest sample of a query, unless that runs elsewhere. Any thread may read it, and none waits long."""

    def __init__(self, find: FindQuery, name: str) -> None:
        self._find = find
        self._name = name
        self._lock = threading.Lock()
        self._stopping: threading.Event | None = None
        self._thread: threading.Thread | None = None
        self._probe: QueryProbe | None = None
        self._handle: StreamingQuery | None = None
        self._sample: QuerySample | None = None
        self._asking = threading.Lock()
        self._asked: float | None = None
        self._first = threading.Event()

    @property
    def captured(self) -> CaptureStatus | None:
        """The state of the capture; does not need the JVM."""
        _, capture = self._find()
        return None if capture is None else capture.status

    @property
    def late(self) -> bool:
        """True if Spark has not answered for longer than :data:`LATE`."""
        asked = self._asked
        return asked is not None and time.monotonic() - asked > LATE

    def start(self) -> None:
        """Poll the query from a separate thread. Idempotent."""
        with self._lock:
            if self._find()[0] is not None and self._thread is None:
                self._stopping = threading.Event()
                self._thread = threading.Thread(
                    target=self._run, args=(self._stopping,), name=f"streamstate-watch-{self._name}", daemon=True
                )
                self._thread.start()

    def stop(self) -> None:
        """End the thread; if it waits for a busy JVM, it ends as soon as that answers. Idempotent."""
        with self._lock:
            thread, self._thread = self._thread, None
            if self._stopping:
                self._stopping.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(_PATIENCE)

    def sample(self) -> QuerySample | None:
        """Return the newest sample; None if the query does not run in this process.

        If no thread polls the query, it is read now, and gets a moment to answer.
        """
        if self._find()[0] is None:
            return None
        with self._lock:
            watched = self._thread is not None
        if watched:
            self._first.wait(_PATIENCE)
        else:
            once = threading.Thread(target=self._ask, name=f"streamstate-ask-{self._name}", daemon=True)
            once.start()
            once.join(_PATIENCE)
        return self._sample or QuerySample("waiting")

    def _run(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            self._ask()
            stopping.wait(refresh())

    def _ask(self) -> None:
        """Read the query once, however long that takes."""
        with self._asking:
            query, _ = self._find()
            if query is not None:
                self._asked = time.monotonic()
                self._sample = self._probe_of(query).sample()
                self._asked = None
        self._first.set()

    def _probe_of(self, query: StreamingQuery) -> QueryProbe:
        """The probe, which follows the newest handle; the handle of a run that ended stays until there is another."""
        if self._probe is None:
            self._probe = QueryProbe(query)
        elif query is not self._handle:
            self._probe.follow(query)
        self._handle = query
        return self._probe
