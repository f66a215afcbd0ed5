"""A keyed aggregate over many keys; each epoch changes some."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery


# Keys that one epoch brings: more of them at once take much memory, in Spark and in the capture.
_KEYS_AN_EPOCH = 1_000_000


@dataclass
class Workload:
    """Input files, one an epoch: the first bring every key, each later one changes some at random.

    Args:
        spark: the session that runs the query.
        folder: where input and checkpoint go.
        keys: how many keys the state has.
        changes: how many of them an epoch changes.
        every: how often the query starts an epoch while it runs; as soon as there is input where that is not given.
    """

    spark: SparkSession
    folder: Path
    keys: int
    changes: int
    every: str | None = None
    epochs: int = field(init=False, default=0)
    """Epochs whose input is there."""

    def __post_init__(self) -> None:
        """Write the first files, which bring all keys, up to a million each."""
        self._random = np.random.default_rng(2013)
        self.checkpoint = self.folder / "checkpoint"
        (self.folder / "input").mkdir(parents=True, exist_ok=True)
        for start in range(0, self.keys, _KEYS_AN_EPOCH):
            self._write(np.arange(start, min(start + _KEYS_AN_EPOCH, self.keys)))

    @property
    def first(self) -> int:
        """The first epoch that has all keys."""
        return (self.keys - 1) // _KEYS_AN_EPOCH

    def change(self) -> None:
        """Add one more epoch's input."""
        self._write(self._random.choice(self.keys, self.changes, replace=False))

    def change_again(self, before: int) -> None:
        """Add one more epoch whose input is a link to an earlier one's, which takes no time."""
        os.link(self._file(self.epochs - before), self._file(self.epochs))
        self.epochs += 1

    def query(self) -> DataFrame:
        """Return the query: count, sum and maximum per key."""
        from pyspark.sql import functions as F

        reader = self.spark.readStream.schema("key string, value double").option("maxFilesPerTrigger", 1)
        frame = reader.parquet(str(self.folder / "input"))
        return frame.groupBy("key").agg(F.count("*").alias("n"), F.sum("value"), F.max("value"))

    def run(self) -> None:
        """Run the query over all input that is there, then end it."""
        self._writer().trigger(availableNow=True).start().awaitTermination()

    def start(self) -> StreamingQuery:
        """Start the query and leave it running."""
        writer = self._writer()
        return (writer.trigger(processingTime=self.every) if self.every else writer).start()

    def _writer(self) -> DataStreamWriter:
        writer = self.query().writeStream.format("noop").outputMode("update")
        return writer.option("checkpointLocation", str(self.checkpoint))

    def _write(self, keys: np.ndarray) -> None:
        values = self._random.random(len(keys))
        file = self._file(self.epochs)
        hidden = file.with_name(f"_{file.name}")
        pq.write_table(pa.table({"key": np.char.add("key-", keys.astype(str)), "value": values}), hidden)
        hidden.rename(file)
        self.epochs += 1

    def _file(self, number: int) -> Path:
        return self.folder / "input" / f"{number:05}.parquet"


def finished(spark: SparkSession, folder: Path, keys: int, changes: int, epochs: int) -> Workload:
    """Return a query that has run, with some epochs after those that bring all keys."""
    load = Workload(spark, folder, keys, changes)
    for _ in range(epochs):
        load.change()
    load.run()
    unload_state(spark)
    return load


def unload_state(spark: SparkSession) -> None:
    """Free the state of finished queries; otherwise Spark keeps writing snapshots into their checkpoints."""
    assert spark._jvm is not None
    spark._jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()


def whole_state(spark: SparkSession, checkpoint: Path, epoch: int) -> DataFrame:
    """Return the state at an epoch from Spark's own reader."""
    return spark.read.format("statestore").option("batchId", epoch).load(str(checkpoint))
