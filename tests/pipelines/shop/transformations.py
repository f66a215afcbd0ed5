"""A pipeline: a table of its own flow, a table that two flows append to, and a view over both."""
# ruff: noqa: F821 (a run of a pipeline defines spark)

from __future__ import annotations

from pathlib import Path

from pyspark import pipelines as dp
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

INPUT = str(Path(__file__).parent / "in")


def events() -> DataFrame:
    """The input."""
    return spark.readStream.schema("k string, v long, at timestamp").json(INPUT).withWatermark("at", "1 minute")


@dp.table
def per_minute() -> DataFrame:
    """The total of each minute and key."""
    return events().groupBy(F.window("at", "1 minute"), "k").agg(F.sum("v").alias("total"))


dp.create_streaming_table("seen")


@dp.append_flow(target="seen")
def first() -> DataFrame:
    """The first row of each key."""
    return events().dropDuplicatesWithinWatermark(["k"])
