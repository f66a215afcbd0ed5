"""A query over a topic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

import streamstate as ss
from services.kafka.broker import Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def test_records_lead_to_the_state_and_back(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """The state has the counts of the records, and `why` finds the records of a key."""
    broker.create("first")
    broker.produce("first", ((n % 2, f"k{n % 5}", json.dumps({"n": n})) for n in range(100)))

    def build() -> DataFrame:
        options = {"kafka.bootstrap.servers": broker.servers, "subscribe": "first", "startingOffsets": "earliest"}
        records = spark.readStream.format("kafka").options(**options).load()
        return records.groupBy(f.col("key").cast("string").alias("k")).count()

    running = ss.start(build(), "first", tmp_path / "store", trigger="available-now", partitions=2)
    running.wait(timeout=300)
    result = running.history.live().result().to_pandas()
    assert dict(zip(result["k"], result["count"], strict=True)) == {f"k{n}": 20 for n in range(5)}
    why = running.history.why(0, k="k3")
    assert why.count() == 20
