"""Spark's state data source as frames that stay in the cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from py4j.protocol import Py4JError

from streamstate.snapshots.executors.failures import FAILURES, refused
from streamstate.snapshots.executors.tasks import ORDER
from streamstate.snapshots.operators import CHANGE, EPOCH, PARTITION, POSITION, Columns, Shape, StateSource, flatten
from streamstate.snapshots.state_reader import StateReader, StateRows, _nullable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class StateFrame:
    """Rows of one state table that were not fetched: ``_epoch``, ``_change``, ``_partition``, keys and values."""

    columns: Columns
    frame: DataFrame

    def log_columns(self) -> pa.Schema:
        """The columns of the change log that the rows go into."""
        fetched = self.frame.limit(0).toArrow().schema
        fields = [_nullable(one) for one in fetched if one.name != ORDER]
        if POSITION in self.columns.keys:
            before = 3 + len(self.columns.keys) - 1
            fields.insert(before, pa.field(POSITION, pa.int64()))
        return pa.schema(fields)

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns, without the position of a list's elements."""
        return tuple(key for key in self.columns.keys if key != POSITION)


class TooLargeError(Exception):
    """Spark refuses to have the driver fetch so much."""


class FrameReader(StateReader):
    """A state reader that can leave the rows in the cluster."""

    def changes(self, source: StateSource, first: int, last: int) -> StateRows:
        """As :meth:`StateReader.changes`.

        Raises:
            TooLargeError: where Spark refuses to have the driver fetch so much.
        """
        with _told():
            return super().changes(source, first, last)

    def whole(self, source: StateSource, epochs: list[int]) -> StateRows:
        """As :meth:`StateReader.whole`.

        Raises:
            TooLargeError: where Spark refuses to have the driver fetch so much.
        """
        with _told():
            return super().whole(source, epochs)

    def feed(self, source: StateSource, first: int, last: int) -> StateFrame:
        """The change feed of epochs ``first`` to ``last``, both included, one partition a state partition."""
        options = {"readChangeFeed": "true", "changeStartBatchId": str(first), "changeEndBatchId": str(last)}
        return _flat(self._load(source, last, options), source)

    def state(self, source: StateSource, epoch: int) -> StateFrame:
        """The whole state at an epoch; for lists with the column that keeps the order of their elements."""
        from pyspark.sql import functions as F

        whole = self._load(source, epoch, {"batchId": str(epoch)}).select(
            F.lit(epoch).cast("long").alias("batch_id"), F.lit("update").alias("change_type"), "*"
        )
        found = _flat(whole, source)
        if source.shape is not Shape.LIST:
            return found
        return StateFrame(found.columns, found.frame.withColumn(ORDER, F.monotonically_increasing_id()))

    def both(self, source: StateSource, epoch: int) -> StateFrame:
        """The whole states at an epoch and at the one before, all rows of a key in one partition."""
        from pyspark.sql import functions as F

        now = self.state(source, epoch)
        if not epoch:
            return now
        frame = self.state(source, epoch - 1).frame.unionByName(now.frame)
        keys = [F.col("`" + name.replace("`", "``") + "`") for name in now.keys]
        # Any type has a text, and not any type has a hash in Spark.
        return StateFrame(now.columns, frame.repartition(F.to_json(F.struct(*keys))) if keys else frame.coalesce(1))

    def bytes(self, source: StateSource) -> int | None:
        """What the operator's state takes in the checkpoint, all versions; None where files came and went meanwhile."""
        context = self.spark.sparkContext
        try:
            path = context._jvm.org.apache.hadoop.fs.Path(  # type: ignore[union-attr]  # the session runs
                f"{self.checkpoint.path}/state/{source.options['operatorId']}"
            )
            system = path.getFileSystem(context._jsc.hadoopConfiguration())
            return int(system.getContentSummary(path).getLength())
        except Py4JError:
            return None


@contextlib.contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except FAILURES as error:
        if refused(error):
            raise TooLargeError from error
        raise


def _flat(frame: DataFrame, source: StateSource) -> StateFrame:
    from pyspark.sql import functions as F

    columns = flatten(frame.schema, source.shape)
    fixed = [F.col("batch_id").alias(EPOCH), F.col("change_type").alias(CHANGE), F.col("partition_id").alias(PARTITION)]
    return StateFrame(columns, frame.select(*fixed, *columns.select))
