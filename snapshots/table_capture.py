"""Brings the changelog of one state table forward, with the driver or, if a pass is large, with the executors."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from deltalake import DeltaTable

from streamstate.errors import InvalidArgumentError
from streamstate.snapshots.change_feed import ChangeFeed
from streamstate.snapshots.changelog_writer import DriverWriter, LogPosition, TableLog
from streamstate.snapshots.delta import Place, commit_once
from streamstate.snapshots.delta.data_files import DataFile
from streamstate.snapshots.delta.maintenance import sweep
from streamstate.snapshots.entries import TableCounts, TableEntry
from streamstate.snapshots.executors.writer import ExecutorWriter
from streamstate.snapshots.keyframes import marked_rows, marks_of
from streamstate.snapshots.merging import merge_log
from streamstate.snapshots.operators import Shape, StateSource
from streamstate.snapshots.spark.failures import TooLargeError, failures

ROWS_IN_DRIVER = "spark.streamstate.rowsInDriver"
"""The Spark setting: a pass over more rows of a table than this is large; 0 makes every pass large."""

_DEFAULT_ROWS_IN_DRIVER = 2_000_000
# State files are compressed; a file of n bytes holds more than n / 16 rows only if its rows are tiny.
_LEAST_BYTES_A_ROW = 16
# With fewer rows than this a keyframe saves readers no time.
_SMALLEST_KEYFRAME = 50_000


class TableCapture:
    """Captures one state table, pass after pass; ``application`` is the transaction identifier of its captures.

    Between passes it remembers where the log stands, so that the next pass reads only what changed.
    """

    def __init__(self, feed: ChangeFeed, source: StateSource, place: Place, application: str) -> None:
        self.large = False
        """Whether the executors wrote the last pass."""
        self.log = TableLog(source, place, application)
        self._feed = feed
        self._reader = feed.reader
        self._source = source
        self._driver = DriverWriter(feed, self.log)
        self._executors = ExecutorWriter(feed.reader, self.log)
        self._epoch: int | None = None
        self._keyframe: int | None = None
        self._keyframe_rows: int | None = None
        self._most_changes: int | None = None

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

    def tidy(self, epoch: int, entry: TableEntry, counts: TableCounts) -> None:
        """Write a keyframe if the changes since the last outnumber the rows counted then, and merge small files.

        So a keyframe has at most twice as many rows as the changes that pay for it, and nobody has to count the state.
        """
        if self._epoch == epoch:
            changes, rows = counts.changes_since(self._keyframe), self._rows_counted(counts)
            if changes > max(rows, _SMALLEST_KEYFRAME):
                self._write_keyframe(epoch, entry, rows + changes)
        merge_log(self.log.place)

    def _rows_counted(self, counts: TableCounts) -> int:
        """The rows that were counted last, at the newest keyframe or later; 0 if there are none."""
        counted = counts.counted_since(self._keyframe)
        if counted is None and self._keyframe is not None and self._keyframe_rows is None:
            self._keyframe_rows = marked_rows(self.log.handle.newest(), self._keyframe)
        return (self._keyframe_rows if counted is None else counted) or 0

    def forget(self) -> None:
        """Start over from the store at the next pass, after one that failed."""
        self._forget_position()
        self._most_changes = None

    def _forget_position(self) -> None:
        self._driver.forget()
        self._epoch = self._keyframe = self._keyframe_rows = None

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
        """Have the driver write the epochs; None if Spark refuses to let it fetch so much."""
        try:
            return self._append(self._driver, epochs, position)
        except TooLargeError:
            self._forget_position()
            return None

    def _distributed(self, epochs: Sequence[int], position: LogPosition) -> dict[int, TableEntry]:
        """Have the executors write the epochs; a keyframe with which the log begins is a commit of its own."""
        if position.restarts:
            first, rest = epochs[0], epochs[1:]
            entries = self._append(self._executors, [first], position)
            return entries | (self._distributed(rest, LogPosition(first, entries[first])) if rest else {})
        if self._source.shape is Shape.LIST and self.log.advice is None:
            return self._epoch_by_epoch(epochs, position)
        return self._append(self._executors, epochs, position)

    def _epoch_by_epoch(self, epochs: Sequence[int], position: LogPosition) -> dict[int, TableEntry]:
        """Lists: an element's position depends on all elements before it, which the driver or whole states tell."""
        entries: dict[int, TableEntry] = {}
        for epoch in epochs:
            written = self._fetched([epoch], position)
            entries |= self._append(self._executors, [epoch], position) if written is None else written
            position = LogPosition(epoch, entries[epoch])
        return entries

    def _append(
        self, writer: DriverWriter | ExecutorWriter, epochs: Sequence[int], position: LogPosition
    ) -> dict[int, TableEntry]:
        if position.restarts:
            self._keyframe = epochs[0]
        elif self._epoch is None:
            self._resume(position)
        entries = writer.append(epochs, position, self._keyframe)
        if position.restarts:
            self._keyframe_rows = None  # the manifest has them
        self._epoch = epochs[-1]
        if writer is not self._driver:
            self._driver.forget()
        return entries

    def _resume(self, position: LogPosition) -> None:
        """Continue a log that another capture left: find its newest keyframe, remove files of failed commits."""
        newest = self.log.newest_keyframe()
        known = position.entry.keyframe if position.entry else None
        # A keyframe of an epoch that the manifest does not have yet is written again at the next occasion.
        usable = newest > -1 and position.epoch is not None and newest <= position.epoch
        self._keyframe = max(newest, -1 if known is None else known) if usable else known
        sweep(self.log.place)

    def _write_keyframe(self, epoch: int, entry: TableEntry, most: int) -> None:
        """Write all live keys again, which are at most so many.

        From Spark's state if it may be large, a session runs and the state is still there; otherwise from the log.
        """
        if self._reader.running and most > self._rows_in_driver:
            with contextlib.suppress(*failures()):
                self._commit_keyframe(self._executors, epoch, entry)
                return
        self._commit_keyframe(self._driver, epoch, entry)

    def _commit_keyframe(self, writer: DriverWriter | ExecutorWriter, epoch: int, entry: TableEntry) -> None:
        marks: dict[str, int] = {}

        def write(table: DeltaTable, _stands: int) -> list[DataFile]:
            files = writer.keyframe_files(table, epoch, entry)
            marks.update(marks_of(epoch, sum(file.rows for file in files)))
            return files

        commit_once(self.log.handle, self.log.keyframes, epoch, write, marks=marks)
        self._keyframe = epoch
        self._keyframe_rows = marked_rows(self.log.handle.newest(), epoch)
        self.log.written += self._keyframe_rows or 0
