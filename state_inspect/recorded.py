"""The epochs of one query, and the temporal index of its state tables."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.errors import InvalidArgumentError, UnknownEpochError
from streamstate.snapshots.manifest import Entry, Manifest
from streamstate.state_inspect.branches.ancestry import Ancestry
from streamstate.state_inspect.change_logs import ChangeLog, change_log
from streamstate.state_inspect.cuts.source_offsets import epoch_at_offset
from streamstate.state_inspect.differences.causes import Causes
from streamstate.state_inspect.forks import Forked, forks
from streamstate.state_inspect.moments import FromLive, epoch_named
from streamstate.state_inspect.snapshot import Snapshot
from streamstate.state_inspect.timestamps import aware

if TYPE_CHECKING:
    from streamstate.snapshots.layout import Layout
    from streamstate.state_inspect.temporal_index.index import Index
    from streamstate.state_inspect.temporal_index.interval_table import IntervalTable


class Recorded:
    """What all questions about a query's epochs rest on; :class:`History` is the whole of it.

    Every call looks first whether new epochs have arrived.
    """

    # Kept for as long as the manifest has no new epochs.
    _explained: tuple[list[Entry], Causes] | None = None

    def __init__(
        self, layout: Layout, name: str, index: Index, related: Callable[[str], Recorded] | None = None
    ) -> None:
        self.name = name
        """The query's name."""
        self.index = index
        self.ancestry = Ancestry(layout, name, related)
        """The queries that it was forked from."""
        self._layout = layout
        self._manifest = Manifest(layout, name)

    @property
    def place(self) -> str:
        """Where its store is."""
        return self._layout.root

    def tables(self) -> list[str]:
        """Names of all state tables that any epoch has."""
        return list(dict.fromkeys(table for entry in self._entries() for table in entry.tables))

    def entries(self) -> list[Entry]:
        """The manifest's rows as they are read, for parts of streamstate that need them often."""
        return self._entries()

    def captured(self) -> list[int]:
        """Numbers of the captured epochs, ascending."""
        return [entry.epoch for entry in self._entries() if entry.captured]

    def forks(self) -> list[Forked]:
        """The forks that the store knows of this query, and of which other it is one: each with the shared epoch.

        Example:
            >>> history.forks()  # doctest: +SKIP
            [Forked(name='what_if', parent='delays', epoch=12)]
        """
        return [one for one in forks(self._layout) if self.name in (one.name, one.parent)]

    def live(self) -> Snapshot:
        """The newest captured epoch's snapshot.

        Raises:
            UnknownEpochError: where no epoch is captured yet.
        """
        self._manifest.refresh()
        if self._manifest.newest is None:
            raise UnknownEpochError(f"No epoch of {self.name} is captured yet.\nWait for the first, or capture one.")
        return Snapshot(self, self._manifest.newest)

    def at(self, epoch: int | str | None = None, *, timestamp: datetime | None = None, offset: Any = None) -> Snapshot:
        """The snapshot at an epoch, of the epoch that was in force at a moment, or at a source offset.

        A fork shares its first epochs with the query that it was forked from: those before its own first are that
        query's, and the snapshot says so (``snapshot.query``). Moments and offsets are looked for in its own.

        Args:
            epoch: the epoch's number, or ``"live - 10"`` for the one ten numbers before the newest captured.
            timestamp: an aware datetime, instead of the epoch.
            offset: instead of either, a source offset as ``snapshot.offsets`` shows it (a list where there are several
                sources, None for one that does not matter), or ``{"files": 100}`` for a source that reads files: the
                newest epoch that reflects no more.

        Raises:
            UnknownEpochError: where the epoch is not captured; the message names the nearest ones that are.
            NaiveTimestampError: where the timestamp has no time zone.
            InvalidArgumentError: where not exactly one of the three is given, the epoch cannot be meant, or the
                offset cannot be compared with the query's.

        Example:
            >>> history.at(12).table().head(3)  # doctest: +SKIP
            >>> history.at("live - 10").epoch  # doctest: +SKIP
            >>> history.at(offset={"flights": {"0": 812}}).epoch  # doctest: +SKIP
        """
        if sum(one is not None for one in (epoch, timestamp, offset)) != 1:
            raise InvalidArgumentError(
                "Give an epoch, at(12), or a moment, at(timestamp=…): one of the two; or else at(offset=…)."
            )
        if offset is not None:
            return Snapshot(self, epoch_at_offset(self._entries(), self.name, offset))
        if timestamp is not None:
            return Snapshot(self, self._in_force(aware(timestamp)))
        wanted = epoch_named(epoch) if isinstance(epoch, str) else epoch
        if isinstance(wanted, FromLive):
            return self._snapshot(wanted.epoch(self.live().epoch))
        if isinstance(epoch, bool) or not isinstance(epoch, int):
            raise InvalidArgumentError(
                f"An epoch is a whole number, not {epoch!r}, or 'live - 10'; for a moment use at(timestamp=…)."
            )
        return self._snapshot(epoch)

    def begins_by(self, epoch: int) -> bool:
        """Whether it has an epoch of its own by then; what a fork has not is what it shares with its parent."""
        return any(entry.captured and entry.epoch <= epoch for entry in self._entries())

    def _snapshot(self, epoch: int) -> Snapshot:
        holding = None if self.begins_by(epoch) else self.ancestry.holding(epoch)
        return (holding or self).own(epoch)

    def own(self, epoch: int) -> Snapshot:
        """The snapshot at one of the query's own epochs, what it shares with others left aside."""
        return Snapshot(self, self._entry(epoch))

    def interval_table(self, table: str, first: int, last: int | None = None) -> IntervalTable:
        """The temporal index of a state table, with all captured epochs from one on (−1: all) up to another."""
        return self.index.table(self.name, table, self._manifest, first, last)

    def interval_table_of(self, table: str, entry: Entry) -> IntervalTable:
        """The temporal index of a state table, with the entry's epoch although retention may have dropped it since.

        Raises:
            EpochDroppedError: where it has, and the grace period of the epoch's files is over.
        """
        if self._stays(entry):
            found = self.interval_table(table, entry.epoch, entry.epoch)
            if self._stays(entry):
                return found
        return self.index.dropped(self.name, table, entry)

    def causes(self) -> Causes:
        """Finds the causes of changes, as far as the manifest was read, for parts of streamstate that show them."""
        entries = self._manifest.entries
        if self._explained is None or self._explained[0] is not entries:
            self._explained = entries, Causes(self.index, entries, self.interval_table)
        return self._explained[1]

    def advance(self) -> None:
        """Bring the temporal index of what was read before up to the newest epoch."""
        self._manifest.refresh()
        self.index.advance(self.name, self._manifest)

    def change_log(self, table: str) -> ChangeLog:
        """A state table's change log on disk, as it stands, with the manifest that says how to read it."""
        return change_log(self._layout, self._manifest, table)

    def _stays(self, entry: Entry) -> bool:
        """Whether retention has not dropped an entry's epoch, as far as is known."""
        entries = self._manifest.entries
        at = bisect_left(entries, entry.epoch, key=lambda one: one.epoch)
        return entry.generation == self._manifest.generation or (at < len(entries) and entries[at].epoch == entry.epoch)

    def _entries(self) -> list[Entry]:
        self._manifest.refresh()
        return list(self._manifest.entries)

    def _entry(self, epoch: int) -> Entry:
        return self._entry_among(self._entries(), epoch)

    def _entry_among(self, entries: list[Entry], epoch: int) -> Entry:
        found = next((entry for entry in entries if entry.epoch == epoch), None)
        if found is not None and found.captured:
            return found
        captured = [entry.epoch for entry in entries if entry.captured]
        why = "was gone from Spark's checkpoint before it could be captured" if found is not None else "is not captured"
        if found is None and entries and 0 <= epoch < entries[-1].epoch:
            why = "was dropped by retention"
        raise UnknownEpochError(f"Epoch {epoch} of {self.name} {why}.\n{_nearest(epoch, captured)}")

    def _in_force(self, moment: datetime) -> Entry:
        entries = self._entries()
        known = [entry for entry in entries if entry.captured and entry.committed_at]
        before = [entry for entry in known if entry.committed_at and entry.committed_at <= moment]
        if not before:
            first = (
                f"Its first captured epoch, {known[0].epoch}, was committed at {known[0].committed_at}."
                if known
                else ""
            )
            raise UnknownEpochError(f"No epoch of {self.name} was captured at {moment.isoformat()}.\n{first}".strip())
        found = before[-1]
        after = next((entry for entry in entries if entry.epoch > found.epoch), None)
        if after is not None and not (after.captured and after.epoch == found.epoch + 1):
            why = "retention dropped the epochs that follow" if after.epoch > found.epoch + 1 else "a gap follows"
            raise UnknownEpochError(
                f"Which epoch of {self.name} was in force at {moment.isoformat()} is not known: {why} epoch"
                f" {found.epoch}.\n{_nearest(found.epoch + 1, [entry.epoch for entry in known])}"
            )
        return found


def _nearest(epoch: int, captured: list[int]) -> str:
    below = [one for one in captured if one < epoch][-1:]
    above = [one for one in captured if one > epoch][:1]
    if not below + above:
        return "No epoch is captured yet."
    span = f"{captured[0]} to {captured[-1]}" if len(captured) > 1 else str(captured[0])
    return f"The nearest captured: {' and '.join(map(str, below + above))} (of {span})."
