"""Which epochs retention keeps, and what the manifest says of them afterwards."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from streamstate.snapshots.manifest import Entry, TableFacts

# As for a keyframe of a capture: below this many rows it saves no reader any time.
_SMALLEST_KEYFRAME = 50_000


@dataclass(frozen=True)
class Policy:
    """What is to stay: an epoch goes only where nothing here keeps it. The newest captured one always stays."""

    last: int | None = None
    """So many of the newest captured epochs stay."""
    since: datetime | None = None
    """Epochs committed at this moment or later stay."""
    every: int | None = None
    """Of the others, the first captured of each so many epoch numbers stays (for 10: 0, 10, 20, …)."""

    def kept(self, entries: Sequence[Entry]) -> set[int]:
        """Numbers of the epochs that stay."""
        captured = [entry for entry in entries if entry.captured]
        kept = {entry.epoch for entry in captured[-(self.last or 1) :]}
        if self.since is not None:
            kept |= {entry.epoch for entry in captured if (entry.committed_at or entry.captured_at) >= self.since}
        if self.every is not None:
            # The first of each bucket, and not each n-th of what there is: so a second run drops nothing more.
            first: dict[int, int] = {}
            for entry in captured:
                first.setdefault(entry.epoch // self.every, entry.epoch)
            kept |= set(first.values())
        return kept


@dataclass(frozen=True)
class Stays:
    """What stays of one state table's log, as its manifest says it."""

    epochs: tuple[int, ...]
    """The kept epochs that have the table, ascending."""
    starts: frozenset[int]
    """Those of them at which the log begins, or begins again after a gap, with a keyframe."""
    keyframes: Mapping[int, int | None]
    """The keyframe from which reading each of them starts."""
    newest: int
    """The newest epoch of the manifest; what the log has after it belongs to captures that are under way."""

    @classmethod
    def of(cls, entries: Sequence[Entry], table: str) -> Stays:
        """What a manifest says of one table."""
        found = list(placed(entries, table))
        return cls(
            tuple(entry.epoch for entry, _ in found),
            frozenset(one.epoch for one, begins in found if begins and one.tables[table].keyframe == one.epoch),
            {entry.epoch: entry.tables[table].keyframe for entry, _ in found},
            max((entry.epoch for entry in entries), default=-1),
        )


@dataclass(frozen=True)
class Plan:
    """What one run of retention does."""

    generation: int
    """Which run it is, counted from 1."""
    entries: tuple[Entry, ...]
    """The manifest's rows afterwards: those that stay, reading from keyframes that stay."""
    dropped: tuple[int, ...]
    """The captured epochs that go, ascending."""
    keyframes: Mapping[str, tuple[int, ...]]
    """By state table: epochs at which a keyframe has to be written first."""
    tables: tuple[str, ...]
    """All state tables that the manifest knew before."""
    before: tuple[Entry, ...]
    """The manifest's rows as they were."""


def planned(entries: Sequence[Entry], generation: int, policy: Policy) -> Plan:
    """What a run of retention does to a manifest that has been through ``generation`` of them."""
    kept = policy.kept(entries)
    first = min(kept, default=0)
    staying = [entry for entry in entries if entry.epoch in kept or (not entry.captured and entry.epoch > first)]
    tables = tuple(dict.fromkeys(table for entry in entries for table in entry.tables))
    fresh: dict[str, tuple[int, ...]] = {}
    for table in tables:
        staying, fresh[table] = _repointed(staying, entries, table)
    dropped = tuple(entry.epoch for entry in entries if entry.captured and entry.epoch not in kept)
    return Plan(generation + 1, tuple(staying), dropped, fresh, tables, tuple(entries))


def placed(entries: Sequence[Entry], table: str) -> Iterator[tuple[Entry, bool]]:
    """The captured entries that have a table, and whether each is its first or the first after a gap."""
    begins = True
    for entry in entries:
        if not entry.captured:
            begins = True
        elif table in entry.tables:
            yield entry, begins
            begins = False


def _repointed(kept: Sequence[Entry], before: Sequence[Entry], table: str) -> tuple[list[Entry], tuple[int, ...]]:
    """The entries with keyframes of one table that stay, and which of these have to be written."""
    there = {entry.epoch for entry in kept if table in entry.tables}
    born = next((entry.epoch for entry in before if table in entry.tables), None)
    changes = _changes_by_kept(before, sorted(there), table)
    pointers: dict[int, int | None] = {}
    pointer: int | None = None
    weight = 0
    for entry, begins in placed(kept, table):
        facts = entry.tables[table]
        weight += min(changes[entry.epoch], 2 * facts.rows)
        if begins:
            from_nothing = facts.keyframe is None and entry.epoch == born
            pointers[entry.epoch] = None if from_nothing else entry.epoch
        elif facts.keyframe in there:
            pointers[entry.epoch] = facts.keyframe
        else:
            # A keyframe that goes is written again where reading would otherwise cost more than the state is large.
            moves = facts.keyframe is not None and weight > max(facts.rows, _SMALLEST_KEYFRAME)
            pointers[entry.epoch] = entry.epoch if moves else pointer
        if pointers[entry.epoch] != pointer:
            pointer, weight = pointers[entry.epoch], 0
    fresh = [one.epoch for one in kept if table in one.tables and pointers[one.epoch] == one.epoch != _old(one, table)]
    return [_with_keyframe(one, table, pointers.get(one.epoch)) for one in kept], tuple(fresh)


def _old(entry: Entry, table: str) -> int | None:
    return entry.tables[table].keyframe


def _changes_by_kept(before: Sequence[Entry], kept: Sequence[int], table: str) -> dict[int, int]:
    """By kept epoch: how many change rows it has together with the dropped ones that are folded into it."""
    changes = dict.fromkeys(kept, 0)
    for entry in before:
        at = bisect_left(kept, entry.epoch)
        if table in entry.tables and at < len(kept):
            changes[kept[at]] += entry.tables[table].changes
    return changes


def _with_keyframe(entry: Entry, table: str, keyframe: int | None) -> Entry:
    if table not in entry.tables:
        return entry
    return _with_facts(entry, table, lambda one: replace(one, keyframe=keyframe))


def _with_facts(entry: Entry, table: str, change: Callable[[TableFacts], TableFacts]) -> Entry:
    return replace(entry, tables={**entry.tables, table: change(entry.tables[table])})


def with_changes(entries: Sequence[Entry], table: str, counts: Mapping[int, int]) -> list[Entry]:
    """Entries that say how many rows of a table's log some of them have after folding."""
    return [
        _with_facts(entry, table, lambda one, n=counts[entry.epoch]: replace(one, changes=n))  # type: ignore[misc]
        if entry.epoch in counts and table in entry.tables
        else entry
        for entry in entries
    ]
