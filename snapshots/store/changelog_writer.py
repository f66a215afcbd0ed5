"""Writing epochs into a state table's changelog: the log itself, and the writer that does it from the driver.

The other writer, :class:`ExecutorWriter`, has Spark's executors write the files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from streamstate.snapshots.capture.feed import ChangeFeed
from streamstate.snapshots.capture.rows import EpochChanges, FeedFollower, WholeFollower, as_log, with_positions
from streamstate.snapshots.checkpoint.operators import CHANGE, EPOCH, Columns, Shape, StateSource
from streamstate.snapshots.spark.failures import failures
from streamstate.snapshots.spark.state_reader import StateRows
from streamstate.snapshots.store.changelog import (
    KEYFRAME,
    PUT,
    Operator,
    check_generation,
    log_schema,
    rows_since,
    state_at,
    with_beginning,
)
from streamstate.snapshots.store.delta import Place, append_once, open_or_create, open_table
from streamstate.snapshots.store.delta.commits import Handle, recent_metadata, version_of
from streamstate.snapshots.store.delta.data_files import DataFile
from streamstate.snapshots.store.delta.reading import TableVersion
from streamstate.snapshots.store.entries import TableCounts, TableEntry
from streamstate.snapshots.store.keyframes import KeyframeRule, keyframe_file
from streamstate.snapshots.store.list_lengths import ListLengths, Log
from streamstate.snapshots.store.verified_formats import VerifiedFormats

_RECORDED = "streamstate.epochs"


@dataclass(frozen=True)
class LogPosition:
    """Where a table's log stands before a pass."""

    epoch: int | None
    """The newest captured epoch; None if the log starts from nothing, at epoch 0."""
    entry: TableEntry | None
    """What the manifest says of the table at that epoch."""
    restarts: bool = False
    """The log has to start with a keyframe: after a gap, or because the first epochs are gone."""
    counts: TableCounts | None = None
    """What the manifest counted up to there, for a log that this process has not written so far."""

    @property
    def last(self) -> int:
        """The newest captured epoch as a number; −1 if there is none."""
        return -1 if self.epoch is None else self.epoch

    @property
    def begins_empty(self) -> bool:
        """Whether the table has no rows there."""
        return not self.restarts and self.entry is None


class TableLog:
    """The changelog of one state table, open for writing; ``application`` identifies its captures' transactions."""

    def __init__(self, source: StateSource, place: Place, application: str) -> None:
        self.source = source
        self.place = place
        self.application = application
        self.handle = Handle(place)
        self.verified = VerifiedFormats(self.handle, application)
        self.written = 0
        """Rows written so far."""
        self.advice: str | None = None
        """Settings that would make the table cheaper to capture; None: there are none."""

    @property
    def keyframes(self) -> str:
        """The transaction identifier of keyframes that are not part of an epoch's commit; its versions are epochs."""
        return f"{self.application}/keyframes"

    def newest_keyframe(self) -> int:
        """The newest epoch with a keyframe that is not part of the epoch's commit; −1 if there is none."""
        table = open_table(self.place)
        return -1 if table is None else version_of(table, self.keyframes)

    def create(self, columns: pa.Schema, keys: Sequence[str], epoch: int) -> None:
        """Create the log, or add the columns that it lacks, which start at an epoch."""
        schema = log_schema(columns, keys, Operator(self.source.operator, self.source.time_mode))
        existing = open_table(self.place)
        if existing is not None:
            schema = with_beginning(schema, TableVersion(self.place, existing).schema, epoch)
        open_or_create(self.place, schema, f"streamstate: change log of {self.source.table}")

    def recorded_entries(self, epochs: Sequence[int], upto: int) -> dict[int, TableEntry]:
        """What the log's own commits recorded of some epochs up to one; another capture may have written them."""
        entries: dict[int, TableEntry] = {}
        for text in recent_metadata(self.place, _RECORDED):
            entries |= {epoch: TableEntry(*values) for epoch, *values in json.loads(text)}
        return {epoch: entry for epoch, entry in entries.items() if epoch in epochs and epoch <= upto}


def recorded(entries: dict[int, TableEntry]) -> dict[str, str]:
    """What a commit of the log records of its epochs, for a capture that finds them there."""
    values = [[epoch, entry.rows, entry.changes, entry.keyframe] for epoch, entry in entries.items()]
    return {_RECORDED: json.dumps(values)}


class DriverWriter:
    """Writes one state table's log in the driver."""

    def __init__(self, feed: ChangeFeed, log: TableLog) -> None:
        self._feed = feed
        self._reader = feed.reader
        self._log = log
        self._schema: pa.Schema | None = None
        self._follower: FeedFollower | WholeFollower | None = None
        self._follower_epoch: int | None = None
        self._start: _Start | None = None

    def append(
        self, epochs: Sequence[int], position: LogPosition, rule: KeyframeRule
    ) -> Iterator[dict[int, TableEntry]]:
        """Commit consecutive epochs, which follow the position; yield the manifest's entries of each commit.

        Each epoch that gets a keyframe ends a commit, so that the caller can write the keyframe before the next. If the
        log restarts, the first epoch becomes a keyframe itself.
        """
        pieces: list[pa.Table] = []
        entries: dict[int, TableEntry] = {}
        rest, base = list(epochs), position.last
        self._start = _Start(position, rule.newest)
        if position.restarts:
            rows = self._start.restart = self._restart(rest.pop(0))
            pieces, entries[epochs[0]] = [rows], TableEntry(rows.num_rows, 0, epochs[0])
            rule.follow(entries[epochs[0]])
        for changes in self._changes(rest, self._start):
            pieces.append(changes.rows)
            first = position.begins_empty and changes.epoch == epochs[0]
            live = _puts(changes.rows) if first else changes.live
            entry = entries[changes.epoch] = TableEntry(live, changes.rows.num_rows, rule.newest)
            if rule.follow(entry) and changes.epoch != epochs[-1]:
                yield self._commit(pa.concat_tables(pieces), entries, base)
                pieces, entries, base = [], {}, changes.epoch
        yield self._commit(pa.concat_tables(pieces), entries, base)
        self._follower_epoch, self._start = epochs[-1], None

    def keyframe_files(self, table: DeltaTable, epoch: int, entry: TableEntry, /) -> list[DataFile]:
        """A keyframe at a captured epoch, folded from the log: Spark's reader would cost the query's machine more."""
        version = TableVersion(self._log.place, table)
        check_generation(version, entry.generation)
        return keyframe_file(version, epoch, entry.keyframe)

    def forget(self) -> None:
        """Forget what passes remember: the executors have gone on since, or a pass failed."""
        self._follower, self._follower_epoch, self._start = None, None, None

    def _restart(self, epoch: int) -> pa.Table:
        """Begin the log, or begin it again after a gap, with a keyframe."""
        whole = self._feed.whole(self._log.source, [epoch])
        rows = with_positions(whole.rows, whole.columns)
        if self._log.source.shape is Shape.TIMERS:
            self._follower = WholeFollower(whole.columns, rows.select(whole.columns.names))
        else:
            self._follower = self._feed_follower(whole.columns)
        self._follower_epoch = epoch
        return as_log(rows, whole.columns, KEYFRAME)

    def _changes(self, epochs: list[int], start: _Start) -> Iterator[EpochChanges]:
        if not epochs:
            return
        rows, by_feed = self._read(epochs)
        follower = self._follower if self._follower_epoch == epochs[0] - 1 else None
        if follower is None or isinstance(follower, FeedFollower) != by_feed:
            follower = self._follower = self._new_follower(rows, start, by_feed=by_feed)
        yield from follower.changes(rows, epochs)

    def _read(self, epochs: list[int]) -> tuple[StateRows, bool]:
        """The epochs' changes, or the whole state at each of them if there are none."""
        source = self._log.source
        if self._reader.has_feed(source, epochs):
            try:
                changes = self._feed.changes(source, epochs[0], epochs[-1])
            except failures():
                whole = self._feed.whole(source, epochs)
                self._log.advice = self._reader.advice(source, epochs)
                return whole, False
            self._log.advice = None
            return changes, True
        return self._feed.whole(source, epochs), False

    def _new_follower(self, rows: StateRows, start: _Start, *, by_feed: bool) -> FeedFollower | WholeFollower:
        if by_feed:
            return self._feed_follower(rows.columns, begins_empty=start.position.begins_empty)
        return WholeFollower(rows.columns, self._state_before(rows.columns, start, rows.rows.schema))

    def _feed_follower(self, columns: Columns, *, begins_empty: bool = False) -> FeedFollower:
        log = partial(self._log_before, columns)
        return FeedFollower(columns, ListLengths(columns.spark_keys, log, begins_empty=begins_empty))

    def _log_before(self, columns: Columns) -> Log:
        """The rows that make up the state where the pass under way begins."""
        assert self._start is not None
        position, names = self._start.position, [EPOCH, CHANGE, *columns.keys]
        if self._start.restart is not None:
            return self._start.restart.select(names)
        assert position.epoch is not None
        version = TableVersion(self._log.place, self._log.handle.newest())
        check_generation(version, position.entry.generation if position.entry else None)
        return rows_since(version, self._start.keyframe, position.epoch, names)

    def _state_before(self, columns: Columns, start: _Start, schema: pa.Schema) -> pa.Table:
        """The table's rows where the pass starts, from the log or from the keyframe that the pass itself made."""
        position, names = start.position, columns.names
        if start.restart is not None:
            return start.restart.select(names)
        if position.epoch is None or position.entry is None:
            return _empty(columns, schema)
        entry, place = position.entry, self._log.place
        state = state_at(place, columns.keys, position.epoch, entry.keyframe, names, generation=entry.generation)
        return _fitted(state, names, schema)

    def _commit(self, rows: pa.Table, entries: dict[int, TableEntry], base: int) -> dict[int, TableEntry]:
        if rows.schema != self._schema:
            self._log.create(rows.schema, self._follower.keys if self._follower else (), min(entries))
            self._schema = rows.schema
        stood = base
        if rows.num_rows:
            stood = append_once(
                self._log.handle,
                self._log.application,
                max(entries),
                lambda stands: rows.filter(pc.greater(rows[EPOCH], stands)) if stands > base else rows,
                metadata=recorded(entries),
                marks=self._log.verified.pending,
            )
            if stood < max(entries):
                self._log.verified.pending.clear()
            self._log.written += rows.num_rows
        # Epochs that another capture has put into the log stay as it wrote them.
        return entries | (self._log.recorded_entries([*entries], stood) if stood > base else {})


@dataclass
class _Start:
    """Where the pass under way begins."""

    position: LogPosition
    keyframe: int | None
    restart: pa.Table | None = None
    """If the log restarts, the keyframe that the pass begins with."""


def _puts(rows: pa.Table) -> int:
    return int(pc.sum(pc.equal(rows[CHANGE], PUT)).as_py() or 0)


def _fitted(state: pa.Table, names: Sequence[str], schema: pa.Schema) -> pa.Table:
    """Rows of the log in the columns that Spark has now: a restart may have added some, or widened their types."""
    arrays = {}
    for name in names:
        kind = schema.field(name).type if name in schema.names else state.schema.field(name).type
        arrays[name] = state[name].cast(kind) if name in state.column_names else pa.nulls(state.num_rows, kind)
    return pa.table(arrays)


def _empty(columns: Columns, schema: pa.Schema) -> pa.Table:
    fields = [schema.field(name) if name in schema.names else pa.field(name, pa.int64()) for name in columns.names]
    return pa.schema(fields).empty_table()
