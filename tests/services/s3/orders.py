"""A query whose input, checkpoint and store are all in a bucket."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from capturing.buckets import Bucket
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import streamstate as ss
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.spark.state_reader import StateReader
from streamstate.snapshots.store.delta import Place


@dataclass
class Orders:
    """The query sums orders by customer; each file of orders is an epoch."""

    spark: SparkSession
    bucket: Bucket
    name: str
    files: int = field(default=0, init=False)

    def add(self, rows: int = 12) -> None:
        """Add the orders of an epoch; names in order of time, which the server keeps to the second."""
        first = 100 * self.files
        table = pa.table({"k": [f"k{row % 5}" for row in range(rows)], "v": [first + row for row in range(rows)]})
        content = io.BytesIO()
        pq.write_table(table, content)
        files = Place(f"{self.bucket.uri}/{self.name}/input", self.bucket.options).filesystem()
        with files.open_output_stream(f"{self.files:05}.parquet") as file:
            file.write(content.getvalue())
        self.files += 1

    def uri(self, name: str) -> str:
        """The path of a folder in the bucket, as Hadoop names it."""
        return f"s3a://bucket/{self.name}/{name}"

    @property
    def store(self) -> str:
        """The store, as deltalake names it."""
        return f"{self.bucket.uri}/{self.name}/store"

    def checkpoint(self, name: str = "checkpoint") -> ss.Checkpoint:
        """A checkpoint in the bucket."""
        return ss.Checkpoint(self.uri(name), storage_options=self.bucket.options)

    def build(self, *more: str, where: str = "true") -> DataFrame:
        """The streaming query; ``more`` are further aggregates, and ``where`` is a condition."""
        reader = self.spark.readStream.schema("k string, v long").option("maxFilesPerTrigger", 1)
        return self._summed(reader.parquet(self.uri("input")).where(where), more)

    def batch(self, epochs: slice = slice(None)) -> list[tuple[Any, ...]]:
        """The result over the orders of some epochs, as a batch."""
        paths = [f"{self.uri('input')}/{number:05}.parquet" for number in range(self.files)]
        return as_rows(self._summed(self.spark.read.parquet(*paths[epochs]), ()))

    @staticmethod
    def _summed(orders: DataFrame, more: Iterable[str]) -> DataFrame:
        named = [F.expr(f"{name}(v)").alias(name) for name in ("sum", "count", *more)]
        return orders.groupBy("k").agg(*named)

    def run(self, name: str = "checkpoint") -> None:
        """Run the query as plain Spark does, over what there is."""
        writer = self.build().writeStream.format("noop").outputMode("update")
        query = writer.option("checkpointLocation", self.uri(name)).trigger(availableNow=True).start()
        query.awaitTermination()

    def state(self, name: str = "checkpoint") -> list[tuple[Any, ...]]:
        """The newest state that Spark's own reader finds."""
        checkpoint = CheckpointFiles(self.uri(name), self.spark)
        newest = checkpoint.committed()[-1]
        reader = StateReader(self.spark, checkpoint)
        (source,) = reader.sources(newest)
        return as_rows(reader.table(source, newest))


def as_rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    """The rows of a frame, sorted."""
    return sorted(tuple(row) for row in frame.collect())
