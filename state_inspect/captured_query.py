"""A query as a store holds it: its manifest, its place in the lineage and the index of its state tables.

:class:`History` is what users see. The functions behind its methods take the :class:`CapturedQuery` that it holds.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import pyarrow as pa

from streamstate.errors import OvertakenError, StoreError, UnknownEpochError
from streamstate.snapshots.store.changelog import ChangeLog, check_generation
from streamstate.snapshots.store.consistent_read import read_once
from streamstate.snapshots.store.delta.commits import required
from streamstate.snapshots.store.delta.reading import TableVersion
from streamstate.snapshots.store.duckdb_sql import database_errors
from streamstate.snapshots.store.entries import Entries, Entry
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.manifest import Manifest
from streamstate.snapshots.store.query_plans.plan_table import Plans
from streamstate.snapshots.store.registry import Lineage
from streamstate.state_inspect.causes.causes import Causes
from streamstate.state_inspect.temporal_index.index import Index, row_counts
from streamstate.state_inspect.temporal_index.interval_table import IntervalTable
from streamstate.state_inspect.temporal_index.loading import loading_part

# Changes that are read in about as much time as it takes to look into their files for some keys.
_SOON_READ = 500_000
# Values of one part of a history that is read in parts, those of the index's own columns not included.
_IN_A_PART = 3_000_000
# Versions whose states are compared in less time than it takes to read the changes between them.
_SOON_COMPARED = 2_000_000


class QueryHistory(Protocol):
    """The part of a :class:`History` that snapshots, state tables and differences refer back to."""

    @property
    def name(self) -> str:
        """The query's name."""

    @property
    def recorded(self) -> CapturedQuery:
        """The query as the store holds it."""


@dataclass(frozen=True)
class HistoryPart:
    """Consecutive epochs of a state table, as a part of its history."""

    table: IntervalTable
    first: int
    """Its first epoch, which is also the last one of the part before; −1 in the first part."""
    last: int
    """Its last epoch."""

    def has(self, _table: str) -> IntervalTable:
        """Its table, for what asks for one by name."""
        return self.table


class CapturedQuery:
    """The epochs of one query and the temporal index of its state tables.

    ``related`` returns the history of another query of the store.
    """

    # Kept until the manifest has new epochs.
    _explained: tuple[Entries, Causes] | None = None
    _described: tuple[Entries, dict[str, ChangeLog]] | None = None

    def __init__(
        self, layout: Layout, name: str, index: Index, lineage: Lineage, related: Callable[[str], QueryHistory]
    ) -> None:
        self.layout = layout
        self.name = name
        self.index = index
        self.lineage = lineage
        self.related = related
        self._manifest = Manifest(layout, name)
        self.plans = Plans(layout, name, self._manifest)

    def entries(self) -> Entries:
        """Return the manifest's rows, with those of new epochs."""
        return read_once(self._manifest, self._newest_entries)

    @property
    def known_entries(self) -> Entries:
        """The manifest's rows as of the last read; loading an interval table may have read them again."""
        return self._manifest.entries

    def captured(self) -> list[int]:
        """Numbers of the captured epochs, ascending."""
        return list(self.entries().captured)

    def tables(self) -> list[str]:
        """Return names of all state tables that any epoch has."""
        return list(self.entries().tables)

    def begins_by(self, epoch: int) -> bool:
        """Return whether the query has an epoch of its own by then; a fork shares earlier epochs with its parent."""
        captured = self.entries().captured
        return bool(captured) and captured[0] <= epoch

    def live_entry(self) -> Entry:
        """Return the newest captured epoch; raise if none is captured yet."""
        newest = self.entries().newest
        if newest is None:
            raise UnknownEpochError(
                f"No epoch of {self.name} is captured yet.\nWait for the first epoch, or capture one."
            )
        return newest

    def entry(self, epoch: int) -> Entry:
        """Return a captured epoch of the query's own; if it is not captured, the error names the nearest ones."""
        return self._captured_entry(self.entries(), epoch)

    def check_kept(self, epoch: int) -> None:
        """Raise if retention has dropped an epoch since it was looked up."""
        self._captured_entry(self._manifest.entries, epoch)

    def entry_at_time(self, moment: datetime) -> Entry:
        """Return the newest epoch committed by a moment; raise if a missing epoch may have been newer."""
        entries = self.entries()
        known = [(epoch, time) for epoch, time in entries.commit_times.items() if time]
        before = [epoch for epoch, time in known if time <= moment]
        if not before:
            first = f"\nIts first captured epoch, {known[0][0]}, was committed at {known[0][1]}." if known else ""
            raise UnknownEpochError(f"No epoch of {self.name} was captured at {moment.isoformat()}.{first}")
        at: int = entries.epochs.tolist().index(before[-1])
        found, after = entries[at], entries[at + 1] if at + 1 < len(entries) else None
        if after is not None and not (after.captured and after.epoch == found.epoch + 1):
            why = "retention dropped the epochs after" if after.epoch > found.epoch + 1 else "there is a gap after"
            raise UnknownEpochError(
                f"Cannot tell which epoch of {self.name} was current at {moment.isoformat()}: {why} epoch"
                f" {found.epoch}.\n{_nearest(found.epoch + 1, [epoch for epoch, _ in known])}"
            )
        return found

    def interval_table(self, table: str, first: int, last: int | None = None) -> IntervalTable:
        """Return the index of a state table, with all captured epochs from ``first`` (−1: all) up to ``last``."""
        return self.index.table(self.name, table, self._manifest, first, last)

    def interval_tables(self, table: str, a: int, b: int) -> tuple[IntervalTable, IntervalTable]:
        """Return the temporal index of a state table at two epochs.

        It is the same one for both, with the epochs between them, unless it takes less to read each by itself, or only
        the one that is not loaded.
        """
        first, last = min(a, b), max(a, b)
        held = self.index.loaded(self.name, table)
        together = any(one.covers(first, last) for one in held)
        if not together:
            small = [one for one in held if one.versions <= _SOON_COMPARED]
            one_is_loaded = any(one.covers(epoch, epoch) for epoch in (a, b) for one in small)
            together = not one_is_loaded and self._changes(table, first, last) <= self._rows_to_read(table, last)
        if together:
            found = self.interval_table(table, first, last)
            return found, found
        at_a, at_b = (self.interval_table(table, epoch, epoch) for epoch in (a, b))
        if at_a.schema == at_b.schema:
            return at_a, at_b
        found = self.interval_table(table, first, last)  # a column was added after one of them was loaded
        return found, found

    def parts(self, table: str, after: int = -1) -> Iterator[HistoryPart]:
        """Yield the history of a state table after an epoch (−1: all), in its order, in parts that fit into memory.

        A history that is loaded, or soon read, is one part.
        """
        epochs = self._manifest.entries.captured
        if not epochs or self.is_soon_read(table, after):
            whole = self.interval_table(table, after)
            yield HistoryPart(whole, after, whole.high)
            return
        expected, read, first, last = self._changes(table, after, epochs[-1]), 0, after, after
        for upto in self._ends_of_parts(table, epochs, after):
            if upto <= last:
                continue
            with loading_part(read, expected):
                # With the epoch before, at which the versions of the part before end.
                since = max(first, epochs[0])
                held = self.index.table(self.name, table, self._manifest, since, upto, keep=False)
            last = min(held.high, epochs[-1])
            yield HistoryPart(held, first, last)
            read += self._changes(table, first, last)
            first = last

    def _ends_of_parts(self, table: str, epochs: Sequence[int], after: int) -> list[int]:
        """Return the epochs after each of which a part has enough changes, and the newest epoch."""
        facts, ends, changes = self._manifest.entries.facts(table), [], 0
        most = _IN_A_PART // len(self.columns(table).columns)
        places = slice(facts.between(after, epochs[-1]).start, None)
        columns = (column[places].tolist() for column in (facts.epochs, facts.is_captured, facts.changes))
        for epoch, captured, added in zip(*columns, strict=True):
            changes += added
            if captured and changes >= most:
                ends.append(epoch)
                changes = 0
        return [*ends, epochs[-1]]

    def versions_of(self, table: str, keys: pa.Table | None, first: int, last: int | None = None) -> IntervalTable:
        """Return the temporal index of at least some keys of a state table, from ``first`` (−1: all epochs) on.

        It is the one with all keys if that is loaded, or soon read.

        ``keys`` has values of key columns with their types, a row per key; None for all keys.
        """
        if keys is None or self.is_soon_read(table, first, last):
            return self.interval_table(table, first, last)
        return self.index.table(self.name, table, self._manifest, first, last, only=keys)

    def is_soon_read(self, table: str, first: int, last: int | None = None) -> bool:
        """Return whether :meth:`interval_table` has these epochs loaded, or has few changes to load."""
        newest = self._manifest.newest
        held = self.index.loaded(self.name, table)
        if newest is None or any(one.covers(first, one.high if last is None else last) for one in held):
            return True
        return self._changes(table, first, newest.epoch if last is None else last) <= _SOON_READ

    def beside(self, table: str, epoch: int) -> list[int]:
        """Return the captured epochs on both sides of those loaded with an epoch, the later one first."""
        captured, loaded = self.captured(), self.index.loaded(self.name, table)
        held = [one for one in loaded if one.covers(epoch, epoch)]
        low = max((one.low for one in held if one.low is not None), default=epoch)
        high = max((one.high for one in held), default=epoch)
        after, before = bisect_right(captured, high), bisect_left(captured, low)
        found = [*captured[after : after + 1], *captured[max(0, before - 1) : before]]
        return [number for number in found if not any(one.covers(number, number) for one in loaded)]

    def _changes(self, table: str, after: int, upto: int) -> int:
        """Return the changes of a state table after an epoch, up to another."""
        return self._manifest.entries.facts(table).changes_between(after, upto)

    def _rows_to_read(self, table: str, epoch: int) -> int:
        """Estimate the rows of the changelog from which the state of a table at an epoch is read."""
        facts = self._manifest.entries.facts(table)
        keyframe = facts.keyframe_of(epoch)
        if keyframe is None:
            return facts.changes_between(-1, epoch)
        return (facts.rows_at(keyframe) or 0) + facts.changes_between(keyframe, epoch)

    def interval_table_of(self, table: str, entry: Entry) -> IntervalTable:
        """Return the index of a state table at an entry's epoch, even if retention has dropped it since.

        Raises:
            EpochDroppedError: retention dropped the epoch, and the grace period of its files is over.
        """
        if self._stays(entry):
            found = self.interval_table(table, entry.epoch, entry.epoch)
            if self._stays(entry):
                return found
        return self.index.dropped(self.name, table, entry)

    def with_counts(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return the entries, with row counts from the loaded index where capture did not count."""
        missing: dict[str, list[int]] = {}
        for entry in entries:
            for name, facts in entry.tables.items():
                if facts.rows is None:
                    missing.setdefault(name, []).append(entry.epoch)
        counts = {name: self._counts_held(name, epochs) for name, epochs in missing.items()}
        return [entry.counted(counts) for entry in entries]

    def counted_soon(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return the entries with their rows; for tables that take long to read, as :meth:`with_counts`.

        So are those that cannot be read, so that epochs can still be listed.
        """
        known, counts = self.with_counts(entries), dict[str, dict[int, int]]()
        for table in dict.fromkeys(
            name for entry in known for name, facts in entry.tables.items() if facts.rows is None
        ):
            missing = [entry for entry in known if entry.captured and table in entry.tables]
            first, last = missing[0].epoch, missing[-1].epoch
            if self._rows_to_read(table, first) + self._changes(table, first, last) <= _SOON_READ:
                with contextlib.suppress(StoreError, OSError, *database_errors()):
                    counts[table] = self.counted_rows(missing, table)
        return [entry.counted(counts) for entry in known]

    def count_soon(self, *, only_newest: bool = False) -> list[Entry]:
        """Return all entries, or the newest captured one, with their rows; as :meth:`counted_soon`."""
        entries = self.entries()
        if not only_newest:
            return self.counted_soon(entries)
        return [] if entries.newest is None else self.counted_soon([entries.newest])

    def newest_rows(self) -> dict[str, int | None]:
        """By state table, the rows at the newest captured epoch; None for one of which much would have to be read."""
        entries = self.count_soon(only_newest=True)
        return {name: facts.rows for entry in entries for name, facts in entry.tables.items()}

    def holds_rows(self, table: str) -> bool:
        """Return whether the index has counted or loaded rows of a state table."""
        return bool(self.index.counts(self.name, table) or self.index.loaded(self.name, table))

    def _counts_held(self, table: str, epochs: Sequence[int]) -> dict[int, int]:
        """Return the rows of a table at those of some epochs that are in the index."""
        counted = self.index.counts(self.name, table)
        counts = {epoch: counted[epoch] for epoch in epochs if epoch in counted}
        for held in self.index.loaded(self.name, table):
            # Also while earlier or later epochs are being loaded: that changes nothing at these.
            missing = [epoch for epoch in epochs if epoch not in counts and held.covers(epoch, epoch)]
            counts |= row_counts(self.index, held, missing)
        return counts

    def counted_rows(self, entries: Sequence[Entry], table: str) -> dict[int, int]:
        """By epoch, the rows of a table, from the manifest or from the index, which is loaded if it has to be."""
        known = {entry.epoch: entry.tables[table].rows for entry in entries if table in entry.tables}
        counts = {epoch: rows for epoch, rows in known.items() if rows is not None}
        counts |= self._counts_held(table, [epoch for epoch in known if epoch not in counts])
        while missing := [epoch for epoch in known if epoch not in counts]:
            soon = self._changes(table, missing[0], missing[-1]) <= _SOON_READ
            held = self.interval_table(table, missing[0], missing[-1] if soon else missing[0])
            counts |= row_counts(self.index, held, [epoch for epoch in missing if held.covers(epoch, epoch)])
        return {epoch: counts[epoch] for epoch in known}

    def causes(self) -> Causes:
        """Finds the causes of changes, for the epochs read so far."""
        entries = self._manifest.entries
        if self._explained is None or self._explained[0] is not entries:
            self._explained = entries, Causes(self.index, entries, self.columns, self.versions_of)
        return self._explained[1]

    def columns(self, table: str) -> ChangeLog:
        """Return a state table's columns; nothing is opened for them again before there are new epochs."""
        entries = self._manifest.entries
        if self._described is None or self._described[0] is not entries:
            self._described = entries, {}
        known = self._described[1]
        if table not in known:
            known[table] = self.changelog(table)
        return known[table]

    def advance(self) -> None:
        """Load new epochs into the index of the tables that were read before."""
        self.entries()
        self.index.advance(self.name, self._manifest)

    def changelog(self, table: str) -> ChangeLog:
        """Return the current version of a state table's changelog."""
        place = self.layout.changelog(self.name, table)
        while True:
            generation = self._manifest.generation
            version = TableVersion(place, required(place))
            try:
                check_generation(version, generation)
                return ChangeLog(table, version, self._manifest.entries)
            except OvertakenError:
                # Retention has rewritten the changelog since the manifest was read.
                self._manifest.refresh()
                if self._manifest.generation == generation:
                    raise

    def _newest_entries(self) -> Entries:
        self._manifest.refresh()
        return self._manifest.entries

    def _stays(self, entry: Entry) -> bool:
        """Return whether retention is known to have kept an entry's epoch."""
        entries = self._manifest.entries
        return entry.generation == self._manifest.generation or entries.of(entry.epoch) is not None

    def _captured_entry(self, entries: Entries, epoch: int) -> Entry:
        found = entries.of(epoch)
        if found is not None and found.captured:
            return found
        why = "is not captured" if found is None else "was gone from Spark's checkpoint before it could be captured"
        if found is None and entries and 0 <= epoch < entries[-1].epoch:
            why = "was dropped by retention"
        raise UnknownEpochError(f"Epoch {epoch} of {self.name} {why}.\n{_nearest(epoch, entries.captured)}")


def _nearest(epoch: int, captured: list[int]) -> str:
    below = [number for number in captured if number < epoch][-1:]
    above = [number for number in captured if number > epoch][:1]
    if not below + above:
        return "No epoch is captured yet."
    span = f"{captured[0]} to {captured[-1]}" if len(captured) > 1 else str(captured[0])
    return f"The nearest captured: {' and '.join(map(str, below + above))} (of {span})."
