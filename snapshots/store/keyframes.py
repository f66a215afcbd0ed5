"""Keyframes folded from the log: those that capture finds due, and those at which retention lets a log begin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from streamstate.snapshots.checkpoint.state_tables import CHANGE, EPOCH, PARTITION
from streamstate.snapshots.store.changelog import (
    KEYFRAME,
    check_generation,
    folded,
    key_columns,
    rows_since,
    value_columns,
)
from streamstate.snapshots.store.delta import Place, commit_once, open_table
from streamstate.snapshots.store.delta.commits import required, version_of
from streamstate.snapshots.store.delta.data_files import DataFile, write_file
from streamstate.snapshots.store.delta.reading import Committed, TableVersion
from streamstate.snapshots.store.delta.reusable_files import Prepared
from streamstate.snapshots.store.entries import TableCounts, TableEntry, TableFacts
from streamstate.snapshots.store.layout import RETENTION
from streamstate.snapshots.store.manifest import generation_of

# With fewer rows than this a keyframe saves readers no time.
SMALLEST_KEYFRAME = 50_000

# The newest keyframe that a capture wrote beside an epoch's commit, and its rows.
_MARKED_EPOCH, _MARKED_ROWS = "streamstate/keyframe", "streamstate/keyframe/rows"


@dataclass
class KeyframeRule:
    """The rule for a log's next keyframe: due once the changes since the last one outnumber the rows counted then.

    So a keyframe has at most twice as many rows as the changes that pay for it, and nobody has to count the state. It
    depends on the epochs alone, not on how many of them a pass captures.
    """

    newest: int | None = None
    """The newest keyframe; None if the log is read from its beginning."""
    rows: int = 0
    """The rows that were counted last, at that keyframe or later."""
    changes: int = 0
    """The changes since that keyframe."""

    @classmethod
    def after(cls, newest: int | None, counts: TableCounts, marked: int | None) -> KeyframeRule:
        """Return the rule at a manifest's end; ``marked`` is the newest keyframe's number of rows, if that is known."""
        counted = counts.counted_since(newest)
        return cls(newest, (marked if counted is None else counted) or 0, counts.changes_since(newest))

    @property
    def due(self) -> bool:
        """True if the newest epoch gets a keyframe."""
        return self.changes > max(self.rows, SMALLEST_KEYFRAME)

    @property
    def most_rows(self) -> int:
        """The most rows that can live at the newest epoch."""
        return self.rows + self.changes

    def begin(self, keyframe: int, rows: int) -> None:
        """Start again at a keyframe with so many rows."""
        self.newest, self.rows, self.changes = keyframe, rows, 0

    def follow(self, entry: TableEntry) -> bool:
        """Count an epoch, and return whether it gets a keyframe."""
        self.changes += entry.changes
        self.rows = self.rows if entry.rows is None else entry.rows
        return self.due

    def epochs_until_due(self, changes: int) -> int:
        """Return the number of epochs, of so many changes each, until one gets a keyframe; at least one."""
        missing = max(self.rows, SMALLEST_KEYFRAME) + 1 - self.changes
        return max(-(-missing // max(changes, 1)), 1)


@dataclass(frozen=True)
class Keyframe:
    """A keyframe that retention writes: all live keys of a state table at a captured epoch."""

    place: Place
    """The log."""
    epoch: int
    facts: TableEntry
    """The manifest's facts of the table at the epoch."""

    def write(self, application: str) -> None:
        """Write it, unless another run has, or a capture, which does so under this transaction identifier."""
        if open_table(self.place) is None:
            return
        prepared = Prepared(self.place, EPOCH, self._files, self._fits)
        for mark, version in self._marks(application):
            if commit_once(self.place, mark, version, prepared.write, keeps_files=True) < version:
                return

    def _marks(self, application: str) -> Iterator[tuple[str, int]]:
        """Transaction identifiers and versions to try to commit it under."""
        # A capture may be writing a keyframe at the newest epoch: with the same identifier only one of the two does.
        if version_of(required(self.place), application) < self.epoch:
            yield application, self.epoch
        while True:
            yield f"{RETENTION}/keyframes", required(self.place).version() + 1

    def _fits(self, version: TableVersion, came: Sequence[Committed], _left: set[str]) -> bool:
        if generation_of(version.table) > (self.facts.generation or 0):
            return False  # writing it again raises the error
        return not any(file.may_hold(self.epoch, self.epoch) for file in came)

    def _files(self, version: TableVersion) -> list[DataFile]:
        check_generation(version, self.facts.generation)
        existing = rows_since(version, self.epoch, self.epoch, [CHANGE])
        if any(batch.num_rows for batch in existing):
            return []  # a killed run or a capture wrote it
        return keyframe_file(version, self.epoch, self.facts.keyframe)


def keyframe_file(version: TableVersion, epoch: int, since: int | None) -> list[DataFile]:
    """Write all live keys at a captured epoch, folded from the log, as a file of it; no file if no key lives.

    Reading the epoch starts from the keyframe ``since``; None: from the log's beginning.
    """
    schema = version.schema
    names = [PARTITION, *key_columns(schema), *value_columns(schema)]
    with folded(version, key_columns(schema), epoch, since, names) as rows:
        return write_file(version.place, schema, (_marked(batch, epoch, names) for batch in rows))


def marks_of(epoch: int, rows: int) -> dict[str, int]:
    """Return the marks of a keyframe's commit (see ``marks`` of :func:`commit_once`): its epoch and number of rows."""
    return {_MARKED_EPOCH: epoch, _MARKED_ROWS: rows}


def marked_rows(table: DeltaTable, epoch: int | None) -> int | None:
    """Return the number of rows of the keyframe at an epoch; None if a later keyframe's mark has replaced its own."""
    known = epoch is not None and version_of(table, _MARKED_EPOCH) == epoch
    return version_of(table, _MARKED_ROWS) if known else None


def keyframes_in(version: TableVersion, facts: TableFacts) -> list[int]:
    """Return the epochs of a manifest with a complete keyframe in files of its own, ascending.

    The manifest names a keyframe from the next epoch on; a reader of the keyframe's own epoch finds it here. Merging
    files may have left a part of it in files of its own, so one whose number of rows is unknown does not count.
    """
    actions = pa.table(version.table.get_add_actions(flatten=True))
    statistics = (f"min.{EPOCH}", f"max.{EPOCH}", f"min.{CHANGE}", f"max.{CHANGE}", "num_records")
    if not set(statistics) <= set(actions.column_names):
        return []
    rows_at: Counter[int] = Counter()
    for first, last, least, most, rows in zip(*(actions[name].to_pylist() for name in statistics), strict=True):
        if first is not None and first == last and least == most == KEYFRAME:
            rows_at[first] += rows or 0

    def expected(epoch: int) -> int | None:
        known = facts.rows_at(epoch)
        return marked_rows(version.table, epoch) if known is None and facts.has(epoch) else known

    return sorted(epoch for epoch, rows in rows_at.items() if expected(epoch) == rows)


def keyframe_rows(version: TableVersion) -> dict[int, int]:
    """By epoch, how many rows each keyframe of a log has; reads two columns of all its rows."""
    counts: Counter[int] = Counter()
    for batch in version.scan(EPOCH, None, None, columns=[EPOCH, CHANGE], where=pc.field(CHANGE) == KEYFRAME):
        for found in batch[EPOCH].value_counts().to_pylist():
            counts[found["values"]] += found["counts"]
    return counts


def _marked(batch: pa.RecordBatch, epoch: int, names: Sequence[str]) -> pa.Table:
    count = batch.num_rows
    fixed = {EPOCH: pa.repeat(pa.scalar(epoch, pa.int64()), count), CHANGE: pa.repeat(KEYFRAME, count)}
    return pa.table(fixed | {name: batch[name] for name in names})
