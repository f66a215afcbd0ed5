"""State tables, their histories and their change logs, as relations of a statement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds

from streamstate.snapshots.change_log import listed, quoted
from streamstate.snapshots.delta.data_files import verified
from streamstate.snapshots.operators import EPOCH, PARTITION

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import DataFrame, SparkSession

    from streamstate.state_inspect.change_logs import ChangeLog
    from streamstate.state_inspect.state_table import StateTable
    from streamstate.state_inspect.temporal_index.interval_table import IntervalTable

HISTORY, CHANGES = "history", "changes"
"""What follows a table's name in a statement: ``delays.history``, ``delays.op0_left.changes``."""


@dataclass(frozen=True)
class StateRelation:
    """The rows that held at an epoch."""

    table: StateTable  # a relation of the index goes once nobody holds its table

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return [*self.table.key_columns, *self.table.value_columns]

    def in_duckdb(self, cursor: duckdb.DuckDBPyConnection, name: str) -> None:
        """Make it a relation of a connection."""
        cursor.execute(f"CREATE TEMP VIEW {quoted(name)} AS {self.table.rows_sql()}")


@dataclass(frozen=True)
class HistoryRelation:
    """All versions that are known at an epoch, and the epochs from and to which each held."""

    table: IntervalTable
    epoch: int

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return ["_valid_from", "_valid_to", PARTITION, *self.table.columns]

    def in_duckdb(self, cursor: duckdb.DuckDBPyConnection, name: str) -> None:
        """Make it a relation of a connection; what ended after the epoch has not ended at it."""
        columns = listed([PARTITION, *self.table.columns])
        cursor.execute(
            f"CREATE TEMP VIEW {quoted(name)} AS SELECT _valid_from,"
            f" CASE WHEN _valid_to <= {self.epoch} THEN _valid_to END AS _valid_to, {columns}"
            f" FROM {self.table.relation} WHERE _valid_from <= {self.epoch}"
        )


@dataclass(frozen=True)
class ChangesRelation:
    """The change log up to an epoch, streamed from its files."""

    log: ChangeLog
    rows: pa.Table | ds.Dataset
    epoch: int

    @classmethod
    def of(cls, log: ChangeLog, epoch: int) -> ChangesRelation:
        """The relation, its files verified (and fetched, where they are in an object store).

        Raises:
            DamagedStoreError: where a file is missing or its bytes changed.
        """
        schema = log.version.schema
        files = [one for one in log.version.files(EPOCH) if one.may_hold(None, epoch)]
        paths = [str(verified(log.version.place, one.path)) for one in files]
        return cls(log, ds.dataset(paths, schema=schema) if paths else schema.empty_table(), epoch)

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return self.log.all_columns

    def in_duckdb(self, cursor: duckdb.DuckDBPyConnection, name: str) -> None:
        """Make it a relation of a connection."""
        cursor.register(f"{name}_files", self.rows)
        cursor.execute(
            f"CREATE TEMP VIEW {quoted(name)} AS SELECT {listed(self.columns)} FROM {quoted(name + '_files')}"
            f" WHERE {EPOCH} <= {self.epoch}"
        )


@dataclass(frozen=True)
class SparkRelation:
    """A state table, its history or its changes, read from the change log by Spark alone."""

    log: ChangeLog
    epoch: int
    kind: str | None
    """``history``, ``changes``, or None: the rows that held."""

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        if self.kind == CHANGES:
            return self.log.all_columns
        return [*(["_valid_from", "_valid_to", PARTITION] if self.kind == HISTORY else []), *self.log.columns]

    def in_spark(self, spark: SparkSession) -> DataFrame:
        """As a Spark frame."""
        from streamstate.state_inspect.sql import spark_frames

        if self.kind == CHANGES:
            return spark_frames.changes(spark, self.log, self.epoch)
        if self.kind == HISTORY:
            return spark_frames.history(spark, self.log, self.epoch)
        return spark_frames.state(spark, self.log, self.epoch)
