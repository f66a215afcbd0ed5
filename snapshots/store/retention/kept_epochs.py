"""The epochs that retention keeps, and their manifest entries afterwards."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from streamstate.snapshots.store.entries import Entry

# As for a capture's keyframes: with fewer rows a keyframe saves readers no time.
_SMALLEST_KEYFRAME = 50_000


@dataclass(frozen=True)
class Policy:
    """Rules of retention. An epoch is dropped only if no rule keeps it; the newest captured one is always kept."""

    last: int | None = None
    """Keep this many of the newest captured epochs."""
    since: datetime | None = None
    """Keep epochs committed at this time or later."""
    one_in: int | None = None
    """Of the others, keep the first captured in each interval of this many epochs (for 10: 0, 10, 20, …)."""

    def kept(self, entries: Sequence[Entry]) -> set[int]:
        """Return the epochs to keep."""
        captured = [entry for entry in entries if entry.captured]
        kept = {entry.epoch for entry in captured[-(self.last or 1) :]}
        if self.since is not None:
            kept |= {entry.epoch for entry in captured if (entry.committed_at or entry.captured_at) >= self.since}
        if self.one_in is not None:
            # The first of each interval, not every n-th of the existing ones: so a second run drops nothing more.
            first: dict[int, int] = {}
            for entry in captured:
                first.setdefault(entry.epoch // self.one_in, entry.epoch)
            kept |= set(first.values())
        return kept


@dataclass(frozen=True)
class Stays:
    """The part of one state table's log that retention keeps, according to the manifest."""

    epochs: tuple[int, ...]
    """The kept epochs that have the table, ascending."""
    starts: frozenset[int]
    """Those at which the log begins, or begins again after a gap, with a keyframe."""
    keyframes: Mapping[int, int | None]
    """For each of them, the keyframe from which reading starts."""
    newest: int
    """The newest epoch of the manifest; later rows of the log belong to captures that are under way."""

    @classmethod
    def of(cls, entries: Sequence[Entry], table: str) -> Stays:
        """Return the manifest's facts of one table."""
        found = list(placed(entries, table))
        return cls(
            tuple(entry.epoch for entry, _ in found),
            frozenset(entry.epoch for entry, begins in found if begins and entry.tables[table].keyframe == entry.epoch),
            {entry.epoch: entry.tables[table].keyframe for entry, _ in found},
            max((entry.epoch for entry in entries), default=-1),
        )


@dataclass(frozen=True)
class Plan:
    """The plan of one run of retention."""

    generation: int
    """The number of the run, from 1."""
    entries: tuple[Entry, ...]
    """The manifest's rows afterwards: the kept ones, which read from kept keyframes."""
    dropped: tuple[int, ...]
    """The captured epochs to drop, ascending."""
    keyframes: Mapping[str, tuple[int, ...]]
    """By state table, the epochs at which a keyframe has to be written first."""
    tables: tuple[str, ...]
    """All state tables in the manifest before the run."""
    before: tuple[Entry, ...]
    """The manifest's rows before the run."""


def planned(entries: Sequence[Entry], generation: int, policy: Policy) -> Plan:
    """Plan the next run of retention for a manifest that has been through ``generation`` runs."""
    kept = policy.kept(entries)
    first = min(kept, default=0)
    kept_entries = [entry for entry in entries if entry.epoch in kept or (not entry.captured and entry.epoch > first)]
    tables = tuple(dict.fromkeys(table for entry in entries for table in entry.tables))
    fresh: dict[str, tuple[int, ...]] = {}
    for table in tables:
        kept_entries, fresh[table] = _repointed(kept_entries, entries, table)
    dropped = tuple(entry.epoch for entry in entries if entry.captured and entry.epoch not in kept)
    return Plan(generation + 1, tuple(kept_entries), dropped, fresh, tables, tuple(entries))


def placed(entries: Sequence[Entry], table: str) -> Iterator[tuple[Entry, bool]]:
    """Return the captured entries that have a table, and whether each is its first or the first after a gap."""
    begins = True
    for entry in entries:
        if not entry.captured:
            begins = True
        elif table in entry.tables:
            yield entry, begins
            begins = False


def _repointed(kept: Sequence[Entry], before: Sequence[Entry], table: str) -> tuple[list[Entry], tuple[int, ...]]:
    """Return the entries, reading one table from kept keyframes, and which of these keyframes have to be written."""
    present = {entry.epoch for entry in kept if table in entry.tables}
    born = next((entry.epoch for entry in before if table in entry.tables), None)
    changes = _changes_by_kept(before, sorted(present), table)
    most = _most_rows(before, table)
    pointers: dict[int, int | None] = {}
    pointer: int | None = None
    weight = 0
    for entry, begins in placed(kept, table):
        known = entry.tables[table]
        weight += min(changes[entry.epoch], 2 * most[entry.epoch])
        if begins:
            from_nothing = known.keyframe is None and entry.epoch == born
            pointers[entry.epoch] = None if from_nothing else entry.epoch
        elif known.keyframe in present:
            pointers[entry.epoch] = known.keyframe
        else:
            # A dropped keyframe is written again if reading would otherwise take more rows than the state has.
            # As for a capture's keyframes: the rows where reading starts, unless those of the epoch are known.
            there = 0 if pointer is None else most[pointer]
            rows = there if known.rows is None else known.rows
            moves = known.keyframe is not None and weight > max(rows, _SMALLEST_KEYFRAME)
            pointers[entry.epoch] = entry.epoch if moves else pointer
        if pointers[entry.epoch] != pointer:
            pointer, weight = pointers[entry.epoch], 0
    fresh = tuple(
        entry.epoch
        for entry in kept
        if table in entry.tables and pointers[entry.epoch] == entry.epoch != entry.tables[table].keyframe
    )
    return [_with(entry, table, keyframe=pointers.get(entry.epoch)) for entry in kept], fresh


def _most_rows(before: Sequence[Entry], table: str) -> dict[int, int]:
    """By captured epoch, how many rows live, or at most live: those counted last, and one for each change since."""
    found: dict[int, int] = {}
    most = 0
    for entry, begins in placed(before, table):
        known = entry.tables[table]
        most = (0 if begins else most) + known.changes if known.rows is None else known.rows
        found[entry.epoch] = most
    return found


def _changes_by_kept(before: Sequence[Entry], kept: Sequence[int], table: str) -> dict[int, int]:
    """By kept epoch, how many change rows it and the dropped epochs folded into it have."""
    changes = dict.fromkeys(kept, 0)
    for entry in before:
        at = bisect_left(kept, entry.epoch)
        if table in entry.tables and at < len(kept):
            changes[kept[at]] += entry.tables[table].changes
    return changes


def _with(entry: Entry, table: str, **facts: Any) -> Entry:
    """Return the entry with other facts of a table, if it has the table."""
    if table not in entry.tables:
        return entry
    return replace(entry, tables={**entry.tables, table: replace(entry.tables[table], **facts)})


def with_rows(entries: Sequence[Entry], table: str, counts: Mapping[int, int]) -> list[Entry]:
    """Return the entries, with the numbers of live rows that are known of some epochs where the manifest has none."""
    return [
        _with(entry, table, rows=counts[entry.epoch])
        if entry.epoch in counts and table in entry.tables and entry.tables[table].rows is None
        else entry
        for entry in entries
    ]


def with_changes(entries: Sequence[Entry], table: str, counts: Mapping[int, int]) -> list[Entry]:
    """Return the entries, with the number of rows that some of them have in a table's log after folding."""
    return [_with(entry, table, changes=counts[entry.epoch]) if entry.epoch in counts else entry for entry in entries]
