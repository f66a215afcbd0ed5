"""Whole states over all epochs of a query: how they grow, what is written often, what is never touched again."""

from __future__ import annotations

import pandas as pd

from streamstate.state_inspect.analytics.growth import growth, watermark_lag
from streamstate.state_inspect.analytics.skew import busy_keys, check_number
from streamstate.state_inspect.analytics.untouched import Untouched, since_epoch
from streamstate.state_inspect.recorded import Recorded
from streamstate.state_inspect.snapshot import choose_table


class StateOverTime(Recorded):
    """The part of a history that looks at whole states."""

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
