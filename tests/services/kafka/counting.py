"""Queries that count the records of topics by key, with an epoch for each portion of records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

import streamstate as ss
from services.kafka.broker import Broker
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from streamstate.reports import History


def counts(spark: SparkSession, servers: str, **options: str) -> DataFrame:
    """Count the records of a source by key."""
    given = {"kafka.bootstrap.servers": servers, "startingOffsets": "earliest", **options}
    records = spark.readStream.format("kafka").options(**given).load()
    return records.groupBy(f.col("key").cast("string").alias("k")).count()


class Counting:
    """A query that counts the records of its topics."""

    def __init__(self, spark: SparkSession, broker: Broker, name: str, folder: Path, **options: str) -> None:
        self._spark, self._servers = spark, broker.servers
        self.name, self.store, self.options = name, folder / "store", options
        self.path = folder / f"{name}-checkpoint"

    @property
    def checkpoint(self) -> ss.Checkpoint:
        """Its checkpoint."""
        return ss.Checkpoint(self.path)

    @property
    def checkpoint_files(self) -> CheckpointFiles:
        """The files of its checkpoint."""
        return CheckpointFiles(self.path)

    @property
    def history(self) -> History:
        """What was captured of it."""
        return ss.open_store(self.store)[self.name]

    def build(self, **options: str) -> DataFrame:
        """Return its frame, or that of code with some other options of the source."""
        return counts(self._spark, self._servers, **{**self.options, **options})

    def code(self, **options: str) -> Callable[[], DataFrame]:
        """Return code for it, with some other options of the source."""
        return lambda: self.build(**options)

    def with_only(self, **options: str) -> Callable[[], DataFrame]:
        """Return code for it, with other options instead of its own."""
        return lambda: counts(self._spark, self._servers, **options)

    def elsewhere(self, servers: str) -> Callable[[], DataFrame]:
        """Return code for it that asks another broker."""
        return lambda: counts(self._spark, servers, **self.options)

    def run(self) -> None:
        """Read what there is, in one epoch, and capture it."""
        running = ss.start(
            self.build(), self.name, self.store, checkpoint=self.path, trigger="available-now", partitions=2
        )
        running.wait(timeout=300)
        running.stop()
