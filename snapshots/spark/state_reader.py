"""Spark's state data source: the change feed of some epochs, or the whole state at an epoch, fetched or as a frame."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa

from streamstate.errors import CheckpointError, DamagedCheckpointError, NoStateError
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.decoding.failures import ChangelogError, UnsupportedChangelogError
from streamstate.snapshots.checkpoint.decoding.operator_metadata import sources_in_metadata
from streamstate.snapshots.checkpoint.decoding.state_schema import UnsupportedTable, require_known_types, table_formats
from streamstate.snapshots.checkpoint.decoding.state_table_format import TableFormat
from streamstate.snapshots.checkpoint.decoding.store_history import paths_of_changes
from streamstate.snapshots.checkpoint.legacy_operators import LegacyOperator, described_view
from streamstate.snapshots.checkpoint.state_tables import (
    CHANGE,
    EPOCH,
    ORDER,
    PARTITION,
    POSITION,
    Columns,
    Shape,
    StateSource,
    flatten,
    join_counters,
)
from streamstate.snapshots.spark.escaped_paths import path_for_reader
from streamstate.snapshots.spark.session import classic_session, running_session
from streamstate.snapshots.store.canonical_rows import canonical_text, column_named

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# Reading needs these whatever the session's settings; they have no effect on queries that did not use them.
_READING = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
_POOL = "streamstate"
# More files are read while others are decoded.
_MOST_AHEAD = 512


@dataclass(frozen=True)
class StateRows:
    """Rows of one state table as Spark returns them; changes, and the elements of a list, are in Spark's order.

    ``rows`` has the columns ``_epoch``, ``_change`` (``update``, ``append``, ``delete``), ``_partition``, then the
    key columns (without ``_position``, which Spark does not have) and the value columns.
    """

    columns: Columns
    rows: pa.Table


@dataclass(frozen=True)
class StateFrame:
    """The same rows, left in the cluster; :meth:`StateReader.state` keeps the order of list elements in a column."""

    columns: Columns
    frame: DataFrame

    def log_columns(self) -> pa.Schema:
        """Return the columns of the changelog that the rows go into."""
        from streamstate.snapshots.spark.fetching import to_arrow

        schema = to_arrow(self.frame.limit(0)).schema
        fields = [nullable(field) for field in schema if field.name != ORDER]
        if POSITION in self.columns.keys:
            before = 3 + len(self.columns.keys) - 1
            fields.insert(before, pa.field(POSITION, pa.int64()))
        return pa.schema(fields)


@dataclass
class StateReader:
    """A reader of one checkpoint's state, with the settings that its query is pinned to.

    The settings go into a separate session, so that the user's session is unchanged.
    """

    given: SparkSession | None
    """The session to read with; None: the running one, or one that is started once it is needed."""
    checkpoint: CheckpointFiles
    _session: SparkSession | None = None
    _pinned: dict[str, str] = field(default_factory=dict)
    _fingerprint: tuple[str, ...] = ()
    _known_types: object = None
    _sources: list[StateSource] = field(default_factory=list)
    _formats: dict[str, TableFormat | UnsupportedTable] = field(default_factory=dict)
    _legacy_operators: list[LegacyOperator] = field(default_factory=list)
    # Making columns takes a call into the JVM for each, so it is done once per schema.
    _flattened: dict[tuple[str, Shape], tuple[Columns, list[Column]]] = field(default_factory=dict)

    @property
    def running(self) -> SparkSession | None:
        """The session, if one was given or is running."""
        return self.given or running_session()

    @property
    def spark(self) -> SparkSession:
        """The session, started if necessary."""
        return self.given or classic_session()

    def sources(self, epoch: int) -> list[StateSource]:
        """Return the query's state tables, looked up again when a restart or repartitioning may have changed them."""
        written = self.checkpoint.operators_fingerprint()
        if not written:
            raise no_state(self.checkpoint)
        run = max(self.checkpoint.operators_written_at(epoch), default=-1)
        promotion = self.checkpoint.promotion
        fingerprint = (*written, str(run), str(self.checkpoint.partitions(epoch)), promotion.id if promotion else "")
        if fingerprint != self._fingerprint:
            self._sources = sources_in_metadata(self.checkpoint, epoch)
            formats = table_formats(self.checkpoint, epoch)
            self._formats = dict(zip((source.table for source in self._sources), formats, strict=True))
            self._legacy_operators = self.checkpoint.legacy_operators()
            self._fingerprint = fingerprint
        return self._sources

    def read_ahead(self, epochs: list[int]) -> None:
        """Begin to read what a pass over some committed epochs will need of a remote checkpoint.

        Changelog files are read ahead if their tables are known from the pass before, and Spark may not have to read
        them.
        """
        self.checkpoint.read_ahead(epochs)
        if not epochs or not self.checkpoint.remote or not self._formats or self.running is not None:
            return
        formats = [self._formats[source.table] for source in self._sources if source.shape is not Shape.TIMERS]
        with contextlib.suppress(ChangelogError, CheckpointError):
            paths = self.checkpoint.source_logs(epochs)
            for found in formats:
                if isinstance(found, TableFormat):
                    paths += paths_of_changes(self.checkpoint, found, epochs[0], epochs[-1])
            if len(paths) <= _MOST_AHEAD:
                self.checkpoint.files.read_ahead(paths, last=f"{self.checkpoint.path}/metadata")

    def format(self, source: StateSource) -> TableFormat:
        """Return a table's on-disk format at the epoch for which tables were last looked up.

        Raises:
            UnsupportedChangelogError: only Spark can read them.
        """
        found = self._formats[source.table]
        if isinstance(found, UnsupportedTable):
            raise UnsupportedChangelogError(found.reason)
        return found

    def together(self, epochs: list[int]) -> list[int]:
        """Return the longest prefix of some epochs that can be read together; empty only if ``epochs`` is.

        Spark's change feed ends at a batch that repartitioned the state; that batch has to be read whole and alone, and
        so has the first one after a promotion, whose changes are those of the fork.
        State variables and their schemas are those of the run that wrote them, so a restart begins a new read.
        """
        written = self.checkpoint.operators_written_at(epochs[-1]) if epochs else set()
        for at, epoch in enumerate(epochs):
            alone = self._whole(epoch)
            if at and (alone or epoch in written or epoch > epochs[at - 1] + 1):
                return epochs[:at]
            if alone:
                return [epoch]
        return epochs

    def has_feed(self, source: StateSource, epochs: Sequence[int]) -> bool:
        """Return whether Spark may have a change feed for some epochs; only reading it shows whether it does."""
        return source.shape is not Shape.TIMERS and not self._whole(epochs[0])

    def _whole(self, epoch: int) -> bool:
        """Return whether an epoch has to be read whole: its changes do not follow from the state before it."""
        promotion = self.checkpoint.promotion
        return self.checkpoint.repartitioned(epoch) or (promotion is not None and epoch == promotion.epoch + 1)

    def advice(self, source: StateSource, epochs: Sequence[int]) -> str | None:
        """Return advice that makes epochs without a change feed cheap to capture; None if there is none."""
        planned = self.checkpoint.planned(epochs[-1])
        provider = planned.conf.get("spark.sql.streaming.stateStore.providerClass", "") if planned else ""
        if "RocksDB" not in provider:
            return None
        return (
            f"{source.table}: there is no changelog, so capture reads the whole state of each epoch. To make capture"
            " cheap, restart the query with"
            " spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled=true (Spark 3.5 or later)."
        )

    def changes(self, source: StateSource, first: int, last: int) -> StateRows:
        """Return the change feed of epochs ``first`` to ``last``, both included.

        Raises:
            TooLargeError: Spark refuses to let the driver fetch so much.
        """
        return _fetched(self.feed(source, first, last))

    def whole(self, source: StateSource, epochs: list[int]) -> StateRows:
        """Return the whole state at each of some epochs, in one job.

        Raises:
            TooLargeError: as :meth:`changes`.
        """
        frames = [self._marked(source, epoch) for epoch in epochs]
        return _fetched(self._flat(reduce(lambda left, right: left.unionAll(right), frames), source))

    def feed(self, source: StateSource, first: int, last: int) -> StateFrame:
        """As :meth:`changes`, not fetched, in one partition per state partition."""
        options = {"readChangeFeed": "true", "changeStartBatchId": str(first), "changeEndBatchId": str(last)}
        return self._flat(self._load(source, last, options), source)

    def state(self, source: StateSource, epoch: int) -> StateFrame:
        """Return the whole state at an epoch, not fetched; for lists with a column that keeps their order."""
        from pyspark.sql import functions as F

        flat = self._flat(self._marked(source, epoch), source)
        if source.shape is not Shape.LIST:
            return flat
        return StateFrame(flat.columns, flat.frame.withColumn(ORDER, F.monotonically_increasing_id()))

    def both(self, source: StateSource, epoch: int) -> StateFrame:
        """Return the whole states at an epoch and at the one before, all rows of a key in one partition."""
        from pyspark.sql import functions as F

        now = self.state(source, epoch)
        if not epoch:
            return now
        frame = self.state(source, epoch - 1).frame.unionByName(now.frame)
        keys = [column_named(name) for name in now.columns.spark_keys]
        # Spark can write any type as JSON, but cannot hash every type.
        return StateFrame(now.columns, frame.repartition(F.to_json(F.struct(*keys))) if keys else frame.coalesce(1))

    def frame(self, source: StateSource, epoch: int) -> DataFrame:
        """Return the whole state at an epoch as Spark returns it, not fetched."""
        return self._load(source, epoch, {"batchId": str(epoch)})

    def table(self, source: StateSource, epoch: int) -> DataFrame:
        """Return the whole state at an epoch with the columns of the state table, not fetched."""
        state = self.state(source, epoch)
        frame = state.frame.drop(EPOCH, CHANGE, PARTITION)
        return with_list_positions(frame, state.columns.spark_keys) if source.shape is Shape.LIST else frame

    def counters(self, epoch: int) -> list[StateSource]:
        """Return the counters that joins keep beside their rows: not state tables, but part of the state."""
        return join_counters(self.session(epoch), self.checkpoint, epoch)

    def _marked(self, source: StateSource, epoch: int) -> DataFrame:
        """Return the whole state at an epoch, with the columns that only the change feed has."""
        frame = self.frame(source, epoch)  # raises if PySpark is missing

        from pyspark.sql import functions as F

        change = "append" if source.shape is Shape.LIST else "update"
        return frame.select(F.lit(epoch).cast("long").alias("batch_id"), F.lit(change).alias("change_type"), "*")

    def _flat(self, frame: DataFrame, source: StateSource) -> StateFrame:
        schema = (frame.schema.json(), source.shape)
        if schema not in self._flattened:
            self._flattened[schema] = _selection(frame, source)
        columns, select = self._flattened[schema]
        return StateFrame(columns, frame.select(*select))

    def _load(self, source: StateSource, epoch: int, options: dict[str, str]) -> DataFrame:
        spark = self.session(epoch)
        reader = spark.read.format("statestore").options(**source.options, **options)
        return reader.load(self._location(spark, source))

    def _location(self, spark: SparkSession, source: StateSource) -> str:
        """Return the path at which Spark reads a table: session windows of an older Spark need metadata of ours."""
        operators = [operator for operator in self._legacy_operators if operator.prefix]
        if source.options["operatorId"] not in {str(operator.number) for operator in operators}:
            return path_for_reader(spark, self.checkpoint.path)
        return described_view(spark, self.checkpoint.path, operators)

    def _require_known_types(self, epoch: int) -> None:
        written = self.checkpoint.operators_fingerprint()
        known = written, max(self.checkpoint.operators_written_at(epoch), default=-1)
        if known != self._known_types:
            require_known_types(self.checkpoint, epoch)
            self._known_types = known

    def session(self, epoch: int) -> SparkSession:
        """Return a separate session with the settings that the query was pinned to at an epoch."""
        self._require_known_types(epoch)
        # Capture's jobs share a pool, so that they cannot starve the query's under a fair scheduler.
        self.spark.sparkContext.setLocalProperty("spark.scheduler.pool", _POOL)
        planned = self.checkpoint.planned(epoch)
        pinned = dict(planned.conf) if planned else dict(self._pinned)
        pinned |= _READING
        pinned["spark.sql.streaming.stateStore.checkpointFormatVersion"] = self.checkpoint.format_version(epoch)
        if self._session is None or pinned != self._pinned:
            self._session = self.spark.newSession()
            for key, value in pinned.items():
                if self._session.conf.isModifiable(key):
                    self._session.conf.set(key, value)
            self._pinned = pinned
        return self._session


def with_list_positions(state: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return a state of lists, as :meth:`StateReader.state` does, with the position of each element of a key."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    # Spark returns a key's elements in the list's order, all in one partition.
    key = canonical_text(state.schema, keys)
    position = F.row_number().over(Window.partitionBy(key).orderBy(ORDER)) - F.lit(1)
    return state.withColumn(POSITION, position.cast("long")).drop(ORDER)


def no_state(checkpoint: CheckpointFiles) -> CheckpointError:
    """Return the error for a query that has committed epochs and no state store."""
    epochs = checkpoint.committed()
    if epochs and checkpoint.unique_ids(epochs[-1]):
        return DamagedCheckpointError.file(
            f"{checkpoint.path}/state", "is missing, although the commit log names state files"
        )
    return NoStateError(
        f"{checkpoint.path} has no folder state/: its query keeps no state, or the folder was deleted. There is nothing"
        " to capture.\nQueries with aggregations, stream-stream joins, deduplication or transformWithState keep state."
    )


def _fetched(state: StateFrame) -> StateRows:
    from streamstate.snapshots.spark.failures import fetched

    rows = fetched(state.frame)
    return StateRows(state.columns, rows.cast(pa.schema([nullable(field) for field in rows.schema])))


def _selection(frame: DataFrame, source: StateSource) -> tuple[Columns, list[Column]]:
    from pyspark.sql import functions as F

    columns = flatten(frame.schema, source.shape)
    fixed = [F.col("batch_id").alias(EPOCH), F.col("change_type").alias(CHANGE), F.col("partition_id").alias(PARTITION)]
    return columns, [*fixed, *columns.select]


def nullable(column: pa.Field) -> pa.Field:
    """Return the field, nullable throughout: Spark's change feed and whole state disagree on what is nullable."""
    return pa.field(column.name, _nullable_type(column.type), nullable=True)


def _nullable_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([nullable(field) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _nullable_type(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_nullable_type(kind.key_type), _nullable_type(kind.item_type))
    return kind
