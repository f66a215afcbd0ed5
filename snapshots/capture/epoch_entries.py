"""The manifest's entries of captured epochs, from the checkpoint and from Spark's progress."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.capture.pass_plan import PassPlan
from streamstate.snapshots.capture.spark_load import load_of, with_tasks
from streamstate.snapshots.checkpoint.commit_times import CommitTimes
from streamstate.snapshots.checkpoint.logs import PlannedEpoch
from streamstate.snapshots.spark.connect import is_of_connect
from streamstate.snapshots.spark.epoch_reports import finished
from streamstate.snapshots.spark.state_reader import StateReader
from streamstate.snapshots.store.entries import Entry, TableEntry
from streamstate.snapshots.store.epoch_load import EpochLoad
from streamstate.snapshots.store.layout import CAPTURED

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

# How long Spark may take to report an epoch that it has committed; longer on a busy machine, if the query goes on.
_PROGRESS_WAIT, _RUNNING_WAIT = timedelta(seconds=0.5), timedelta(seconds=3)
# Seconds between two questions for an epoch's tasks, each of which takes 5 to 10 milliseconds.
_TASKS_EVERY = 1.0


@dataclass(frozen=True)
class BatchProgress:
    """The facts of an epoch that only Spark's progress event has.

    Spark keeps these events only for queries of this process, and only of their last hundred epochs.
    """

    run_id: str
    input_rows: int
    load: EpochLoad | None = None

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> BatchProgress:
        """Return the facts in an event, or in its JSON, parsed. Over Connect an event has no sum of its rows."""
        rows = sum(source["numInputRows"] for source in event["sources"])
        load: EpochLoad | None = None
        with contextlib.suppress(KeyError, TypeError, ValueError):  # of another form: capture does not depend on it
            load = load_of(event)
        return cls(str(event["runId"]), rows, load)


@dataclass
class EpochEntries:
    """A maker of the manifest's entries of one query's epochs."""

    reader: StateReader
    query: StreamingQuery | None = None
    """The query, if it was given or seen running here: it keeps its progress when Spark no longer lists it."""
    _before: list[StreamingQuery] = field(default_factory=list)
    """Earlier runs of it, of which epochs may not be captured yet."""
    _asked_for_tasks: float = -math.inf

    def watch(self, query: StreamingQuery) -> None:
        """Take the progress from another run of the query, and of the epochs before it from the runs so far."""
        if self.query is not None and str(query.runId) != str(self.query.runId):
            self._before.append(self.query)
        self.query = query

    def of(
        self,
        plan: PassPlan,
        tables: Mapping[int, dict[str, TableEntry]],
        sources: str | None,
        *,
        known: Mapping[int, BatchProgress],
        forked: bool,
    ) -> list[Entry]:
        """Return the entries of a plan's gaps and epochs.

        Args:
            plan: the plan.
            tables: by epoch, what was written of each state table.
            sources: the progress of the sources before the plan's epochs, as the manifest has it.
            known: progress of epochs, of queries that Spark does not list.
            forked: whether the checkpoint is a fork's.
        """
        entries = [Entry.gap(epoch) for epoch in plan.gaps]
        progress = {**known, **self._with_tasks(self._progress(plan.epochs))}
        times = CommitTimes(self.reader.checkpoint, forked=forked)
        for epoch in plan.epochs:
            entry = self._entry(epoch, tables[epoch], progress.get(epoch), sources)
            sources = entry.sources or sources
            committed_at, time_source = times.of(epoch)
            entries.append(replace(entry, committed_at=committed_at, time_source=time_source, mode=times.mode(epoch)))
        return entries

    def _progress(self, epochs: Sequence[int]) -> dict[int, BatchProgress]:
        """Spark's progress of the epochs; it reports an epoch a little after it has committed it."""
        committed_at = self.reader.checkpoint.committed_at(epochs[-1])
        while True:
            if (running := self._running_query()) is not None:
                self.watch(running)
            newest, progress = _progress_of(self.query, epochs)
            patience = _PROGRESS_WAIT if running is None else _RUNNING_WAIT
            waited = committed_at is None or datetime.now(UTC) - committed_at > patience
            if newest is None or newest >= epochs[-1] or waited:
                return {**self._progress_before(epochs), **progress}
            time.sleep(0.01)

    def _progress_before(self, epochs: Sequence[int]) -> dict[int, BatchProgress]:
        """Spark's progress of the epochs in earlier runs; a run is forgotten once its last one was asked for."""
        found: dict[int, BatchProgress] = {}
        for query in list(self._before):
            newest, progress = _progress_of(query, epochs)
            found |= progress
            if newest is None or newest <= epochs[-1]:
                self._before.remove(query)
        return found

    def _with_tasks(self, progress: dict[int, BatchProgress]) -> dict[int, BatchProgress]:
        """Add the tasks of the newest epoch, which Spark still has, unless epochs are so short that it would matter."""
        newest = max(progress, default=None)
        if newest is None or self.query is None or (load := progress[newest].load) is None:
            return progress
        if time.monotonic() - self._asked_for_tasks < _TASKS_EVERY:
            return progress
        self._asked_for_tasks = time.monotonic()
        return progress | {newest: replace(progress[newest], load=with_tasks(load, self.query, newest))}

    def _running_query(self) -> StreamingQuery | None:
        active = self.reader.running.streams.active if self.reader.running else []
        return next((query for query in active if str(query.id) == self.reader.checkpoint.query_id), None)

    def _entry(
        self, epoch: int, tables: dict[str, TableEntry], progress: BatchProgress | None, sources: str | None
    ) -> Entry:
        planned = self.reader.checkpoint.planned(epoch)
        return Entry(
            epoch,
            CAPTURED,
            run_id=progress.run_id if progress else None,
            offsets=_offsets_json(planned) if planned else None,
            watermark=planned.watermark if planned else None,
            input_rows=progress.input_rows if progress else None,
            tables=tables,
            sources=self.reader.checkpoint.sources(planned, sources) if planned else None,
            began_at=planned.began_at if planned else None,
            next_watermark=self.reader.checkpoint.next_watermark_at(epoch),
            load=progress.load.text() if progress and progress.load else None,
        )


def _progress_of(query: StreamingQuery | None, epochs: Collection[int]) -> tuple[int | None, dict[int, BatchProgress]]:
    """Return the newest epoch that Spark has reported of a query that runs or ran here, and its progress of epochs."""
    if query is None:
        return None, {}
    newest = -1
    events: dict[int, BatchProgress] = {}
    for epoch, progress in _reported(query):
        newest = max(newest, epoch)
        if epoch < min(epochs):
            break
        if epoch in epochs and (found := progress()) is not None:
            events[epoch] = found
    return newest, events


def _reported(query: StreamingQuery) -> Iterator[tuple[int, Callable[[], BatchProgress | None]]]:
    """Yield the number of each epoch that Spark has reported, the newest first, with a reader of its progress."""
    if is_of_connect(query):
        for event in reversed(query.recentProgress):
            yield int(event["batchId"]), partial(_finished, event)
        return
    # Through the JVM's own objects: pyspark would parse all hundred events to get the newest few.
    for known in reversed(list(query._jsq.recentProgress())):
        yield int(known.batchId()), partial(_from_jvm, known)


def _from_jvm(event: Any) -> BatchProgress | None:
    report = finished(event)
    return None if report is None else BatchProgress.of(report)


def _finished(event: Mapping[str, Any]) -> BatchProgress | None:
    """Return an epoch's progress. A query that waits for data reports the coming epoch's number without any."""
    return BatchProgress.of(event) if "addBatch" in event["durationMs"] else None


def _offsets_json(planned: PlannedEpoch) -> str:
    """Return the sources' offsets as a JSON array, or as an object by name; an offset that is not JSON stays text."""
    if planned.names:
        return json.dumps(dict(zip(planned.names, map(_parsed, planned.offsets), strict=True)))
    return json.dumps([*map(_parsed, planned.offsets)])


def _parsed(offset: str | None) -> Any:
    try:
        return None if offset is None else json.loads(offset)
    except ValueError:
        return offset
