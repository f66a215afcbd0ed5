"""The capture of one state table: read, transform, write, in the driver or, if a pass is large, in the executors."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from streamstate.errors import InvalidArgumentError, OvertakenError, StoreError
from streamstate.snapshots.capture.change_feed import ChangeFeed
from streamstate.snapshots.capture.change_rows import EpochChanges
from streamstate.snapshots.capture.executors.writer import ExecutorWriter
from streamstate.snapshots.capture.table_reader import PassRows, TableReader
from streamstate.snapshots.checkpoint.state_tables import Shape, StateSource
from streamstate.snapshots.spark.failures import TooLargeError, failures
from streamstate.snapshots.store.delta import Place, commit_once
from streamstate.snapshots.store.delta.data_files import DataFile
from streamstate.snapshots.store.delta.maintenance import sweep
from streamstate.snapshots.store.duckdb_sql import database_errors
from streamstate.snapshots.store.entries import TableEntry
from streamstate.snapshots.store.keyframes import KeyframeRule, marked_rows, marks_of
from streamstate.snapshots.store.merging import merge_log
from streamstate.snapshots.store.table_log import LogPosition, TableLog

ROWS_IN_DRIVER = "spark.streamstate.rowsInDriver"
"""The Spark setting: a pass over more rows of a table than this is large; 0 makes every pass large."""

_DEFAULT_ROWS_IN_DRIVER = 2_000_000
# State files are compressed; a file of n bytes holds more than n / 16 rows only if its rows are tiny.
_LEAST_BYTES_A_ROW = 16


def store_failures() -> tuple[type[Exception], ...]:
    """Return the exceptions of the libraries that read and write a store."""
    return (OSError, DeltaError, pa.ArrowException, *database_errors())


def _keyframe_failures() -> tuple[type[Exception], ...]:
    return (StoreError, *store_failures())


class TableCapture:
    """The capture of one state table, pass after pass; ``application`` is the transaction identifier of its commits.

    Between passes it remembers the log's newest epoch and keyframe, so that the next pass reads only what changed.
    """

    def __init__(self, feed: ChangeFeed, source: StateSource, place: Place, application: str) -> None:
        self.large = False
        """True if the executors wrote the last pass."""
        self.log = TableLog(source, place, application)
        self._feed = feed
        feed.verified_formats[source.table] = self.log.verified
        self._reader = feed.reader
        self._source = source
        self._changes = TableReader(feed, self.log)
        self._executors = ExecutorWriter(feed.reader, self.log)
        self._epoch: int | None = None
        self._rule = KeyframeRule()
        self._keyframes_fail = False
        self._most_changes: int | None = None

    @property
    def keyframe_due(self) -> bool:
        """True if :meth:`tidy` will write a keyframe; False if one failed, which can be tried again later."""
        return self._epoch is not None and self._rule.due and not self._keyframes_fail

    def advance(self, epochs: Sequence[int], position: LogPosition) -> dict[int, TableEntry]:
        """Add consecutive epochs, which follow the position, to the changelog.

        Returns what the manifest will say of each; readers see nothing before it does.
        """
        self.large = self._is_large(epochs, position)
        entries = None if self.large else self._fetched(epochs, position)
        if entries is None:
            self.large = True
            self._feed.by_spark[self.log.source.table] = "The pass is large, so Spark's executors read and write it."
            entries = self._distributed(epochs, position)
        self._most_changes = max(entry.changes for entry in entries.values())
        return entries

    def make_ready(self, position: LogPosition) -> None:
        """Find what :meth:`advance` needs to know of the log, from which it will go on at a position."""
        if self._epoch is None and position.entry is not None:
            self._resume(position)
            self._epoch = position.epoch

    def tidy(self, epoch: int, entry: TableEntry) -> None:
        """Write the newest epoch's keyframe if it is due, and merge small files."""
        if self._epoch == epoch and self._rule.due:
            self._write_keyframe(epoch, entry)
        merge_log(self.log.place)

    def forget(self) -> None:
        """Start over from the store at the next pass, after one that failed."""
        self._changes.forget()
        self._epoch = self._most_changes = None

    @property
    def _rows_in_driver(self) -> int:
        """The value of :data:`ROWS_IN_DRIVER`."""
        spark = self._reader.running
        text = spark.conf.get(ROWS_IN_DRIVER, "") if spark else ""
        try:
            return int(text or _DEFAULT_ROWS_IN_DRIVER)
        except ValueError:
            raise InvalidArgumentError(
                f"Invalid {ROWS_IN_DRIVER}={text!r}: expected a number of rows, such as {_DEFAULT_ROWS_IN_DRIVER}."
            ) from None

    def _is_large(self, epochs: Sequence[int], position: LogPosition) -> bool:
        if not self._reader.running:
            return False  # no executors
        limit, entry = self._rows_in_driver, position.entry
        if not limit:
            return True
        whole = position.restarts or self._source.shape is Shape.TIMERS or self.log.advice is not None
        if entry is None:
            return self._first_is_large(epochs, limit, whole=whole)
        changes = max(self._most_changes or 0, entry.changes)
        # Whoever read the whole state the last time has counted it.
        return (entry.rows if whole and entry.rows is not None else changes) * (len(epochs) + whole) > limit

    def _first_is_large(self, epochs: Sequence[int], limit: int, *, whole: bool) -> bool:
        """Nothing is known yet: small files hold few rows; for larger ones, Spark counts the rows."""
        size = self._reader.checkpoint.state_bytes(self._source.options["operatorId"])
        if size is not None and size <= limit * _LEAST_BYTES_A_ROW:
            return False
        if not whole and self._source.shape is not Shape.TIMERS:
            with contextlib.suppress(*failures()):  # no feed: whole states are read
                return self._reader.feed(self._source, epochs[0], epochs[-1]).frame.count() > limit
        return self._reader.state(self._source, epochs[-1]).frame.count() * (len(epochs) + 1) > limit

    def _fetched(self, epochs: Sequence[int], position: LogPosition) -> dict[int, TableEntry] | None:
        """Read the epochs and write them from the driver; None if Spark refuses to let it fetch so much."""
        self._begin(epochs, position)
        try:
            read = self._changes.read(epochs, position, self._rule.newest)
        except TooLargeError:
            self._changes.forget()
            return None
        entries = self._write(read)
        self._epoch = epochs[-1]
        return entries

    def _write(self, read: PassRows) -> dict[int, TableEntry]:
        """Commit the rows of a pass; an epoch that gets a keyframe ends a commit, so that the keyframe comes next."""
        base, last = read.position.last, read.epochs[-1]
        rows: list[pa.Table] = []
        part: dict[int, TableEntry] = {}
        entries: dict[int, TableEntry] = {}
        for changes in self._changes.changes(read):
            rows.append(changes.rows)
            entry = part[changes.epoch] = self._entry(changes)
            if self._rule.follow(entry) and not changes.is_keyframe and changes.epoch != last:
                entries |= self.log.append(pa.concat_tables(rows), read.keys, part, base)
                base = changes.epoch
                entries[base] = self._with_keyframe(base, entries[base], read.position)
                rows, part = [], {}
        return entries | self.log.append(pa.concat_tables(rows), read.keys, part, base)

    def _entry(self, changes: EpochChanges) -> TableEntry:
        """Return what the manifest will say of an epoch's rows."""
        count = changes.rows.num_rows
        if changes.is_keyframe:
            return TableEntry(count, 0, changes.epoch)
        return TableEntry(changes.live, count, self._rule.newest)

    def _distributed(self, epochs: Sequence[int], position: LogPosition) -> dict[int, TableEntry]:
        """Have the executors write the epochs: a keyframe with which the log begins, and as many as pay for another.

        Lists go epoch by epoch: an element's position depends on all elements before it, which the driver or whole
        states tell.
        """
        entries: dict[int, TableEntry] = {}
        lists = self._source.shape is Shape.LIST and self.log.advice is None
        while epochs:
            self._begin(epochs, position)
            part = epochs[:1] if lists or position.restarts else epochs[: self._epochs_at_once(position)]
            written = self._fetched(part, position) if lists and not position.restarts else None
            if written is None:
                written = self._executors.append(part, position, self._rule.newest)
                for epoch in part:
                    self._rule.follow(written[epoch])
                self._changes.forget()
            self._epoch, epochs = part[-1], epochs[len(part) :]
            entries |= written
            position = LogPosition(part[-1], entries[part[-1]])
        return entries

    def _epochs_at_once(self, position: LogPosition) -> int:
        """Return the number of epochs until the next keyframe is due, if they are as large as those before."""
        changes = self._most_changes or (position.entry.changes if position.entry else 0)
        return self._rule.epochs_until_due(changes) if changes else 1

    def _begin(self, epochs: Sequence[int], position: LogPosition) -> None:
        """Prepare to add some epochs: find the newest keyframe, and write the one that is due."""
        if position.restarts:
            self._rule = KeyframeRule(epochs[0])
        elif self._epoch is None or self._epoch != position.epoch:
            self._resume(position)
        if not position.restarts and position.epoch is not None and position.entry is not None:
            self._with_keyframe(position.epoch, position.entry, position)

    def _resume(self, position: LogPosition) -> None:
        """Continue a log that another capture left: find its newest keyframe, remove files of failed commits."""
        newest = self.log.newest_keyframe()
        known = position.entry.keyframe if position.entry else None
        # A keyframe of an epoch that the manifest does not have yet is written again at the next occasion.
        usable = newest > -1 and position.epoch is not None and newest <= position.epoch
        keyframe = max(newest, -1 if known is None else known) if usable else known
        self._rule = KeyframeRule(keyframe)
        if position.counts is not None:
            marked = None if keyframe is None else marked_rows(self.log.handle.newest(), keyframe)
            self._rule = KeyframeRule.after(keyframe, position.counts, marked)
        sweep(self.log.handle)

    def _with_keyframe(self, epoch: int, entry: TableEntry, position: LogPosition) -> TableEntry:
        """Return the entry of the newest epoch, with the rows of its keyframe, which is written if it is due.

        A failure is left to :meth:`tidy` to report: epochs are captured all the same.
        """
        if not self._rule.due or self._keyframes_fail:
            return entry
        generation = position.entry.generation if position.entry else None
        try:
            self._write_keyframe(epoch, replace(entry, generation=generation))
        except OvertakenError:
            raise
        except _keyframe_failures():
            return entry
        return replace(entry, rows=self._rule.rows) if self._rule.newest == epoch else entry

    def _write_keyframe(self, epoch: int, entry: TableEntry) -> None:
        """Write all live keys again.

        From Spark's state if it may be large, a session runs and the state is still there; otherwise from the log.
        """
        if self._reader.running and self._rule.most_rows > self._rows_in_driver:
            with contextlib.suppress(*failures()):
                self._commit_keyframe(self._executors, epoch, entry)
                return
        try:
            self._commit_keyframe(self.log, epoch, entry)
        except _keyframe_failures() as error:
            self._keyframes_fail = not isinstance(error, OvertakenError)
            raise

    def _commit_keyframe(self, writer: TableLog | ExecutorWriter, epoch: int, entry: TableEntry) -> None:
        marks: dict[str, int] = {}

        def write(table: DeltaTable, _committed: int) -> list[DataFile]:
            files = writer.keyframe_files(table, epoch, entry)
            marks.update(marks_of(epoch, sum(file.rows for file in files)))
            return files

        stood = commit_once(self.log.handle, self.log.keyframes, epoch, write, marks=marks)
        self._keyframes_fail = False
        if stood > epoch:
            return  # another capture is ahead, and need not have written this one
        rows = marked_rows(self.log.handle.newest(), epoch) or 0
        self._rule.begin(epoch, rows)
        self.log.written += rows
