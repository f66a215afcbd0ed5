"""All captured epochs of one query."""

from __future__ import annotations

from bisect import bisect_left
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from streamstate.snapshots.errors import InvalidArgumentError, UnknownEpochError, choices
from streamstate.snapshots.layout import MANIFEST
from streamstate.snapshots.manifest import Entry, Manifest
from streamstate.state_inspect.analytics.growth import growth, watermark_lag
from streamstate.state_inspect.analytics.skew import busy_keys, check_number
from streamstate.state_inspect.analytics.untouched import Untouched, since_epoch
from streamstate.state_inspect.causes import Causes
from streamstate.state_inspect.change_logs import ChangeLog, change_log
from streamstate.state_inspect.diff import Diff
from streamstate.state_inspect.frames import to_pandas
from streamstate.state_inspect.key_life import KeyLife
from streamstate.state_inspect.moments import FromLive, epoch_named
from streamstate.state_inspect.snapshot import Snapshot, choose_table
from streamstate.state_inspect.source_offsets import epoch_at_offset
from streamstate.state_inspect.state_table import check_key
from streamstate.state_inspect.timestamps import aware
from streamstate.state_inspect.watch import Watch, WatchEvent
from streamstate.state_inspect.when import Condition, first_epoch, spans, spans_per_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamstate.snapshots.layout import Layout
    from streamstate.state_inspect.index import Index
    from streamstate.state_inspect.interval_table import IntervalTable


class History:
    """One query's snapshots; ``store["delays"]`` gives it.

    Every call looks first whether new epochs have arrived.
    """

    def __init__(self, layout: Layout, name: str, index: Index) -> None:
        self.name = name
        """The query's name."""
        self.index = index
        self._layout = layout
        self._manifest = Manifest(layout, name)

    def epochs(self) -> pd.DataFrame:
        """The manifest: one row per epoch, captured or a gap, ascending.

        Columns: ``epoch``, ``status`` (``captured`` or ``gap``), ``run_id``, ``committed_at``, ``captured_at``,
        ``offsets`` (a JSON array, one element a source), ``watermark``, ``input_rows``, then dicts by state table:
        ``rows`` (live rows), ``changes`` (rows of the change log), ``keyframes`` (the epoch that reading starts from);
        last ``sources`` (a JSON array of what is known of each source beside its offset, see docs/cuts.md).
        """
        entries = self._entries()
        plain = pa.Table.from_pylist([{name: getattr(one, name) for name in MANIFEST.names[:8]} for one in entries])
        frame = to_pandas(plain.cast(pa.schema(list(MANIFEST)[:8]))) if entries else _no_epochs()
        for column, fact in (("rows", "rows"), ("changes", "changes"), ("keyframes", "keyframe")):
            facts = [{table: getattr(one, fact) for table, one in entry.tables.items()} for entry in entries]
            frame[column] = pd.Series(facts, dtype=object)
        frame["sources"] = pd.Series([entry.sources for entry in entries], dtype=object)
        return frame

    def entries(self) -> list[Entry]:
        """The manifest's rows as they are read, for parts of streamstate that need them often."""
        return self._entries()

    def captured(self) -> list[int]:
        """Numbers of the captured epochs, ascending."""
        return [entry.epoch for entry in self._entries() if entry.captured]

    def tables(self) -> list[str]:
        """Names of all state tables that any epoch has."""
        return list(dict.fromkeys(table for entry in self._entries() for table in entry.tables))

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
            return Snapshot(self, self._entry(wanted.epoch(self.live().epoch)))
        if isinstance(epoch, bool) or not isinstance(epoch, int):
            raise InvalidArgumentError(
                f"An epoch is a whole number, not {epoch!r}, or 'live - 10'; for a moment use at(timestamp=…)."
            )
        return Snapshot(self, self._entry(epoch))

    def diff(self, a: int | str, b: int | str, table: str | None = None) -> Diff:
        """What differs in a state table from epoch ``a`` to epoch ``b``.

        Args:
            a: the epoch compared from: a number, or ``"live - 10"``.
            b: the epoch compared to.
            table: may be left out where there is one table.

        Raises:
            UnknownEpochError, UnknownTableError, InvalidArgumentError: as :meth:`at` and :meth:`Snapshot.table`.
        """
        both = [self.at(epoch) for epoch in (a, b)]
        tables = list(dict.fromkeys(name for snapshot in both for name in snapshot.tables()))
        chosen = choose_table(table, tables, self.name)
        old, new = (snapshot.epoch for snapshot in both)
        intervals = self.interval_table(chosen, min(old, new))
        for epoch in (old, new):
            self._entry_among(self._manifest.entries, epoch)  # retention may have come in between
        return Diff(self.index, intervals, chosen, old, new, causes=self._causes())

    def key_history(self, table: str | None = None, **key: Any) -> pd.DataFrame:
        """Every change of one key, ascending by epoch.

        Columns: ``epoch``, ``change`` (``put``; ``delete``, whose values are missing; ``keyframe`` where the log starts
        anew and it is not known when the value was written), ``committed_at``, then the value columns, then ``cause``
        (``input``, ``watermark``, ``timer``, ``ttl``; ``unknown`` where it cannot be known).

        Args:
            table: may be left out where there is one table.
            **key: a value for each key column.

        Raises:
            UnknownTableError, UnknownColumnError, InvalidArgumentError: where an argument cannot be meant.

        Example:
            >>> history.key_history(carrier="UA", origin="EWR")  # doctest: +SKIP
        """
        self.live()  # raises where there is nothing
        chosen = choose_table(table, self.tables(), self.name)
        intervals = self.interval_table(chosen, -1)
        check_key(key, intervals.key_columns, chosen)
        return self._key_life().in_table(chosen, intervals, key)

    def growth(self, table: str | None = None) -> pd.DataFrame:
        """How the state grew, epoch by epoch, from the manifest alone.

        Columns: ``epoch``, ``table``, ``committed_at``, ``rows``, ``delta`` (against the captured epoch before; missing
        where that is not known), ``changes`` (rows of the change log that the epoch added).

        Args:
            table: one state table; by default all of them.

        Raises:
            UnknownTableError: where there is no such table.

        Example:
            >>> history.growth().plot(x="epoch", y="rows")  # doctest: +SKIP
        """
        chosen = None if table is None else choose_table(table, self.tables(), self.name)
        return growth(self._entries(), chosen)

    def watermark_lag(self) -> pd.DataFrame:
        """How far each epoch's watermark lies behind its commit, from the manifest alone.

        Columns: ``epoch``, ``committed_at``, ``watermark``, ``lag`` (between the two), ``input_rows``,
        ``since_previous`` (time since the commit of the epoch before). What is not known is missing.

        Example:
            >>> history.watermark_lag().nlargest(3, "lag")  # doctest: +SKIP
        """
        return watermark_lag(self._entries())

    def untouched(self, table: str | None = None, *, since: int | None = None, epochs: int | None = None) -> Untouched:
        """The keys that are in the newest state and have not changed since an epoch: state that may be leaking.

        Args:
            table: may be left out where there is one table.
            since: the epoch after which a key has not changed.
            epochs: instead, how many captured epochs before the newest that is.

        Raises:
            UnknownEpochError: where no epoch is captured yet.
            UnknownTableError: where there is no such table.
            InvalidArgumentError: where an argument cannot be meant.

        Example:
            >>> history.untouched(epochs=100).page(limit=5)  # doctest: +SKIP
        """
        self.live()  # raises where there is nothing
        chosen = choose_table(table, self.tables(), self.name)
        intervals = self.interval_table(chosen, -1)
        entries = list(self._manifest.entries)
        return Untouched(self.index, intervals, chosen, entries, since_epoch(entries, since, epochs))

    def heavy_keys(self, table: str | None = None, *, since: int | None = None, n: int = 10) -> pd.DataFrame:
        """The keys that were written most often; those with most rows are told by :meth:`StateTable.heavy_keys`.

        Columns: the key columns, ``_writes`` (epochs in which the key was written; removals do not count), and
        ``_last_written`` (the epoch).

        Args:
            table: may be left out where there is one table.
            since: count what came after this epoch; by default all captured epochs.
            n: how many keys.

        Raises:
            UnknownEpochError: where no epoch is captured yet.
            UnknownTableError: where there is no such table.
            InvalidArgumentError: where an argument cannot be meant.

        Example:
            >>> history.heavy_keys(since=90, n=5)  # doctest: +SKIP
        """
        self.live()  # raises where there is nothing
        intervals = self.interval_table(choose_table(table, self.tables(), self.name), -1)
        return busy_keys(intervals, self.index, -1 if since is None else check_number("since", since), n)

    def life(self, **key: Any) -> pd.DataFrame:
        """Every change of one key in all state tables whose key has the given columns, ascending by epoch.

        Both sides of a join, the variables of a ``transformWithState`` and its timers share a key. Columns: ``epoch``,
        ``table``, ``change`` (as in :meth:`key_history`), ``cause`` (``input``, ``watermark``, ``timer``, ``ttl``, or
        ``unknown`` where it cannot be known), ``committed_at``, then the tables' other columns. A column name that two
        tables use for different types is called after the second, as in ``op0_seen.value``.

        Args:
            **key: values for columns that some table has in its key; it may have more, such as a list's position.

        Raises:
            UnknownColumnError: where no table has them all; the message names each table's key columns.
            InvalidArgumentError: where no column is given, or a value does not fit.

        Example:
            >>> history.life(carrier="UA")  # doctest: +SKIP
        """
        self.live()
        tables = {name: self.interval_table(name, -1) for name in self.tables()}
        return self._key_life().in_tables(tables, key)

    def first(self, predicate: str, /, *, table: str | None = None, **key: Any) -> int | None:
        """The first captured epoch at which some row, or a key's, met a condition; None where none ever did.

        Args:
            predicate: an SQL condition on a row's columns, as after WHERE.
            table: may be left out where there is one table.
            **key: values for key columns, to ask about their rows alone.

        Raises:
            InvalidSQLError: where the condition does not parse, or is about more than one row.
            UnknownTableError, UnknownColumnError, InvalidArgumentError: where an argument cannot be meant.

        Example:
            >>> history.first("sum / count > 60", carrier="UA")  # doctest: +SKIP
            17
        """
        return first_epoch(self._condition(predicate, table, key), self.index, self._manifest.entries)

    def when(self, predicate: str, /, *, table: str | None = None, per_key: bool = False, **key: Any) -> pd.DataFrame:
        """The spans of epochs in which some row, or each key, met a condition.

        Columns: ``held_from``; ``held_until``, the epoch at which it held no more, missing where it still holds;
        ``committed_at``, when ``held_from`` was committed; ``keys``, the most rows that met it at once. A gap ends a
        span, because what held in it is not known: ``held_until`` is then the first epoch of the gap.

        Args:
            predicate: an SQL condition on a row's columns, as after WHERE.
            table: may be left out where there is one table.
            per_key: spans of each key: the key columns first, and no ``keys``.
            **key: values for key columns, to ask about their rows alone.

        Raises:
            InvalidSQLError: where the condition does not parse, or is about more than one row.
            UnknownTableError, UnknownColumnError, InvalidArgumentError: where an argument cannot be meant.

        Example:
            >>> history.when("count > 100", per_key=True)  # doctest: +SKIP
        """
        condition = self._condition(predicate, table, key)
        found = spans_per_key if per_key else spans
        return found(condition, self.index, self._manifest.entries)

    def watch(
        self,
        predicate: str,
        callback: Callable[[WatchEvent], object],
        /,
        *,
        table: str | None = None,
        every: float = 1.0,
        **key: Any,
    ) -> Watch:
        """Call back for each new epoch in which rows begin to meet a condition, from the live epoch on.

        A thread looks at the store; it needs no Spark, and ends with :meth:`Watch.stop`, with the ``with`` block, or at
        the first error, which the handle then holds.

        Args:
            predicate: an SQL condition on a row's columns, as after WHERE.
            callback: takes a :class:`WatchEvent`; runs in the thread.
            table: may be left out where there is one table.
            every: seconds between looks.
            **key: values for key columns, to watch their rows alone.

        Raises:
            InvalidSQLError, UnknownTableError, UnknownColumnError, UnknownEpochError, InvalidArgumentError: as
                :meth:`when` and :meth:`live`.

        Example:
            >>> with history.watch("count > 100", lambda event: seen.append(event.epoch)):  # doctest: +SKIP
            ...     run_the_query()
        """
        self.live()
        chosen = choose_table(table, self.tables(), self.name)
        return Watch(self, predicate, callback, table=chosen, every=every, key=key)

    def interval_table(self, table: str, first: int, last: int | None = None) -> IntervalTable:
        """The temporal index of a state table, with all captured epochs from one on (−1: all) up to another."""
        return self.index.table(self.name, table, self._manifest, first, last)

    def advance(self) -> None:
        """Bring the temporal index of what was read before up to the newest epoch."""
        self._manifest.refresh()
        self.index.advance(self.name, self._manifest)

    def change_log(self, table: str) -> ChangeLog:
        """A state table's change log on disk, as it stands, with the manifest that says how to read it."""
        return change_log(self._layout, self._manifest, table)

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

    def _causes(self) -> Causes:
        return Causes(self.index, list(self._manifest.entries), self.interval_table)

    def _condition(self, predicate: str, table: str | None, key: dict[str, Any]) -> Condition:
        self.live()
        chosen = choose_table(table, self.tables(), self.name)
        return Condition(predicate, chosen, self.interval_table(chosen, -1), key)

    def _key_life(self) -> KeyLife:
        return KeyLife(self.index, self._causes(), self._manifest.entries)

    def _stays(self, entry: Entry) -> bool:
        """Whether retention has not dropped an entry's epoch, as far as is known."""
        entries = self._manifest.entries
        at = bisect_left(entries, entry.epoch, key=lambda one: one.epoch)
        return entry.generation == self._manifest.generation or (at < len(entries) and entries[at].epoch == entry.epoch)

    def __repr__(self) -> str:
        captured = self.captured()
        span = f"epochs {captured[0]} to {captured[-1]}" if captured else "no epoch captured yet"
        return f"<History of {self.name}: {span}; tables {choices(self.tables())}>"

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


def _no_epochs() -> pd.DataFrame:
    return to_pandas(pa.schema(list(MANIFEST)[:8]).empty_table())
