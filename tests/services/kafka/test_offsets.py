"""Offsets of topics: of epochs, of recordings, and of new checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

import streamstate as ss
from services.kafka.broker import Broker
from streamstate.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def test_a_bootstrap_needs_the_offsets_of_all_partitions(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Spark would read the missing one from its beginning, so records would count twice."""
    broker.create("three", partitions=3)
    broker.produce("three", ((n % 3, f"k{n % 2}", "v") for n in range(12)))

    def build() -> DataFrame:
        options = {"kafka.bootstrap.servers": broker.servers, "subscribe": "three", "startingOffsets": "earliest"}
        records = spark.readStream.format("kafka").options(**options).load()
        return records.withColumn("k", F.col("key").cast("string")).groupBy("k").count()

    state = spark.createDataFrame([("k0", 3), ("k1", 3)], "k string, count bigint")
    two = [{"three": {"0": 2, "2": 2}}]
    with pytest.raises(InvalidArgumentError, match=r"The offset of source 0 lacks partition 1 of three\.\nName every"):
        ss.bootstrap(build, to=tmp_path / "new", state=state, offsets=two)
    made = ss.bootstrap(build, to=tmp_path / "new", state=state, offsets=[{"three": {0: 2, "1": 2, "2": 2}}])
    running = ss.start(build(), "three", tmp_path / "store", checkpoint=made, trigger="available-now")
    running.wait(timeout=60)
    result = running.history.live().result().to_pandas()
    assert dict(zip(result["k"], result["count"], strict=True)) == {"k0": 6, "k1": 6}
