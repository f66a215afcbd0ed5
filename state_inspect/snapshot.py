"""The state of every operator of one query at one epoch."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from streamstate.snapshots.errors import InvalidArgumentError, UnknownTableError
from streamstate.state_inspect.analytics.tables import table_summary
from streamstate.state_inspect.state_table import StateTable

if TYPE_CHECKING:
    import pandas as pd

    from streamstate.snapshots.manifest import Entry
    from streamstate.state_inspect.recorded import Recorded
    from streamstate.state_inspect.temporal_index.interval_table import IntervalTable


class Snapshot:
    """Pinned to its epoch: whatever is captured later does not change what it returns.

    What was read once stays readable. ``with history.at(12) as snapshot:`` reads all its tables at the start, so that
    not even retention that drops the epoch is noticed, and lets go of them at the end.
    """

    def __init__(self, history: Recorded, entry: Entry) -> None:
        self._history = history
        self._entry = entry
        self._tables: dict[str, StateTable] = {}

    @property
    def history(self) -> Recorded:
        """The history it is a snapshot of."""
        return self._history

    @property
    def query(self) -> str:
        """The name of the query whose epoch it is; for a fork's early epochs that is the one it was forked from."""
        return self._history.name

    @property
    def epoch(self) -> int:
        """The epoch: Spark's batch id."""
        return self._entry.epoch

    @property
    def offsets(self) -> list[Any] | None:
        """The end offset of each source, as that source's own JSON; None where Spark had purged them."""
        return None if self._entry.offsets is None else list(json.loads(self._entry.offsets))

    @property
    def watermark(self) -> datetime | None:
        """The event-time watermark that was in force during the epoch, None where there was none."""
        return self._entry.watermark

    @property
    def committed_at(self) -> datetime | None:
        """When Spark committed the epoch."""
        return self._entry.committed_at

    @property
    def input_rows(self) -> int | None:
        """Rows that the epoch read, None where Spark's progress events were not at hand."""
        return self._entry.input_rows

    def tables(self) -> list[str]:
        """Names of the state tables."""
        return list(self._entry.tables)

    def rows(self) -> dict[str, int]:
        """Live rows of each state table."""
        return {name: facts.rows for name, facts in self._entry.tables.items()}

    def table(self, name: str | None = None) -> StateTable:
        """One state table.

        Args:
            name: may be left out where there is one table.

        Raises:
            UnknownTableError: where there is no such table at this epoch.
            InvalidArgumentError: where the name is left out and there are several.
            EpochDroppedError: where retention has dropped the epoch since and the grace period of its files is over.
        """
        chosen = choose_table(name, self.tables(), self._history.name)
        # Held on to, so that what was read once stays although retention drops the epoch.
        if chosen not in self._tables:
            intervals = self._history.interval_table_of(chosen, self._entry)
            self._tables[chosen] = StateTable(self._history.index, intervals, chosen, self.epoch, history=self._history)
        return self._tables[chosen]

    def intervals(self, name: str) -> IntervalTable:
        """The temporal index of a state table, for parts of streamstate that read it themselves.

        Raises:
            EpochDroppedError: as :meth:`table`.
        """
        return self._history.interval_table_of(name, self._entry)

    def summary(self) -> pd.DataFrame:
        """One row per state table.

        Columns: ``table``, ``rows``, ``changes`` (rows of the change log that the epoch added), ``key_columns`` and
        ``value_columns`` (how many), ``partitions``, ``bytes`` (of the values, before encoding and compression).

        Raises:
            EpochDroppedError: as :meth:`table`.

        Example:
            >>> history.live().summary()  # doctest: +SKIP
        """
        return table_summary(self, self._entry)

    def __enter__(self) -> Self:
        for name in self.tables():
            self.table(name)
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the tables that were read; they are read again where they are asked for again."""
        self._tables.clear()

    def __repr__(self) -> str:
        tables = ", ".join(f"{name} ({rows:,} rows)" for name, rows in self.rows().items())
        return f"<Snapshot of {self._history.name} at epoch {self.epoch}: {tables}>"


def choose_table(name: str | None, tables: list[str], query: str) -> str:
    """The table that a name means, or the only one where none is given."""
    if name is None and len(tables) == 1:
        return tables[0]
    if name is None:
        raise InvalidArgumentError(
            f"{query} has {len(tables)} state tables; say which one.\nTables: {', '.join(tables) or 'none'}."
        )
    if name not in tables:
        raise UnknownTableError.among("state table", name, tables, where=f"in {query}")
    return name
