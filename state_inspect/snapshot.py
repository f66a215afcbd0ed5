"""The state of every operator of one query at one epoch."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

import pandas as pd

from streamstate.errors import InvalidArgumentError, NoResultError
from streamstate.snapshots.spark.worker.forwarding import classic_spark
from streamstate.snapshots.store.consistent_read import consistent_read
from streamstate.snapshots.store.entries import Entry
from streamstate.state_inspect.branches.ancestors import epoch_owner
from streamstate.state_inspect.captured_query import QueryHistory
from streamstate.state_inspect.results.results import (
    RESULT,
    filled_with_spark,
    known_table,
    result_plan,
    state_of,
    table_of_result,
    with_result,
)
from streamstate.state_inspect.state_table import StateTable
from streamstate.state_inspect.temporal_index.interval_table import IntervalTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from streamstate.operations.new_checkpoint.log_texts import Offset
    from streamstate.operations.new_checkpoint.written_checkpoint import WrittenCheckpoint
    from streamstate.snapshots.calls.progress_callback import ProgressCallback


class Snapshot:
    """The state at one epoch. Epochs captured later do not change what it returns.

    Tables that were read once stay readable. ``with history.at(12) as snapshot:`` reads all tables at the start, so
    that they stay readable even if retention drops the epoch, and releases them at the end.
    """

    def __init__(self, history: QueryHistory, entry: Entry) -> None:
        self._history = history
        self._entry = entry
        self._tables: dict[str, StateTable] = {}
        self._results: dict[tuple[str, bool], StateTable] = {}

    @property
    def history(self) -> QueryHistory:
        """The :class:`History` it is a snapshot of."""
        return self._history

    @property
    def query(self) -> str:
        """The name of the query that the epoch belongs to; for a fork's early epochs, the query it was forked from."""
        return self._history.name

    @property
    def epoch(self) -> int:
        """The epoch: Spark's batch id."""
        return self._entry.epoch

    @property
    def offsets(self) -> Any:
        """The end offset of each source, as that source's own JSON; None if Spark had purged the offsets.

        A list in the query's order; if the query names its sources, a dict by name.
        """
        return None if self._entry.offsets is None else json.loads(self._entry.offsets)

    @property
    def watermark(self) -> datetime | None:
        """The event-time watermark in effect during the epoch, if there was one."""
        return self._entry.watermark

    @property
    def committed_at(self) -> datetime | None:
        """When Spark committed the epoch."""
        return self._entry.committed_at

    @property
    def input_rows(self) -> int | None:
        """The number of rows that the epoch read; None if Spark's progress events were not available."""
        return self._entry.input_rows

    def tables(self) -> list[str]:
        """Names of the state tables."""
        return list(self._entry.tables)

    def rows(self) -> dict[str, int]:
        """The number of live rows of each state table; a table that capture did not count is read, and counted.

        Raises:
            EpochDroppedError: as :meth:`table`.
        """
        known = {name: facts.rows for name, facts in self._entry.tables.items()}
        return {name: self.table(name).count() if rows is None else rows for name, rows in known.items()}

    def known_rows(self) -> dict[str, int | None]:
        """As :meth:`rows`, but nothing is read for it: None for a table that is not counted yet.

        Example:
            >>> history.live().known_rows()
            {'op0': None}
        """
        [entry] = self._history.recorded.with_counts([self._entry])
        return {name: facts.rows for name, facts in entry.tables.items()}

    def table(self, name: str | None = None) -> StateTable:
        """One state table.

        Args:
            name: the table's name; may be left out if there is only one. ``"result"`` is :meth:`result`, computed
                without Spark.

        Raises:
            UnknownTableError: the table does not exist at this epoch.
            InvalidArgumentError: the name is left out and there are several tables.
            EpochDroppedError: retention has dropped the epoch, and the grace period of its files is over.
        """
        state, is_result = state_of(name)
        if is_result:
            return self._result(state, filled=False)
        chosen = choose_table(name, self.tables(), self._history.name)
        # Held, so that a table that was read once stays readable after retention drops the epoch.
        if chosen not in self._tables:
            intervals, index = self.intervals(chosen), self._history.recorded.index
            self._tables[chosen] = StateTable(index, intervals, chosen, self.epoch, history=self._history)
        return self._tables[chosen]

    def result(self, table: str | None = None) -> StateTable:
        """The rows that the query returns for this state, under its own column names.

        They are computed from the state's columns: an average from its sum and its count. What only Spark can compute,
        such as ``approx_count_distinct``, is computed by Spark if the query was started or described in this process,
        and its session runs. Otherwise such a column is text that says so.

        Args:
            table: the state table to compute it from; by default that of the operator that the query ends with. The
                sides of a join are named; their rows have the query's column names, too.

        Raises:
            NoResultError: the query's plan is not known at this epoch (see :meth:`streamstate.History.describe`), or
                the
                result is more than a row for each row of the state.
            EpochDroppedError: as :meth:`table`.

        Example:
            >>> history.live().result().head(2)
              carrier origin  departures  average_delay  max_delay
            0      AA    LGA          74      30.797297       60.0
            1      DL    JFK          74      28.540541       59.0
        """
        return self._result(table, filled=True)

    def _result(self, table: str | None, *, filled: bool) -> StateTable:
        """The result, with what only Spark can compute if that is wanted and possible."""
        recorded = self._history.recorded
        name = table_of_result(recorded, table, self.tables(), self.epoch)
        if (name, filled) not in self._results:
            plan = result_plan(recorded, name, [self.epoch])
            state = self.table(name).intervals
            found = filled_with_spark(recorded, state, plan, name, self.epoch) if filled else None
            rows = found or with_result(state, plan, name, self.epoch)
            title = RESULT if table is None else f"{name}.{RESULT}"
            made = StateTable(recorded.index, rows, title, self.epoch, history=self._history)
            self._results[name, filled] = made
        return self._results[name, filled]

    def has_result(self, table: str | None = None) -> bool:
        """Whether :meth:`result` can be computed without Spark."""
        try:
            return bool(self._result(table, filled=False).schema.names)
        except NoResultError:
            return False

    def intervals(self, name: str) -> IntervalTable:
        """The temporal index of a state table, for parts of streamstate that read it directly.

        Raises:
            EpochDroppedError: as :meth:`table`.
        """
        return self._history.recorded.interval_table_of(name, self._entry)

    @classic_spark()
    def restore(
        self,
        *,
        to: str | os.PathLike[str],
        build_query: Callable[[], DataFrame] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        offsets: Sequence[Offset] | None = None,
        mode: str = "update",
        spark: SparkSession | None = None,
        progress: ProgressCallback | None = None,
    ) -> WrittenCheckpoint:
        """Make a checkpoint that can run from this epoch, even if Spark has purged it or its state is damaged.

        Spark writes the state, reads it back, and compares every row. The query's checkpoint is only read: it describes
        the operators, and which files they had read. If it is gone, pass ``build_query``.

        Args:
            to: where the new checkpoint goes; it must not exist yet. It appears there once it is complete.
            build_query: returns the streaming DataFrame of the code that the query had. Its checkpoint is then not
                read.
            checkpoint: the query's checkpoint; by default where the store says. Not with ``build_query``.
            offsets: with ``build_query``, what each source had read if the store does not know it, as for
                :func:`bootstrap`; None for a source: as the store says.
            mode: with ``build_query``, the query's output mode: "append", "update" or "complete".
            spark: the session to use; by default that of ``build_query``, the running one, or an embedded one.
            progress: called with a message and the completed share of the work, from 0 to 1.

        Raises:
            StateWriteError: ``to`` exists already, what Spark reads back differs, or the files that were read are not
                found.
            EpochGoneError: neither the store nor the checkpoint knows the watermark after the epoch, or its offsets.
            NotACheckpointError, CheckpointReplacedError: the query's checkpoint no longer exists; pass ``build_query``.
            InvalidArgumentError: the code has other sources than the epoch, or there is a checkpoint beside the code.
            UntrustedStoreError, UntrustedCheckpointError: the store or the checkpoint names something outside of it, or
                code that reading its state would load.
            NotReplayableError: the log of a file source no longer says which files had been read by then.
            UnsupportedStateError: Spark cannot write this kind of state, or the code's state has other columns.

        Example:
            >>> again = history.at(3).restore(to="checkpoints/delays_3")
            >>> again.epoch, again.rows
            (3, {'op0': 5})
        """
        from streamstate.operations.new_checkpoint.restore import restore

        return restore(
            self,
            os.fspath(to),
            build_query,
            checkpoint=None if checkpoint is None else os.fspath(checkpoint),
            offsets=offsets,
            mode=mode,
            spark=spark,
            progress=progress,
        )

    def summary(self) -> pd.DataFrame:
        """One row per state table.

        Columns: ``table``, ``rows``, ``changes`` (changelog rows that the epoch added), ``key_columns`` and
        ``value_columns`` (how many), ``partitions``, ``bytes`` (of the values, before encoding and compression).

        Raises:
            EpochDroppedError: as :meth:`table`.

        Example:
            >>> history.live().summary()
              table  rows  changes  key_columns  value_columns  partitions  bytes
            0   op0     5        5            2              4           2    185
        """
        rows = []
        for name, facts in self._entry.tables.items():
            table = self.table(name)
            skew = table.skew()
            counts = [len(table.key_columns), len(table.value_columns), len(skew), int(skew["bytes"].sum())]
            rows.append([name, table.count(), facts.changes, *counts])
        names = ["table", "rows", "changes", "key_columns", "value_columns", "partitions", "bytes"]
        return pd.DataFrame(rows, columns=names).astype(dict.fromkeys(names[1:], "int64"))

    def __reduce__(self) -> tuple[Callable[..., Snapshot], tuple[object, ...]]:
        return own_snapshot, (self._history, self.epoch)

    def __enter__(self) -> Self:
        for name in self.tables():
            self.table(name)
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the tables that were read. They are read again when needed."""
        self._tables.clear()
        self._results.clear()

    def __repr__(self) -> str:
        counts = self.known_rows()
        tables = ", ".join(name if rows is None else f"{name} ({rows:,} rows)" for name, rows in counts.items())
        return f"<Snapshot of {self._history.name} at epoch {self.epoch}: {tables}>"


def live_snapshot(history: QueryHistory) -> Snapshot:
    """The snapshot of the newest captured epoch; see :meth:`History.live`."""
    return Snapshot(history, history.recorded.live_entry())


@consistent_read()
def snapshot_at(history: QueryHistory, epoch: int) -> Snapshot:
    """The snapshot at an epoch; for a fork's early epochs, that of the query it was forked from."""
    return own_snapshot(epoch_owner(history, epoch), epoch)


def own_snapshot(history: QueryHistory, epoch: int) -> Snapshot:
    """The snapshot at one of a query's own epochs, ancestors left aside."""
    return Snapshot(history, history.recorded.entry(epoch))


def choose_table(name: str | None, tables: list[str], query: str) -> str:
    """The table with a name, or the only table if no name is given."""
    if name is None and len(tables) == 1:
        return tables[0]
    if name is None:
        raise InvalidArgumentError(
            f"{query} has {len(tables)} state tables; name one.\nTables: {', '.join(tables) or 'none'}."
        )
    return known_table(name, tables, query)
