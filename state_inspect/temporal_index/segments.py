"""The interval tables of one state table: the live one, and those of past epochs, each loaded when it is asked for.

A question about a past epoch loads the epochs that are read from the same keyframe, not all those up to the newest one.
So what it costs depends on the distance between keyframes, not on how many epochs were captured. The live table has the
newest epoch; it follows new epochs, and reaches as far back as it was asked to, until that takes much memory.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable

from streamstate.errors import OvertakenError
from streamstate.snapshots.store.entries import Entries
from streamstate.snapshots.store.manifest import Manifest
from streamstate.state_inspect.temporal_index.interval_table import IntervalTable

# Values in the past tables together, about 250 MB. Those used last are kept.
_MOST_VALUES = 25_000_000
# Values in the live table, of which most are versions that were replaced before the newest keyframe. A new epoch ends
# versions all over the table, so a table that need not be sorted again follows faster.
_MOST_LIVE = 10_000_000
# What a value takes in DuckDB's memory before it is compressed.
_BYTES = 10
# With a small memory limit, the past tables take at most so much of it, and the live one half as much.
_SHARE_OF_MEMORY = 2
# A difference needs two tables, and the next one often a neighbour of theirs.
_KEPT = 3


class Segments:
    """Loads and keeps the interval tables of one state table.

    A past table is loaded under a lock of its own, so that nobody waits for epochs that somebody else asked for.

    ``opened`` opens the changelog for a generation of the manifest; ``memory`` is the index's limit in bytes.
    """

    def __init__(self, opened: Callable[[int], IntervalTable], memory: int) -> None:
        self.counts: dict[int, int] = {}
        """The rows at the epochs that were counted. What lives at an epoch never changes."""
        self._opener = opened
        fitting = memory // _BYTES // _SHARE_OF_MEMORY
        self._most_values, self._most_live = min(_MOST_VALUES, fitting), min(_MOST_LIVE, fitting // 2)
        self._live: IntervalTable | None = None
        self._past: list[IntervalTable] = []  # in the order of use
        self._growing = threading.RLock()
        self._listing = threading.Lock()
        self._loading: defaultdict[int, threading.RLock] = defaultdict(threading.RLock)

    @property
    def live(self) -> IntervalTable | None:
        """The table with the newest epochs, as loaded so far; None if it was not loaded."""
        found = self._live
        return None if found is None or found.low is None else found

    @property
    def loaded(self) -> list[IntervalTable]:
        """All tables as loaded so far, the live one first."""
        with self._listing:
            return [*([self.live] if self.live else []), *self._past]

    def covering(self, manifest: Manifest, first: int, last: int | None = None, *, keep: bool = True) -> IntervalTable:
        """Return a table with all captured epochs from ``first`` (−1: all) to ``last`` (None: the newest).

        A past one that has to be loaded is kept for later questions, unless told otherwise. After a run of retention,
        tables are loaded anew; those who hold an earlier one can keep reading it.
        """
        while True:
            generation = manifest.generation
            try:
                return self._covering(manifest, first, last, keep=keep)
            except OvertakenError:
                manifest.refresh()
                if manifest.generation == generation:
                    raise

    def shed(self) -> int:
        """Drop the past tables, except for those who hold them; returns how many there were."""
        with self._listing:
            dropped, self._past = self._past, []
        return len(dropped)

    def _covering(self, manifest: Manifest, first: int, last: int | None, *, keep: bool) -> IntervalTable:
        newest = manifest.newest
        if last is not None and newest is not None and last < newest.epoch and not self._reaches(manifest, first):
            past = self._past_table(manifest.generation, manifest.entries, first, last, keep=keep)
            if past is not None:
                return past
        with self._growing:
            found, opened = self._live, False
            if found is None or found.generation < manifest.generation or self._outgrown(found, manifest, first):
                found, opened = self._opened(manifest.generation), True
                self._live = found
            if newest is not None and not found.covers(first, newest.epoch if last is None else last):
                found.cover(manifest.entries, first, opened=opened)
            return found

    def _outgrown(self, live: IntervalTable, manifest: Manifest, first: int) -> bool:
        """Return whether a live table that followed many epochs should start again at the newest keyframe."""
        newest = manifest.newest
        follows = newest is not None and live.low is not None and live.high < newest.epoch
        return follows and live.values > self._most_live and live.outgrown(manifest.entries, first)

    def _opened(self, generation: int) -> IntervalTable:
        table = self._opener(generation)
        table.counts = self.counts
        return table

    def _reaches(self, manifest: Manifest, first: int) -> bool:
        """Return whether the live table has an epoch."""
        live = self.live
        return live is not None and live.generation >= manifest.generation and live.covers(first, first)

    def _past_table(
        self, generation: int, entries: Entries, first: int, last: int, *, keep: bool
    ) -> IntervalTable | None:
        """Return a table of past epochs; None if it would have the newest one, and so be the live one."""
        if (found := self._found(generation, first, last)) is not None:
            return found
        table = self._opened(generation)
        part = table.part(entries, first, last)
        if part.is_newest:
            return None
        with self._listing:
            loading = self._loading[part.low]
        with loading:
            if (found := self._found(generation, first, last)) is not None:
                return found
            table.load(part)
        if keep:
            self._keep(table)
        return table

    def _found(self, generation: int, first: int, last: int) -> IntervalTable | None:
        with self._listing:
            for table in reversed(self._past):
                if table.generation >= generation and table.covers(first, last):
                    self._past.remove(table)
                    self._past.append(table)
                    return table
        return None

    def _keep(self, table: IntervalTable) -> None:
        """Add a table, and drop those that it replaces and those that were not used for the longest time."""
        with self._listing:
            alike = [old for old in self._past if old.generation == table.generation and old.schema == table.schema]
            self._past = [*alike, table]
            values = sum(old.footprint for old in self._past)
            while values > self._most_values and len(self._past) > _KEPT:
                values -= self._past.pop(0).footprint
