"""A state table of a new checkpoint: its columns and their types, and checks of the rows for it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import DataType, LongType, StructType

from streamstate.errors import StateWriteError
from streamstate.replay.state_writing.state_values import fitted
from streamstate.replay.state_writing.store_rows import TIME, TTL
from streamstate.snapshots.checkpoint.operators import POSITION, Shape, StateSource, flatten
from streamstate.snapshots.store.canonical_rows import column_named
from streamstate.state_inspect.inputs.inputs import batch_rows, kept_with

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class TargetTable:
    """A state table that a new checkpoint has."""

    source: StateSource
    schema: StructType
    """What Spark's state reader returns of it."""
    keys: tuple[str, ...]
    """The names of its key columns."""
    types: Mapping[str, DataType] = field(hash=False)
    """The types of its columns, keys first."""

    @classmethod
    def of(cls, source: StateSource, frame: DataFrame) -> TargetTable:
        """Describe a table from what Spark's state reader returns of it."""
        columns = flatten(frame.schema, source.shape)
        flat = frame.select(*columns.select).schema
        types = {field.name: field.dataType for field in flat.fields}
        ordered = {name: types.get(name, LongType()) for name in columns.names}
        return cls(source, frame.schema, columns.keys, ordered)

    def fitted_rows(self, frame: DataFrame, session: SparkSession) -> DataFrame:
        """Return a frame with the columns of the table, in their types; reading it fails if a value does not fit.

        Args:
            frame: has exactly the table's columns, in any order and case.
            session: the session of the returned frame.

        Raises:
            StateWriteError: the frame has other columns.
        """
        name = self.source.table
        given = {column.casefold(): column for column in frame.columns}
        if {*given} != {column.casefold() for column in self.types} or len(given) < len(frame.columns):
            raise StateWriteError.other_columns(name, frame.columns, self.types)
        columns = [
            fitted(column_named(given[column.casefold()]), column, kind, frame).alias(column)
            for column, kind in self.types.items()
        ]
        chosen = frame.select(*columns)
        return kept_with(batch_rows(session, chosen._jdf.queryExecution().analyzed()), frame)

    def check_distinct(self, frame: DataFrame) -> None:
        """Refuse two rows with one key."""
        keys = [column_named(key) for key in self.keys]
        counted = frame.groupBy(*keys).agg(F.count("*").alias("_rows"))
        twice = counted.where("_rows > 1").drop("_rows").limit(1).collect()
        if twice:
            key = ", ".join(f"{name} = {value!r}" for name, value in twice[0].asDict().items() if name != POSITION)
            raise StateWriteError(
                f"Several rows for {self.source.table} have the key {key}.\n"
                "A state table has one row per key: aggregate them, or leave out all but one."
            )

    def check_not_past(self, frame: DataFrame) -> None:
        """Refuse rows whose time to live is over, and timers in processing time that would expire at once."""
        timed = self.source.shape is Shape.TIMERS and self.source.time_mode == "ProcessingTime"
        column = TTL if TTL in self.types else TIME if timed else None
        if column is None:
            return
        now = int(time.time() * 1000)
        past, first = frame.where(F.col(column) <= now).agg(F.count("*"), F.min(column)).first() or (0, 0)
        if past:
            moment = datetime.fromtimestamp(first / 1000, UTC).isoformat(" ", "seconds")
            raise StateWriteError(
                f"{past:,} rows for {self.source.table} are in the past: their {column} is {moment} or later, and it is"
                f" now {datetime.now(UTC).isoformat(' ', 'seconds')}.\nLeave them out, or give them a later time"
                " (milliseconds since 1970)."
            )
