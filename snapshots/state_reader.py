"""Spark's state data source, read into Arrow: the change feed of some epochs, or the whole state at one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa

from streamstate.snapshots.checkpoint import Checkpoint
from streamstate.snapshots.errors import NoStateError
from streamstate.snapshots.operators import (
    CHANGE,
    EPOCH,
    PARTITION,
    Columns,
    Shape,
    StateSource,
    flatten,
    join_counters,
    state_sources,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# Reading needs these whatever the reading session is set to; each has no effect where the query did not use it.
_READING = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
_POOL = "streamstate"


@dataclass(frozen=True)
class StateRows:
    """Rows of one state table as Spark gave them, in Spark's order.

    ``rows`` has the columns ``_epoch``, ``_change`` (``update``, ``append``, ``delete``), ``_partition``, then the
    key columns (without ``_position``, which Spark does not count) and the value columns.
    """

    columns: Columns
    rows: pa.Table


@dataclass
class StateReader:
    """Reads one checkpoint's state with the settings that its query is pinned to.

    The settings go into a session of its own, so that the user's session stays as it is.
    """

    spark: SparkSession
    checkpoint: Checkpoint
    _session: SparkSession | None = None
    _pinned: dict[str, str] = field(default_factory=dict)
    _fingerprint: tuple[str, ...] = ()
    _sources: list[StateSource] = field(default_factory=list)
    # Making columns takes as many calls into the JVM as there are columns: once for each schema.
    _flattened: dict[tuple[str, Shape], tuple[Columns, list[Column]]] = field(default_factory=dict)

    def sources(self, epoch: int) -> list[StateSource]:
        """The query's state tables, looked up again when a restart may have changed them.

        Raises:
            NoStateError: where the query has committed epochs but keeps no state.
        """
        written = self.checkpoint.operators_fingerprint()
        if not written:
            raise no_state(self.checkpoint.path)
        fingerprint = (*written, str(max(self.checkpoint.operators_written_at(epoch), default=-1)))
        if fingerprint != self._fingerprint:
            self._sources = state_sources(self._reading(epoch), self.checkpoint.path, epoch)
            self._fingerprint = fingerprint
        return self._sources

    def together(self, epochs: list[int]) -> list[int]:
        """The longest beginning of some epochs that can be read in one go; never empty unless ``epochs`` is.

        Spark's change feed ends at a batch that repartitioned the state, which has to be read whole and alone; and
        state variables and their schemas are those of the run that wrote them.
        """
        written = self.checkpoint.operators_written_at(epochs[-1]) if epochs else set()
        for at, epoch in enumerate(epochs):
            alone = self.checkpoint.repartitioned(epoch)
            if at and (alone or epoch in written):
                return epochs[:at]
            if alone:
                return [epoch]
        return epochs

    def has_feed(self, source: StateSource, epochs: Sequence[int]) -> bool:
        """Whether Spark may have a change feed for some epochs; reading it tells whether it does."""
        return source.shape is not Shape.TIMERS and not self.checkpoint.repartitioned(epochs[0])

    def advice(self, source: StateSource, epochs: Sequence[int]) -> str | None:
        """What would make these epochs cheap to capture, where Spark gave no change feed for them; None: nothing."""
        planned = self.checkpoint.planned(epochs[-1])
        provider = planned.conf.get("spark.sql.streaming.stateStore.providerClass", "") if planned else ""
        if "RocksDB" not in provider:
            return None
        return (
            f"{source.table}: Spark gives no change feed, so each epoch's whole state is read. Restart the query with"
            " spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled=true to make capture cheap."
        )

    def changes(self, source: StateSource, first: int, last: int) -> StateRows:
        """The change feed of epochs ``first`` to ``last``, both included."""
        frame = self._load(
            source,
            last,
            {"readChangeFeed": "true", "changeStartBatchId": str(first), "changeEndBatchId": str(last)},
        )
        return self._rows(frame, source)

    def whole(self, source: StateSource, epochs: list[int]) -> StateRows:
        """The whole state at each of some epochs, in one job."""
        from pyspark.sql import functions as F

        change = "append" if source.shape is Shape.LIST else "update"
        frames = [
            self._load(source, epoch, {"batchId": str(epoch)}).select(
                F.lit(epoch).cast("long").alias("batch_id"), F.lit(change).alias("change_type"), "*"
            )
            for epoch in epochs
        ]
        return self._rows(reduce(lambda left, right: left.unionAll(right), frames), source)

    def frame(self, source: StateSource, epoch: int) -> DataFrame:
        """The whole state at one epoch as Spark gives it, not collected."""
        return self._load(source, epoch, {"batchId": str(epoch)})

    def counters(self, epoch: int) -> list[StateSource]:
        """What joins count beside their rows: no state tables, but part of the state."""
        return join_counters(self._reading(epoch), self.checkpoint.path, epoch)

    def session(self, epoch: int) -> SparkSession:
        """A session of its own with the settings that the query was pinned to at an epoch."""
        return self._reading(epoch)

    def _rows(self, frame: DataFrame, source: StateSource) -> StateRows:
        """Collect a frame of the state data source, flattened."""
        schema = (frame.schema.json(), source.shape)
        if schema not in self._flattened:
            self._flattened[schema] = _selection(frame, source)
        columns, select = self._flattened[schema]
        rows = frame.select(*select).toArrow()
        return StateRows(columns, rows.cast(pa.schema([_nullable(one) for one in rows.schema])))

    def _load(self, source: StateSource, epoch: int, options: dict[str, str]) -> DataFrame:
        spark = self._reading(epoch)
        return spark.read.format("statestore").options(**source.options, **options).load(self.checkpoint.path)

    def _reading(self, epoch: int) -> SparkSession:
        # Capture's jobs share a pool, so that under a fair scheduler they cannot starve the query's.
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


def no_state(checkpoint: str) -> NoStateError:
    """The error for a query that has committed epochs and no state store."""
    return NoStateError(
        f"The query of {checkpoint} keeps no state, so there is nothing to capture.\n"
        "Aggregations, stream-stream joins, deduplication and transformWithState keep state."
    )


def _selection(frame: DataFrame, source: StateSource) -> tuple[Columns, list[Column]]:
    from pyspark.sql import functions as F

    columns = flatten(frame.schema, source.shape)
    fixed = [
        F.col("batch_id").alias(EPOCH),
        F.col("change_type").alias(CHANGE),
        F.col("partition_id").alias(PARTITION),
    ]
    return columns, [*fixed, *columns.select]


def _nullable(column: pa.Field) -> pa.Field:
    """The field as Delta keeps it: the change feed and the whole state differ in what they call nullable."""
    return pa.field(column.name, _nullable_type(column.type), nullable=True)


def _nullable_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([_nullable(one) for one in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _nullable_type(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_nullable_type(kind.key_type), _nullable_type(kind.item_type))
    return kind
