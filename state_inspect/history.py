"""All captured epochs of one query."""

from __future__ import annotations

from typing import Any, cast

import pandas as pd
import pyarrow as pa

from streamstate.snapshots.errors import choices
from streamstate.snapshots.layout import MANIFEST, Layout
from streamstate.state_inspect.analytics.over_time import StateOverTime
from streamstate.state_inspect.branches.ancestry import same_history
from streamstate.state_inspect.branches.difference import difference
from streamstate.state_inspect.branches.key_line import key_line
from streamstate.state_inspect.branches.over_time import BranchesOverTime
from streamstate.state_inspect.conditions.over_time import ConditionsOverTime
from streamstate.state_inspect.differences.diff import Diff
from streamstate.state_inspect.differences.key_life import KeyLife
from streamstate.state_inspect.frames import to_pandas
from streamstate.state_inspect.snapshot import Snapshot, choose_table
from streamstate.state_inspect.state_table import check_key


class History(ConditionsOverTime, StateOverTime, BranchesOverTime):
    """One query's snapshots; ``store["delays"]`` gives it.

    Every call looks first whether new epochs have arrived.
    """

    @property
    def layout(self) -> Layout:
        """Where the store's tables are, for parts of streamstate that read them themselves."""
        return self._layout

    def epochs(self) -> pd.DataFrame:
        """The manifest: one row per epoch, captured or a gap, ascending.

        Columns: ``epoch``, ``status`` (``captured`` or ``gap``), ``run_id``, ``committed_at``, ``captured_at``,
        ``offsets`` (a JSON array, one element a source), ``watermark``, ``input_rows``, then dicts by state table:
        ``rows`` (live rows), ``changes`` (rows of the change log), ``keyframes`` (the epoch that reading starts from);
        last ``sources`` (a JSON array of what is known of each source beside its offset, see docs/guides/cuts.md).
        """
        entries = self._entries()
        plain = pa.Table.from_pylist([{name: getattr(one, name) for name in MANIFEST.names[:8]} for one in entries])
        frame = to_pandas(plain.cast(pa.schema(list(MANIFEST)[:8]))) if entries else _no_epochs()
        for column, fact in (("rows", "rows"), ("changes", "changes"), ("keyframes", "keyframe")):
            facts = [{table: getattr(one, fact) for table, one in entry.tables.items()} for entry in entries]
            frame[column] = pd.Series(facts, dtype=object)
        frame["sources"] = pd.Series([entry.sources for entry in entries], dtype=object)
        return frame

    def diff(self, a: int | str | Snapshot, b: int | str | Snapshot, table: str | None = None) -> Diff:
        """What differs in a state table from epoch ``a`` to epoch ``b``.

        Args:
            a: the epoch compared from: a number, or ``"live - 10"``; or a snapshot, of this query, of another one of
                the same store such as a fork, or of another store.
            b: the epoch compared to, in the same ways.
            table: may be left out where there is one table.

        Raises:
            UnknownEpochError, UnknownTableError, InvalidArgumentError: as :meth:`at` and :meth:`Snapshot.table`; and
                where the two are of branches whose tables, or the keys of them, are not the same.

        Example:
            >>> history.diff(10, 12)  # doctest: +SKIP
            <Diff of op0 from epoch 10 to 12: 3 added, 1 removed, 412 changed>
            >>> history.diff(45, store["what_if"].at(45))  # doctest: +SKIP
            <Diff of op0 from delays at epoch 45 to what_if at epoch 45: 0 added, 0 removed, 7 changed>
        """
        old, new = (one if isinstance(one, Snapshot) else self.at(one) for one in (a, b))
        if not same_history(old.history, new.history):
            return difference(old, new, table, asked=self)
        if not same_history(old.history, self) and isinstance(old.history, History):
            return old.history.diff(old, new, table)
        tables = list(dict.fromkeys(name for snapshot in (old, new) for name in snapshot.tables()))
        chosen = choose_table(table, tables, self.name)
        intervals = self.interval_table(chosen, min(old.epoch, new.epoch))
        for snapshot in (old, new):
            self._entry_among(self._manifest.entries, snapshot.epoch)  # retention may have come in between
        return Diff(self.index, intervals, chosen, old.epoch, new.epoch, causes=self.causes(), history=self)

    def key_history(self, table: str | None = None, *, ancestors: Any = False, **key: Any) -> pd.DataFrame:
        """Every change of one key, ascending by epoch.

        Columns: ``epoch``, ``change`` (``put``; ``delete``, whose values are missing; ``keyframe`` where the log starts
        anew and it is not known when the value was written), ``committed_at``, then the value columns, then ``cause``
        (``input``, ``watermark``, ``timer``, ``ttl``; ``unknown`` where it cannot be known).

        Args:
            table: may be left out where there is one table.
            ancestors: True, for a fork, to begin with what happened in the queries that it was forked from; a last
                column, ``query``, then says whose epoch each row is. Where the fork's state was edited, a row of the
                fork at the epoch that both share says to what.
            **key: a value for each key column.

        Raises:
            UnknownTableError, UnknownColumnError, InvalidArgumentError: where an argument cannot be meant.

        Example:
            >>> history.key_history(carrier="UA", origin="EWR")  # doctest: +SKIP
            >>> store["what_if"].key_history(carrier="UA", origin="EWR", ancestors=True)  # doctest: +SKIP
        """
        if ancestors:
            return key_line(self, table, key, lambda one, name: cast("History", one).key_history(name, **key))
        self.live()  # raises where there is nothing
        chosen = choose_table(table, self.tables(), self.name)
        intervals = self.interval_table(chosen, -1)
        check_key(key, intervals.key_columns, chosen)
        return self._key_life().in_table(chosen, intervals, key)

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

    def _key_life(self) -> KeyLife:
        return KeyLife(self.index, self.causes(), self._manifest.entries)

    def __repr__(self) -> str:
        captured = self.captured()
        span = f"epochs {captured[0]} to {captured[-1]}" if captured else "no epoch captured yet"
        return f"<History of {self.name}: {span}; tables {choices(self.tables())}>"


def _no_epochs() -> pd.DataFrame:
    return to_pandas(pa.schema(list(MANIFEST)[:8]).empty_table())
