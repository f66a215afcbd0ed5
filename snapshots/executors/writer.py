"""Writes epochs into a changelog from the executors; the driver commits their files in one transaction."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from streamstate.snapshots.change_log import DELETE, check_generation, key_columns, rows_since
from streamstate.snapshots.change_rows import last_of_each
from streamstate.snapshots.changelog_writer import LogPosition, TableLog, recorded
from streamstate.snapshots.delta import commit_once
from streamstate.snapshots.delta.commits import required
from streamstate.snapshots.delta.data_files import DataFile
from streamstate.snapshots.delta.maintenance import sweep
from streamstate.snapshots.delta.reading import TableVersion
from streamstate.snapshots.duckdb_sql import listed, spilling
from streamstate.snapshots.executors import reports
from streamstate.snapshots.executors.reports import EpochReport, require_valid
from streamstate.snapshots.executors.tasks import Batches, TableTask, write_changes, write_compared, write_keyframe
from streamstate.snapshots.key_digests import KeyCounts
from streamstate.snapshots.manifest import TableEntry
from streamstate.snapshots.operators import CHANGE, EPOCH, Shape
from streamstate.snapshots.spark.failures import FAILURES, executor_error
from streamstate.snapshots.spark.fetching import to_arrow
from streamstate.snapshots.state_reader import StateFrame, StateReader

# Change rows of one job: their digests, of 8 bytes each, come to the driver.
_ROWS_A_JOB = 20_000_000
_BATCH = 1_000_000
_NO_DIGESTS = np.empty(0, np.uint64)


@dataclass
class Written:
    """What the jobs of one pass wrote; a job that is repeated writes the same rows to new files."""

    files: list[DataFile] = field(default_factory=list)
    entries: dict[int, TableEntry] = field(default_factory=dict)
    """What the manifest will say of each epoch."""
    by_feed: bool = True
    """Whether all of it came from the change feed."""


class ExecutorWriter:
    """Writes one state table's log in the executors. Between passes it remembers digests of the live keys."""

    def __init__(self, reader: StateReader, log: TableLog) -> None:
        self._reader = reader
        self._log = log
        self._live: KeyCounts | None = None
        self._live_epoch: int | None = None
        # The most changes that an epoch had; until one is known, as many as a job may have.
        self._most_changes = _ROWS_A_JOB

    def append(self, epochs: Sequence[int], position: LogPosition, keyframe: int | None) -> dict[int, TableEntry]:
        """Commit some consecutive epochs, as :meth:`DriverWriter.append`; if the log restarts, only the first."""
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

        def write(table: DeltaTable, stands: int) -> list[DataFile]:
            done.append(work(pa.schema(table.schema().to_arrow()), stands))
            # Filled in only now; the commit reads it after the files were written.
            metadata.update(recorded(done[-1].entries))
            return done[-1].files

        stood = commit_once(self._log.handle, self._log.application, epochs[-1], write, metadata=metadata)
        logged = self._log.recorded_entries(epochs, stood) if stood > position.last else {}
        if not done and len(logged) < len(epochs):
            write(self._log.handle.newest(), epochs[-1])
        if done:
            self._log.written += sum(file.rows for file in done[-1].files)
            if not done[-1].by_feed and self._log.source.shape is not Shape.TIMERS:
                self._log.advice = self._reader.advice(self._log.source, epochs)
        sweep(self._log.place)
        return (done[-1].entries if done else {}) | logged

    def _keyframe(self, epoch: int, schema: pa.Schema, after: int) -> Written:
        """All live keys at an epoch, as a keyframe; only rows of epochs after ``after`` are written."""
        state = self._reader.state(self._log.source, epoch)
        if epoch <= after:
            state = StateFrame(state.columns, state.frame.limit(0))
        done = self._run(state, write_keyframe, schema, after)
        return Written(done.files, {epoch: TableEntry(sum(report.live for report in done.epochs), 0, epoch)})

    def changes(
        self, epochs: Sequence[int], position: LogPosition, keyframe: int | None, schema: pa.Schema, after: int
    ) -> Written:
        """What consecutive epochs changed; epochs up to ``after`` are counted and not written."""
        if self._log.source.shape is Shape.KEYED:
            with contextlib.suppress(*FAILURES):
                return self._fed(epochs, position, keyframe, schema, after)
        return self._compared(epochs, keyframe, schema, after)

    def _fed(
        self, epochs: Sequence[int], position: LogPosition, keyframe: int | None, schema: pa.Schema, after: int
    ) -> Written:
        """From the change feed; a job takes fewer epochs if many keys change, which bounds the driver's memory."""
        written = Written()
        live = self._live_at(position, schema)
        rest = [*epochs]
        while rest:
            batch = rest[: max(1, _ROWS_A_JOB // max(self._most_changes, 1))]
            rest = rest[len(batch) :]
            feed = self._reader.feed(self._log.source, batch[0], batch[-1])
            done = self._run(feed, write_changes, schema, after)
            written.files += done.files
            for epoch in batch:
                parts = [report for report in done.epochs if report.epoch == epoch]
                changes = sum(report.changes for report in parts)
                written.entries[epoch] = TableEntry(_advance(live, parts), changes, keyframe)
            self._most_changes = max(written.entries[epoch].changes for epoch in batch)
        self._live, self._live_epoch = live, epochs[-1]
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

    def _live_at(self, position: LogPosition, schema: pa.Schema) -> KeyCounts:
        """The live keys where a pass starts; the pass changes them, so they are forgotten here until it succeeds."""
        known, self._live = self._live, None
        if position.epoch is None:
            return KeyCounts()
        if known is not None and self._live_epoch == position.epoch:
            return known
        # Not through the log's handle, on which the commit under way relies.
        version = TableVersion(self._log.place, required(self._log.place))
        entry = position.entry
        check_generation(version, entry.generation if entry else None)
        return _live_keys(version, key_columns(schema), position.epoch, entry.keyframe if entry else None)

    def _run(
        self, state: StateFrame, work: Callable[[TableTask, Batches], Batches], schema: pa.Schema, after: int
    ) -> reports.Reports:
        task = TableTask(self._log.place, schema, state.columns.spark_keys, self._log.source.shape is Shape.LIST, after)
        try:
            done = reports.read(to_arrow(state.frame.mapInArrow(partial(work, task), reports.SPARK_SCHEMA)))
        except FAILURES as error:
            explained = executor_error(error)
            if explained is None:
                raise
            raise explained from error
        require_valid(self._log.place, schema, done)
        return done


def _live_keys(version: TableVersion, keys: Sequence[str], epoch: int, keyframe: int | None) -> KeyCounts:
    """The keys that live at an epoch, as digests, from the changelog since a keyframe (None: from its beginning)."""
    live = KeyCounts()
    digest = f"hash({listed(keys)})" if keys else "0::UBIGINT"
    with spilling() as database:
        database.register("log", rows_since(version, keyframe, epoch, [EPOCH, CHANGE, *keys]))
        batches = database.sql(
            f"SELECT {digest} AS digest FROM log GROUP BY digest"
            f" HAVING arg_max({CHANGE}, {EPOCH}) <> '{DELETE}' ORDER BY digest"
        ).to_arrow_reader(_BATCH)
        for batch in batches:
            digests = np.asarray(pa.Table.from_batches([batch])["digest"].to_numpy(), np.uint64)
            live.put(digests, np.ones(len(digests), np.uint8))
    return live


def _advance(live: KeyCounts, parts: Sequence[EpochReport]) -> int:
    """Apply what one epoch changed; returns how many keys live after it."""
    deletes = np.concatenate([_NO_DIGESTS, *(part.deletes for part in parts)])
    puts = np.concatenate([_NO_DIGESTS, *(part.puts for part in parts)])
    # If two keys share a digest (a chance of 1 in 2⁶⁴ for any two), the live one counts: it comes last.
    live.put(*last_of_each(np.concatenate([deletes, puts]), np.repeat([0, 1], [len(deletes), len(puts)])))
    return live.total
