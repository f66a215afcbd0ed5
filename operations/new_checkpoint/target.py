"""The target of a new checkpoint: its query, planned but not run, and its state tables, with checks of their rows."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyspark.sql import functions as F
from pyspark.sql.types import DataType, LongType, StructType

from streamstate.errors import InvalidArgumentError, NotReplayableError, QueryError, StateWriteError, first_line
from streamstate.replay.state_writing.state_values import fitted
from streamstate.replay.state_writing.store_rows import TIME, TTL
from streamstate.replay.stepping.query_sources import QuerySource, built, check_replayable, sources_of
from streamstate.snapshots.calls.checks import BuildQuery
from streamstate.snapshots.checkpoint.filesystem import local_path
from streamstate.snapshots.checkpoint.state_tables import POSITION, Shape, StateSource, flatten
from streamstate.snapshots.spark.connect import errors_of_spark
from streamstate.snapshots.spark.epoch_planning import FORMAT, EpochClock, incremental, pinned_settings, state_ids
from streamstate.snapshots.spark.output_modes import check_operations, known_mode
from streamstate.snapshots.spark.own_settings import with_settings
from streamstate.snapshots.store.canonical_rows import column_named
from streamstate.state_inspect.inputs.inputs import batch_rows, kept_with

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from streamstate.snapshots.checkpoint.filesystem import Files


@dataclass(frozen=True)
class TargetQuery:
    """The query of a new checkpoint."""

    frame: DataFrame
    mode: str
    conf: dict[str, str]
    """The settings that its first epoch pins it to."""

    @classmethod
    def of(cls, build_query: BuildQuery, mode: str) -> TargetQuery:
        """Build a query and note the settings that it is pinned to.

        Raises:
            InvalidArgumentError: the function returns no streaming DataFrame, or the mode is none.
        """
        mode = known_mode(mode)
        frame = built(build_query)
        return cls(frame, mode, pinned_settings(frame.sparkSession))

    @property
    def spark(self) -> SparkSession:
        """The session of its frame."""
        return self.frame.sparkSession

    @property
    def format_version(self) -> str:
        """The checkpoint format of its state stores."""
        return self.spark.conf.get(FORMAT, None) or "1"

    def sources(self) -> list[QuerySource]:
        """Return its sources in the order in which Spark numbers them."""
        found = sources_of(self.frame)
        if found is None:
            raise InvalidArgumentError(
                "The sources of the query cannot be numbered, because it uses one of them in a WITH clause.\n"
                "Write it with temporary views instead."
            )
        return found

    def into(self, folder: str, clock: EpochClock) -> None:
        """Write the metadata and schemas of its operators below a checkpoint's folder.

        Raises:
            QueryError: Spark cannot run the query.
        """
        local = local_path(folder)
        root = folder if local is None else f"file:{local}"
        jvm: Any = self.spark._jvm
        analyzed: Any = self.frame._jdf.queryExecution().analyzed()
        try:
            check_operations(jvm, analyzed, self.mode)
            planned = incremental(
                self.spark, analyzed, self.mode, now=clock, state=f"{root}/state", restart_from=state_ids(jvm, {})
            )
            planned.executedPlan()
        except errors_of_spark() as error:
            raise QueryError(f"Spark cannot run this as a streaming query: {first_line(error)}") from error

    def try_an_epoch(self, folder: str, files: Files) -> None:
        """Run the next epoch from a copy of a checkpoint, if the sources keep what they have delivered.

        Raises:
            StateWriteError: Spark cannot run it.
        """
        try:
            check_replayable(self.sources())
        except NotReplayableError:
            return
        copy = f"{folder}-trial-{uuid4().hex[:8]}"
        try:
            files.copy((f"{folder}/{path}", f"{copy}/{path}") for path in files.tree(folder) if not path.endswith("/"))
            self.run_an_epoch(copy)
        except errors_of_spark() as error:
            raise StateWriteError(
                f"Spark cannot go on from the new checkpoint: {first_line(error)}\nIt was deleted."
            ) from error
        finally:
            files.remove_tree(copy)

    def run_an_epoch(self, checkpoint: str) -> None:
        """Run the next epoch over everything that the sources have, and discard its results."""
        writer = self.frame.writeStream.format("noop").outputMode(self.mode).option("checkpointLocation", checkpoint)
        with with_settings(self.spark, self.conf):
            running = writer.trigger(once=True).start()
        try:
            running.awaitTermination()
        except BaseException:
            running.stop()
            raise


@dataclass(frozen=True)
class TargetTable:
    """A state table that a new checkpoint has."""

    source: StateSource
    schema: StructType
    """The schema that Spark's state reader returns for it."""
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
