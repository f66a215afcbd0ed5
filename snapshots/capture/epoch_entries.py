"""The manifest's entries of captured epochs, from the checkpoint and from Spark's progress."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.capture.pass_plan import PassPlan
from streamstate.snapshots.checkpoint.commit_times import CommitTimes
from streamstate.snapshots.checkpoint.logs import PlannedEpoch
from streamstate.snapshots.spark.connect import is_of_connect
from streamstate.snapshots.spark.state_reader import StateReader
from streamstate.snapshots.store.entries import Entry, TableEntry
from streamstate.snapshots.store.layout import CAPTURED

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

# How long Spark may take to report an epoch that it has committed.
_PROGRESS_WAIT = timedelta(seconds=0.5)


@dataclass(frozen=True)
class BatchProgress:
    """The facts of an epoch that only Spark's progress event has.

    Spark keeps these events only for queries of this process, and only of their last hundred epochs.
    """

    run_id: str
    input_rows: int


@dataclass
class EpochEntries:
    """A maker of the manifest's entries of one query's epochs."""

    reader: StateReader
    query: StreamingQuery | None = None
    """The query, if it was given or seen running here: it keeps its progress when Spark no longer lists it."""

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
        progress = {**known, **self._progress(plan.epochs)}
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
            self.query = self._running_query() or self.query
            newest, progress = _progress_of(self.query, epochs)
            if newest is None or newest >= epochs[-1] or committed_at is None:
                return progress
            if datetime.now(UTC) - committed_at > _PROGRESS_WAIT:
                return progress
            time.sleep(0.01)

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
        if epoch in epochs and progress is not None:
            events[epoch] = progress
    return newest, events


def _reported(query: StreamingQuery) -> Iterator[tuple[int, BatchProgress | None]]:
    """Yield the number of each epoch that Spark has reported, the newest first, with its progress.

    A query that waits for data reports the coming epoch's number without any.
    """
    if is_of_connect(query):
        for event in reversed(query.recentProgress):
            rows = sum(source["numInputRows"] for source in event["sources"])  # of the whole it has none
            progress = BatchProgress(str(event["runId"]), rows)
            yield int(event["batchId"]), progress if "addBatch" in event["durationMs"] else None
        return
    # Through the JVM's own objects: pyspark would parse all hundred events to get the newest few.
    for event in reversed(list(query._jsq.recentProgress())):
        progress = BatchProgress(str(event.runId()), int(event.numInputRows()))
        yield int(event.batchId()), progress if event.durationMs().containsKey("addBatch") else None


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
