"""A pipeline: a table with a flow of its own, and one that a flow appends to."""

from __future__ import annotations

from pathlib import Path

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

INPUT = str(Path(__file__).parent / "in")


def events() -> DataFrame:
    """Return the input."""
    reader = SparkSession.active().readStream.schema("k string, v long, at timestamp")
    return reader.json(INPUT).withWatermark("at", "1 minute")


@dp.table
def per_minute() -> DataFrame:
    """Return the total of each minute and key."""
    return events().groupBy(F.window("at", "1 minute"), "k").agg(F.sum("v").alias("total"))


dp.create_streaming_table("seen")


@dp.append_flow(target="seen")
def first() -> DataFrame:
    """Return the first row of each key."""
    return events().dropDuplicatesWithinWatermark(["k"])
