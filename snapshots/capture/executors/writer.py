"""The executors' writer of a change log; the driver commits their files in one transaction."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable

from streamstate.snapshots.capture.executors import reports
from streamstate.snapshots.capture.executors.reports import require_valid
from streamstate.snapshots.capture.executors.tasks import (
    Batches,
    TableTask,
    write_changes,
    write_compared,
    write_keyframe,
)
from streamstate.snapshots.checkpoint.state_tables import Shape
from streamstate.snapshots.spark.failures import executor_error, failures
from streamstate.snapshots.spark.state_reader import StateFrame, StateReader
from streamstate.snapshots.store.delta import commit_once
from streamstate.snapshots.store.delta.data_files import DataFile
from streamstate.snapshots.store.delta.maintenance import sweep
from streamstate.snapshots.store.entries import TableEntry
from streamstate.snapshots.store.table_log import LogPosition, TableLog, entries_as_metadata

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass
class Written:
    """The output of the jobs of one pass; a job that is repeated writes the same rows to new files."""

    files: list[DataFile] = field(default_factory=list)
    entries: dict[int, TableEntry] = field(default_factory=dict)
    """The manifest's facts of each epoch."""
    by_feed: bool = True
    """True if all of it came from the change feed."""


class ExecutorWriter:
    """A writer of one state table's log in the executors; it remembers nothing between passes."""

    def __init__(self, reader: StateReader, log: TableLog) -> None:
        self._reader = reader
        self._log = log

    def append(self, epochs: Sequence[int], position: LogPosition, keyframe: int | None) -> dict[int, TableEntry]:
        """Commit some consecutive epochs, as :meth:`TableLog.append`; if the log restarts, only the first."""
        if position.restarts:
            return self._commit(epochs[:1], position, partial(self._keyframe, epochs[0]))
        return self._commit(epochs, position, partial(self.changes, epochs, position, keyframe))

    def keyframe_files(self, table: DeltaTable, epoch: int, _entry: TableEntry) -> list[DataFile]:
        """Write a keyframe from Spark's state at the epoch, which Spark may have purged."""
        return self._keyframe(epoch, pa.schema(table.schema().to_arrow()), after=-1).files

    def _commit(
        self, epochs: Sequence[int], position: LogPosition, work: Callable[[pa.Schema, int], Written]
    ) -> dict[int, TableEntry]:
        """Commit what executors write for some epochs, then sweep what failed tasks left behind."""
        state = self._reader.state(self._log.source, epochs[-1])
        self._log.create(state.log_columns(), state.columns.keys, epochs[0])
        metadata: dict[str, str] = {}
        done: list[Written] = []

        def write(table: DeltaTable, committed: int) -> list[DataFile]:
            done.append(work(pa.schema(table.schema().to_arrow()), committed))
            # Filled in only now; the commit reads it after the files were written.
            metadata.update(entries_as_metadata(done[-1].entries))
            return done[-1].files

        stood = commit_once(self._log.handle, self._log.application, epochs[-1], write, metadata=metadata)
        logged = self._log.entries_in_commits(epochs, stood) if stood > position.last else {}
        if not done and len(logged) < len(epochs):
            write(self._log.handle.newest(), epochs[-1])
        if done:
            self._log.written += sum(file.rows for file in done[-1].files)
            if not done[-1].by_feed and self._log.source.shape is not Shape.TIMERS:
                self._log.advice = self._reader.advice(self._log.source, epochs)
        sweep(self._log.place)
        return (done[-1].entries if done else {}) | logged

    def _keyframe(self, epoch: int, schema: pa.Schema, after: int) -> Written:
        """Write all live keys at an epoch as a keyframe, unless the epoch is up to ``after``."""
        state = self._reader.state(self._log.source, epoch)
        if epoch <= after:
            state = StateFrame(state.columns, state.frame.limit(0))
        done = self._run(state, write_keyframe, schema, after)
        return Written(done.files, {epoch: TableEntry(sum(report.live for report in done.epochs), 0, epoch)})

    def changes(
        self, epochs: Sequence[int], position: LogPosition, keyframe: int | None, schema: pa.Schema, after: int
    ) -> Written:
        """Write the changes of consecutive epochs; those up to ``after`` are counted and not written."""
        if self._log.source.shape is Shape.KEYED:
            with contextlib.suppress(*failures()):
                return self._fed(epochs, position, keyframe, schema, after)
        return self._compared(epochs, keyframe, schema, after)

    def _fed(
        self, epochs: Sequence[int], position: LogPosition, keyframe: int | None, schema: pa.Schema, after: int
    ) -> Written:
        """From the change feed."""
        feed = self._reader.feed(self._log.source, epochs[0], epochs[-1])
        done = self._run(feed, write_changes, schema, after)
        written = Written(done.files)
        for epoch in epochs:
            parts = [report for report in done.epochs if report.epoch == epoch]
            # What lives of the first changes is the whole state.
            whole = position.begins_empty and epoch == epochs[0]
            live = sum(report.live for report in parts) if whole else None
            written.entries[epoch] = TableEntry(live, sum(report.changes for report in parts), keyframe)
        return written

    def _compared(self, epochs: Sequence[int], keyframe: int | None, schema: pa.Schema, after: int) -> Written:
        """From the whole states, one epoch per job."""
        written = Written(by_feed=False)
        for epoch in epochs:
            both = self._reader.both(self._log.source, epoch)
            done = self._run(both, partial(write_compared, epoch), schema, after)
            written.files += done.files
            live = sum(report.live for report in done.epochs)
            changes = sum(report.changes for report in done.epochs)
            written.entries[epoch] = TableEntry(live, changes, keyframe)
        return written

    def _run(
        self, state: StateFrame, work: Callable[[TableTask, Batches], Batches], schema: pa.Schema, after: int
    ) -> reports.Reports:
        task = TableTask(self._log.place, schema, state.columns.spark_keys, self._log.source.shape is Shape.LIST, after)
        return run_tasks(state.frame, partial(work, task), task)


def run_tasks(frame: DataFrame, work: Callable[[Batches], Batches], task: TableTask) -> reports.Reports:
    """Run the work on a frame's partitions in the executors, and return what they report, once it is checked.

    Raises:
        CaptureError: a task failed, or a file is not what its task reports.
    """
    from streamstate.snapshots.spark.fetching import to_arrow

    try:
        done = reports.parse_reports(to_arrow(frame.mapInArrow(work, reports.SPARK_SCHEMA)))
    except failures() as error:
        explained = executor_error(error)
        if explained is None:
            raise
        raise explained from error
    require_valid(task.place, task.schema, done)
    return done
