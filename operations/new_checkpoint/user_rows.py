"""Rows of state that a user gives: in the types of the state table, checked, and in the session that writes them."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from streamstate.errors import StateWriteError
from streamstate.replay.state_writing.state_values import fitted
from streamstate.replay.state_writing.store_rows import TIME, TTL
from streamstate.snapshots.checkpoint.operators import POSITION, Shape
from streamstate.snapshots.store.canonical_rows import column_named
from streamstate.state_inspect.inputs.inputs import batch_rows, kept_with

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from streamstate.operations.new_checkpoint.target_table import TargetTable


def fitted_rows(frame: DataFrame, table: TargetTable, session: SparkSession) -> DataFrame:
    """A frame with the columns of a state table, in their types; reading it fails if a value does not fit.

    Args:
        frame: has exactly the table's columns, in any order and case.
        table: the state table.
        session: the session of the returned frame.

    Raises:
        StateWriteError: the frame has other columns.
    """
    name = table.source.table
    given = {column.casefold(): column for column in frame.columns}
    if {*given} != {column.casefold() for column in table.types} or len(given) < len(frame.columns):
        raise StateWriteError.other_columns(name, frame.columns, table.types)
    columns = [
        fitted(column_named(given[column.casefold()]), column, kind, frame).alias(column)
        for column, kind in table.types.items()
    ]
    chosen = frame.select(*columns)
    return kept_with(batch_rows(session, chosen._jdf.queryExecution().analyzed()), frame)


def check_distinct(frame: DataFrame, table: TargetTable) -> None:
    """Refuse two rows with one key."""
    keys = [column_named(key) for key in table.keys]
    twice = frame.groupBy(*keys).agg(F.count("*").alias("_rows")).where("_rows > 1").drop("_rows").limit(1).collect()
    if twice:
        key = ", ".join(f"{name} = {value!r}" for name, value in twice[0].asDict().items() if name != POSITION)
        raise StateWriteError(
            f"Several rows for {table.source.table} have the key {key}.\nA state table has one row per key: aggregate"
            " them, or leave out all but one."
        )


def check_not_past(frame: DataFrame, table: TargetTable) -> None:
    """Refuse rows whose time to live is over, and timers in processing time that would expire at once."""
    timed = table.source.shape is Shape.TIMERS and table.source.time_mode == "ProcessingTime"
    column = TTL if TTL in table.types else TIME if timed else None
    if column is None:
        return
    now = int(time.time() * 1000)
    past, first = frame.where(F.col(column) <= now).agg(F.count("*"), F.min(column)).first() or (0, 0)
    if past:
        moment = datetime.fromtimestamp(first / 1000, UTC).isoformat(" ", "seconds")
        raise StateWriteError(
            f"{past:,} rows for {table.source.table} are in the past: their {column} is {moment} or later, and it is"
            f" now {datetime.now(UTC).isoformat(' ', 'seconds')}.\nLeave them out, or give them a later time"
            " (milliseconds since 1970)."
        )
