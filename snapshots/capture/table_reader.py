"""The rows that a pass adds to a state table's change log: read from the checkpoint, turned into rows of the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import pyarrow as pa
import pyarrow.compute as pc

from streamstate.snapshots.capture.change_feed import ChangeFeed
from streamstate.snapshots.capture.change_rows import EpochChanges, FeedFollower, WholeFollower, as_log, with_positions
from streamstate.snapshots.checkpoint.state_tables import CHANGE, EPOCH, Columns, Shape
from streamstate.snapshots.spark.failures import failures
from streamstate.snapshots.spark.state_reader import StateRows
from streamstate.snapshots.store.changelog import KEYFRAME, PUT, check_generation, rows_since, state_at
from streamstate.snapshots.store.delta.reading import TableVersion
from streamstate.snapshots.store.list_positions import ListLengths, Log
from streamstate.snapshots.store.table_log import LogPosition, TableLog


@dataclass(frozen=True)
class PassRows:
    """The state of a table in the epochs of a pass, as it was read."""

    epochs: Sequence[int]
    position: LogPosition
    keyframe: int | None
    """The log's newest keyframe where the pass begins."""
    whole: StateRows | None = None
    """If the log restarts, the whole state at the first epoch."""
    rows: StateRows | None = None
    """The changes of the other epochs, or the whole state at each of them; None if there are no others."""
    by_feed: bool = True
    """True if ``rows`` are changes."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns."""
        read = self.rows or self.whole
        return () if read is None else read.columns.keys

    @cached_property
    def restart(self) -> pa.Table | None:
        """If the log restarts, the rows with which it begins."""
        return None if self.whole is None else with_positions(self.whole.rows, self.whole.columns)


class TableReader:
    """A reader of one state table, pass after pass.

    Between passes it remembers lengths of lists, or the last state where there is no change feed.
    """

    def __init__(self, feed: ChangeFeed, log: TableLog) -> None:
        self._feed = feed
        self._log = log
        self._follower: FeedFollower | WholeFollower | None = None
        self._follower_epoch: int | None = None
        self._pass: PassRows | None = None

    def read(self, epochs: Sequence[int], position: LogPosition, keyframe: int | None) -> PassRows:
        """Read consecutive epochs, which follow the position.

        Raises:
            TooLargeError: Spark refuses to let the driver fetch so much.
        """
        source, rest, whole = self._log.source, list(epochs), None
        if position.restarts:
            whole = self._feed.whole(source, [rest.pop(0)])
        read = PassRows(epochs, position, keyframe, whole)
        if not rest:
            return read
        if self._feed.reader.has_feed(source, rest):
            try:
                rows = self._feed.changes(source, rest[0], rest[-1])
            except failures():
                rows = self._feed.whole(source, rest)
                self._log.advice = self._feed.reader.advice(source, rest)
                return replace(read, rows=rows, by_feed=False)
            self._log.advice = None
            return replace(read, rows=rows)
        return replace(read, rows=self._feed.whole(source, rest), by_feed=False)

    def changes(self, read: PassRows) -> Iterator[EpochChanges]:
        """Return the rows that each epoch adds to the log; if the log restarts, the first ones are a keyframe."""
        self._pass, rest = read, list(read.epochs)
        if read.whole is not None and read.restart is not None:
            self._restart(rest[0], read.whole, read.restart)
            yield EpochChanges(rest.pop(0), as_log(read.restart, read.whole.columns, KEYFRAME), is_keyframe=True)
        if read.rows is not None:
            for changes in self._follow(rest, read, read.rows):
                first = read.position.begins_empty and changes.epoch == rest[0]
                yield replace(changes, live=_puts(changes.rows)) if first else changes
        self._follower_epoch, self._pass = read.epochs[-1], None

    def forget(self) -> None:
        """Forget what passes remember: the executors have written epochs since, or a pass failed."""
        self._follower, self._follower_epoch, self._pass = None, None, None

    def _restart(self, epoch: int, whole: StateRows, rows: pa.Table) -> None:
        """Begin to follow the table at a whole state."""
        if self._log.source.shape is Shape.TIMERS:
            self._follower = WholeFollower(whole.columns, rows.select(whole.columns.names))
        else:
            self._follower = self._feed_follower(whole.columns)
        self._follower_epoch = epoch

    def _follow(self, epochs: list[int], read: PassRows, rows: StateRows) -> Iterator[EpochChanges]:
        follower = self._follower if self._follower_epoch == epochs[0] - 1 else None
        if follower is None or isinstance(follower, FeedFollower) != read.by_feed:
            follower = self._follower = self._new_follower(read, rows)
        return follower.changes(rows, epochs)

    def _new_follower(self, read: PassRows, rows: StateRows) -> FeedFollower | WholeFollower:
        if read.by_feed:
            return self._feed_follower(rows.columns, begins_empty=read.position.begins_empty)
        return WholeFollower(rows.columns, self._state_before(rows.columns, read, rows.rows.schema))

    def _feed_follower(self, columns: Columns, *, begins_empty: bool = False) -> FeedFollower:
        log = partial(self._log_before, columns)
        return FeedFollower(columns, ListLengths(columns.spark_keys, log, begins_empty=begins_empty))

    def _log_before(self, columns: Columns) -> Log:
        """Return the rows that make up the state where the pass under way begins."""
        assert self._pass is not None
        position, names = self._pass.position, [EPOCH, CHANGE, *columns.keys]
        if self._pass.whole is not None:
            return as_log(self._pass.restart, columns, KEYFRAME).select(names)
        assert position.epoch is not None
        version = TableVersion(self._log.place, self._log.handle.newest())
        check_generation(version, position.entry.generation if position.entry else None)
        return rows_since(version, self._pass.keyframe, position.epoch, names)

    def _state_before(self, columns: Columns, read: PassRows, schema: pa.Schema) -> pa.Table:
        """Return the rows where the pass starts, from the log or from the keyframe that the pass itself made."""
        position, names = read.position, columns.names
        if read.restart is not None:
            return read.restart.select(names)
        if position.epoch is None or position.entry is None:
            return _empty(columns, schema)
        entry, place = position.entry, self._log.place
        state = state_at(place, columns.keys, position.epoch, entry.keyframe, names, generation=entry.generation)
        return _fitted(state, names, schema)


def _puts(rows: pa.Table) -> int:
    return int(pc.sum(pc.equal(rows[CHANGE], PUT)).as_py() or 0)


def _fitted(state: pa.Table, names: Sequence[str], schema: pa.Schema) -> pa.Table:
    """Return rows in the columns that Spark has now: a restart may have added some, or widened their types."""
    arrays = {}
    for name in names:
        kind = schema.field(name).type if name in schema.names else state.schema.field(name).type
        arrays[name] = state[name].cast(kind) if name in state.column_names else pa.nulls(state.num_rows, kind)
    return pa.table(arrays)


def _empty(columns: Columns, schema: pa.Schema) -> pa.Table:
    fields = [schema.field(name) if name in schema.names else pa.field(name, pa.int64()) for name in columns.names]
    return pa.schema(fields).empty_table()
