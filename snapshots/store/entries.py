"""The entries of a manifest, one for each epoch.

A question about a long history needs few of its epochs. So the rows stay in columns, each is made an entry when it is
looked at, and what concerns all of them is computed from the columns.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamstate.snapshots.store.layout import CAPTURED, GAP, MANIFEST

_Integers = np.ndarray[Any, np.dtype[np.int64]]
_Flags = np.ndarray[Any, np.dtype[np.bool_]]

# Entries are made so many at a time.
_BLOCK = 64
_SHARED = ("status", "run_id", "time_source", "mode")


# A long history holds many of these and of the next: slots, and one copy of each name, keep them small.
@dataclass(frozen=True, slots=True)
class TableEntry:
    """The manifest's facts of one state table at one epoch."""

    rows: int | None
    """Live rows at the epoch; None if capture has not counted them, because it only read what changed."""
    changes: int
    """Rows that the epoch itself added to the change log, without keyframe rows."""
    keyframe: int | None
    """The keyframe from which reading the epoch starts; None: it starts from the log's beginning."""
    generation: int | None = field(default=None, compare=False)
    """The number of runs of retention before the manifest was read; a log that has been through more may
    lack the keyframe. None if this is not in a manifest yet."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the manifest."""

    epoch: int
    status: str
    run_id: str | None = None
    committed_at: datetime | None = None
    captured_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    offsets: str | None = None
    watermark: datetime | None = None
    input_rows: int | None = None
    tables: dict[str, TableEntry] = field(default_factory=dict)
    sources: str | None = None
    """The facts of each source beside its offset, as JSON (see ``sources``). None if Spark had purged
    it."""
    began_at: datetime | None = None
    """The time at which Spark planned the epoch's batch: its processing time; None as for ``sources``."""
    time_source: str | None = None
    """The source of ``committed_at``: ``commit`` or ``offsets`` (see ``commit_times``); None if there is no time."""
    mode: str | None = None
    """``real-time`` if the epoch's files show that mode of Spark's; otherwise None."""
    next_watermark: datetime | None = None
    """The watermark that the next epoch begins with; 1970-01-01: there is none; None: unknown, as for ``sources``."""
    load: str | None = None
    """The epoch's load as JSON (see ``epoch_load``); None if Spark's progress was not at hand."""
    generation: int = field(default=0, compare=False)
    """The number of runs of retention that the manifest had been through when it was read."""

    @property
    def captured(self) -> bool:
        """True if the store has the epoch's state."""
        return self.status == CAPTURED

    @property
    def rows(self) -> int | None:
        """Live rows of all state tables; None if those of a table have not been counted."""
        counts = [table.rows for table in self.tables.values()]
        return sum(known) if len(known := [rows for rows in counts if rows is not None]) == len(counts) else None

    def counted(self, counts: Mapping[str, Mapping[int, int]]) -> Entry:
        """Return the entry, with rows that have been counted since, given by table and epoch."""
        found = {
            name: replace(table, rows=counts[name][self.epoch])
            for name, table in self.tables.items()
            if table.rows is None and self.epoch in counts.get(name, {})
        }
        return replace(self, tables=self.tables | found) if found else self

    @classmethod
    def gap(cls, epoch: int) -> Entry:
        """Return the row of an epoch that Spark purged before it was captured."""
        return cls(epoch, GAP)


class TableCounts:
    """The row counts of one state table in a manifest's entries, ascending by epoch."""

    def __init__(self, entries: Sequence[Entry], table: str) -> None:
        self._entries = entries
        self._table = table

    def changes_since(self, keyframe: int | None) -> int:
        """Count the rows that the epochs after a keyframe (None: after the last gap) added to the log."""
        return sum(facts.changes for facts in self._since(0 if keyframe is None else keyframe + 1))

    def counted_since(self, keyframe: int | None) -> int | None:
        """Return the live rows counted last, at a keyframe (None: after the last gap) or later; None if never."""
        return next((facts.rows for facts in self._since(keyframe or 0) if facts.rows is not None), None)

    def _since(self, first: int) -> Iterator[TableEntry]:
        """Return the manifest's facts of the epochs from one on, unless there is a gap, newest first."""
        later = itertools.takewhile(lambda entry: entry.captured and entry.epoch >= first, reversed(self._entries))
        return (entry.tables[self._table] for entry in later if self._table in entry.tables)

    def most(self) -> int:
        """Return the most rows that can live at the newest epoch: those counted last, and one for each change since."""
        changes = 0
        for entry in reversed(self._entries):
            known = entry.tables.get(self._table)
            if known is None or known.rows is not None:
                return changes + (known.rows or 0 if known else 0)
            changes += known.changes
        return changes


class Entries(Sequence[Entry]):
    """A manifest's rows, ascending by epoch.

    Args:
        rows: the rows, with the manifest's columns, in any order.
        generation: how many runs of retention the manifest had been through when they were read.
    """

    def __init__(self, rows: pa.Table, generation: int = 0) -> None:
        self.generation = generation
        self._rows = _ascending(_whole(rows))
        self._made: dict[int, list[Entry]] = {}
        self._columns: dict[str, list[Any]] = {}
        self._facts: dict[str, TableFacts] = {}
        self._last: Entry | None = None

    @cached_property
    def epochs(self) -> _Integers:
        """The epochs."""
        found: _Integers = self._rows["epoch"].to_numpy()
        return found

    @cached_property
    def is_captured(self) -> _Flags:
        """For each epoch whether the store has its state."""
        found: _Flags = pc.equal(self._rows["status"], CAPTURED).to_numpy()
        return found

    @cached_property
    def captured(self) -> list[int]:
        """The captured epochs."""
        found: list[int] = self.epochs[self.is_captured].tolist()
        return found

    @cached_property
    def commit_times(self) -> dict[int, datetime | None]:
        """The time of each captured epoch's commit, by epoch."""
        times = zip(self.epochs.tolist(), self.is_captured.tolist(), self.values("committed_at"), strict=True)
        return {epoch: time for epoch, captured, time in times if captured}

    @cached_property
    def tables(self) -> list[str]:
        """The names of all state tables that any epoch has, in the order in which they appeared."""
        names: list[str] = _maps(self._rows, "rows")[1].unique().to_pylist()
        return names

    @property
    def newest(self) -> Entry | None:
        """The newest captured epoch's entry."""
        return next((entry for entry in reversed(self) if entry.captured), None)

    def __len__(self) -> int:
        """Return the number of epochs."""
        count: int = self._rows.num_rows
        return count

    @overload
    def __getitem__(self, at: int) -> Entry: ...
    @overload
    def __getitem__(self, at: slice) -> list[Entry]: ...
    def __getitem__(self, at: int | slice) -> Entry | list[Entry]:
        """Return the entry at a place, or those of a slice."""
        if isinstance(at, slice):
            return [self[place] for place in range(*at.indices(len(self)))]
        place = range(len(self))[at]
        if place < len(self) - 1 or place // _BLOCK in self._made:
            return self._block(place // _BLOCK)[place % _BLOCK]
        if self._last is None:  # a capture needs no other
            self._last = _entries(self._rows.slice(place), self.generation)[0]
        return self._last

    def __iter__(self) -> Iterator[Entry]:
        """Return all entries."""
        for block in range(-(-len(self) // _BLOCK)):
            yield from self._block(block)

    def __eq__(self, other: object) -> bool:
        """Return whether the entries are equal; those of a list, too."""
        return list(self) == list(other) if isinstance(other, (Entries, list)) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def of(self, epoch: int) -> Entry | None:
        """Return an epoch's entry; None if there is none."""
        at = self.place(epoch)
        return None if at is None else self[at]

    def has_captured(self, epoch: int) -> bool:
        """Return whether the store has an epoch's state."""
        at = self.place(epoch)
        return at is not None and bool(self.is_captured[at])

    def place(self, epoch: int) -> int | None:
        """Return the place of an epoch's entry; None if there is none."""
        return _place(self.epochs, epoch)

    def newest_of(self, most: int) -> Entries:
        """Return the entries of the newest epochs, without those before."""
        if len(self) <= most:
            return self
        return Entries(self._rows.slice(len(self) - most).combine_chunks(), self.generation)

    def column(self, name: str) -> pa.ChunkedArray:
        """Return a column of the manifest."""
        return self._rows[name]

    def values(self, column: str) -> list[Any]:
        """Return a column of the manifest as Python values."""
        if column not in self._columns:
            self._columns[column] = _values(self._rows[column])
        return self._columns[column]

    def facts(self, table: str) -> TableFacts:
        """Return the facts of one state table."""
        if table not in self._facts:
            rows, changes, keyframes = (_of_table(self._rows, name, table) for name in ("rows", "changes", "keyframes"))
            self._facts[table] = TableFacts(
                table, self.epochs, self.is_captured, changes[0], rows[1], np.maximum(changes[1], 0), keyframes[1]
            )
        return self._facts[table]

    def followed_by(self, later: Entries) -> Entries:
        """These entries, and those of later epochs."""
        found = Entries(pa.concat_tables([self._rows, later._rows], promote_options="default"), self.generation)
        full = len(self) // _BLOCK
        found._made = {block: made for block, made in list(self._made.items()) if block < full}
        found._facts = {table: facts.followed_by(later.facts(table)) for table, facts in self._facts.items()}
        return found

    def unmade(self) -> Entries:
        """The same entries in less memory."""
        self._made.clear()
        self._last = None
        return self

    def _block(self, block: int) -> list[Entry]:
        found = self._made.get(block)
        if found is None:
            found = self._made[block] = _entries(self._rows.slice(block * _BLOCK, _BLOCK), self.generation)
        return found


@dataclass(frozen=True)
class TableFacts:
    """The manifest's facts of one state table, in columns: a value for each epoch."""

    table: str
    epochs: _Integers
    is_captured: _Flags
    is_there: _Flags
    """True if the table existed."""
    rows: _Integers
    """Live rows; −1 if they have not been counted."""
    changes: _Integers
    """Rows that the epoch itself added to the change log."""
    keyframes: _Integers
    """The keyframe from which reading the epoch starts; −1 for the log's beginning."""

    def followed_by(self, later: TableFacts) -> TableFacts:
        """These facts, and those of later epochs."""
        columns = [name for name in self.__dataclass_fields__ if name != "table"]
        joined = [np.concatenate([getattr(self, name), getattr(later, name)]) for name in columns]
        return TableFacts(self.table, *joined)

    def between(self, after: int, upto: int) -> slice:
        """Return the places of the epochs after one, up to another."""
        first, last = np.searchsorted(self.epochs, [after, upto], side="right")
        return slice(int(first), int(last))

    def changes_between(self, after: int, upto: int) -> int:
        """Return the rows that the epochs after one, up to another, added to the change log."""
        return int(self.changes[self.between(after, upto)].sum())

    def keyframe_of(self, epoch: int) -> int | None:
        """Return the keyframe from which reading an epoch starts; None for the log's beginning, or without a table."""
        return self._of(epoch, self.keyframes)

    def rows_at(self, epoch: int) -> int | None:
        """Return the number of rows that live at an epoch; None if the manifest does not have it."""
        return self._of(epoch, self.rows)

    def has(self, epoch: int) -> bool:
        """Return whether the table existed at an epoch of the manifest."""
        at = _place(self.epochs, epoch)
        return at is not None and bool(self.is_there[at])

    def _of(self, epoch: int, column: _Integers) -> int | None:
        at = _place(self.epochs, epoch)
        return None if at is None or column[at] < 0 else int(column[at])


def _place(epochs: _Integers, epoch: int) -> int | None:
    """Return the place of a value in ascending ones; None if it is not one of them."""
    at = int(np.searchsorted(epochs, epoch))
    return at if at < len(epochs) and epochs[at] == epoch else None


def _maps(rows: pa.Table, column: str) -> tuple[_Integers, pa.Array, pa.Array]:
    """Return the items of a column of maps: for each the number of its row, its key and its value."""
    found = rows[column].combine_chunks()
    offsets = found.offsets.to_numpy()
    start, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    rows_of = np.repeat(np.arange(len(found)), np.diff(offsets))
    return rows_of, found.keys.slice(start, count), found.items.slice(start, count)


def _of_table(rows: pa.Table, column: str, table: str) -> tuple[_Flags, _Integers]:
    """For each row of the manifest whether a map has a table, and its value; −1 if there is none."""
    rows_of, names, values = _maps(rows, column)
    there, found = np.zeros(rows.num_rows, np.bool_), np.full(rows.num_rows, -1, np.int64)
    is_table = pc.equal(names, table).to_numpy(zero_copy_only=False)
    there[rows_of[is_table]] = True
    found[rows_of[is_table]] = pc.fill_null(values, -1).to_numpy(zero_copy_only=False)[is_table]
    return there, found


def _whole(rows: pa.Table) -> pa.Table:
    """Return the rows with the columns that a manifest of an older version lacks, which are null."""
    for column in MANIFEST:
        if column.name not in rows.column_names:
            rows = rows.append_column(column, pa.nulls(rows.num_rows, column.type))
    return rows


def _ascending(rows: pa.Table) -> pa.Table:
    """Return the rows in the order of their epochs, in few pieces."""
    epochs = rows["epoch"].to_numpy()
    if len(epochs) and (np.diff(epochs) < 0).any():
        rows = rows.take(np.argsort(epochs, kind="stable"))
    return rows.combine_chunks() if rows["epoch"].num_chunks > _BLOCK else rows


def _entries(rows: pa.Table, generation: int) -> list[Entry]:
    """Return rows of the manifest as entries, column by column."""
    columns = {name: _values(rows[name], shared=name in _SHARED) for name in rows.column_names}
    tables = [
        _tables(counts or (), dict(changes or ()), dict(keyframes or ()), generation)
        for counts, changes, keyframes in zip(*(columns[name] for name in MANIFEST.names[8:11]), strict=True)
    ]
    others = {name: columns[name] for name in MANIFEST.names[11:]}
    names = [*MANIFEST.names[:8], "tables", *others]
    facts = zip(*(columns[name] for name in MANIFEST.names[:8]), tables, *others.values(), strict=True)
    return [Entry(**dict(zip(names, values, strict=True)), generation=generation) for values in facts]


def _values(column: pa.ChunkedArray, *, shared: bool = False) -> list[Any]:
    """Return the values of a column, with one copy of each text if it is shared; Arrow takes long to make times."""
    if pa.types.is_timestamp(column.type):
        times = column.cast(pa.timestamp("us")).to_numpy().tolist()
        return [None if time is None else time.replace(tzinfo=UTC) for time in times]
    if shared:
        return [None if text is None else sys.intern(text) for text in column.to_pylist()]
    found: list[Any] = column.to_pylist()
    return found


def _tables(
    counts: Iterable[tuple[str, int | None]],
    changes: Mapping[str, int],
    keyframes: Mapping[str, int | None],
    generation: int,
) -> dict[str, TableEntry]:
    return {sys.intern(name): TableEntry(rows, changes[name], keyframes[name], generation) for name, rows in counts}


def as_rows(entries: Sequence[Entry]) -> pa.Table:
    """Return entries as rows of the manifest."""
    return pa.Table.from_pylist([_row(entry) for entry in entries], schema=MANIFEST)


def _row(entry: Entry) -> dict[str, Any]:
    row = {name: getattr(entry, name) for name in MANIFEST.names[:8]}
    return row | {
        "rows": [(name, table.rows) for name, table in entry.tables.items()],
        "changes": [(name, table.changes) for name, table in entry.tables.items()],
        "keyframes": [(name, table.keyframe) for name, table in entry.tables.items()],
        **{name: getattr(entry, name) for name in MANIFEST.names[11:]},
    }
