"""A running query at one moment, as plain data: all that the JVM is asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from streamstate.snapshots.plan_graph import PlanGraph, graph_of, last_execution

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

__all__ = ["BATCHES", "Batch", "Probe", "Sample"]

BATCHES = 120
"""Batches whose durations and rates are remembered; Spark itself keeps a hundred."""

State = Literal["waiting", "running", "stopped", "failed", "unreachable"]


@dataclass(frozen=True)
class Batch:
    """What Spark reported of one batch that ran."""

    epoch: int
    ended: str
    """When its trigger began, as Spark writes it: ISO 8601, UTC."""
    milliseconds: int
    input_per_second: float | None
    processed_per_second: float | None


@dataclass(frozen=True)
class Sample:
    """A query at one moment; equal as long as there is nothing new."""

    state: State
    batches: tuple[Batch, ...] = ()
    progress: Mapping[str, Any] | None = field(default=None)
    """The newest report of a batch that ran, as Spark writes it."""
    graph: PlanGraph | None = None
    complete: bool = False
    """Whether the graph's figures are those of the whole batch: it has ended."""
    problem: str | None = None
    """Why the query failed or cannot be asked, whole."""


class Probe:
    """Asks a query of this process how it is; used by one thread at a time.

    Args:
        query: the query.
    """

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._batches: dict[int, Batch] = {}
        self._progress: Mapping[str, Any] | None = None
        self._planned: Any = None
        self._graph: PlanGraph | None = None
        self._complete = False
        self._over: Sample | None = None

    def sample(self) -> Sample:
        """The query now. What ended, or no longer answers, is not asked again."""
        if self._over is None:
            try:
                return self._asked()
            except Exception as problem:  # noqa: BLE001 (whatever py4j raises where the JVM is gone; it is shown)
                if not _gone(problem):
                    return self._told("running" if self._query.isActive else "stopped", f"{problem}")
                self._over = self._told("unreachable", f"Spark does not answer: {problem}")
        return self._over

    def _asked(self) -> Sample:
        active = bool(self._query.isActive)  # before the rest, so that what ends meanwhile is read once more
        self._read_progress()
        self._read_graph(active=active)
        if active:
            return self._told("running")
        failure = self._query.exception()
        self._over = self._told("stopped") if failure is None else self._told("failed", str(failure))
        return self._over

    def _told(self, state: State, problem: str | None = None) -> Sample:
        batches = tuple(self._batches.values())
        return Sample(state, batches, self._progress, self._graph, self._complete, problem)

    def _read_progress(self) -> None:
        """The reports that are new: through the JVM's own objects, because pyspark parses all hundred of them."""
        events = self._query._jsq.recentProgress()
        known = max(self._batches, default=-1)
        fresh: list[Mapping[str, Any]] = []
        for at in range(len(events) - 1, -1, -1):
            event = events[at]
            if int(event.batchId()) <= known:
                break
            if event.durationMs().containsKey("addBatch"):  # a query that waits reports as well
                fresh.append(json.loads(event.json()))
        for report in reversed(fresh):
            self._progress = report
            self._batches[int(report["batchId"])] = _batch(report)
        for old in list(self._batches)[:-BATCHES]:
            del self._batches[old]

    def _read_graph(self, *, active: bool) -> None:
        """The plan of the newest batch that has ended; of one that runs only where there is no other yet."""
        newest = last_execution(self._query)
        if newest is None:
            return
        epoch = int(newest.currentBatchId())
        ended = not active or epoch <= max(self._batches, default=-1)
        if ended:
            self._take(newest, complete=True)
        elif self._planned is not None and int(self._planned.currentBatchId()) < epoch:
            self._take(self._planned, complete=True)  # it ran when it was looked at last, and has ended since
        elif not self._complete:
            self._take(newest, complete=False)
        self._planned = None if ended else newest

    def _take(self, execution: Any, *, complete: bool) -> None:
        known = self._graph
        if not (known is not None and self._complete and known.epoch == int(execution.currentBatchId())):
            self._graph, self._complete = graph_of(execution), complete


def _batch(report: Mapping[str, Any]) -> Batch:
    return Batch(
        int(report["batchId"]),
        str(report["timestamp"]),
        int(report["durationMs"].get("triggerExecution", 0)),
        _number(report.get("inputRowsPerSecond")),
        _number(report.get("processedRowsPerSecond")),
    )


def _number(value: Any) -> float | None:
    """Spark writes NaN and Infinity where there is nothing to divide by."""
    return float(value) if isinstance(value, int | float) and abs(value) < float("inf") else None


def _gone(problem: Exception) -> bool:
    """Whether the JVM is gone, and with it all that could be asked."""
    from py4j.protocol import Py4JError, Py4JJavaError

    if isinstance(problem, Py4JJavaError):
        return False
    return isinstance(problem, Py4JError | OSError)
