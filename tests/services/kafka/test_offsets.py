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
    running.wait(timeout=300)
    result = running.history.live().result().to_pandas()
    assert dict(zip(result["k"], result["count"], strict=True)) == {"k0": 6, "k1": 6}


@pytest.mark.slow
def test_a_recorded_query_has_the_offsets_of_its_topic(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Beside the recording's: to travel by them, and for cuts with a query that reads the topic itself."""
    broker.create("kept")

    def build() -> DataFrame:
        options = {"kafka.bootstrap.servers": broker.servers, "subscribe": "kept", "startingOffsets": "earliest"}
        records = spark.readStream.format("kafka").options(**options).load()
        return records.withColumn("k", F.col("key").cast("string")).groupBy("k").count()

    store = tmp_path / "store"
    for epoch in range(2):
        broker.produce("kept", ((n % 2, f"k{n % 3}", "v") for n in range(6)))
        for name, records_input in (("own", True), ("direct", False)):
            again = ss.start(build(), name, store, trigger="available-now", partitions=2, record_input=records_input)
            assert again.wait(timeout=300) == epoch
    own = ss.open_store(store)["own"]
    words = "kept: partition 0 from {0} to {1}, partition 1 from {0} to {1}"
    assert [read[0] for read in own.epochs()["read"]] == [words.format(0, 2), words.format(3, 5)]
    assert own.epochs()["records"].tolist() == [6, 6]
    assert [own.at(offset={"kept": {0: offset}}).epoch for offset in (3, 5, 6)] == [0, 0, 1]
    assert own.at(offset=own.at(0).offsets).epoch == 0
    cut = ss.cut(store, ["own", "direct"])
    assert (cut.by, cut.exact, cut.epochs) == ("offsets", True, {"own": 1, "direct": 1})
    assert ss.cut(store, ["own", "direct"], at=0).epochs == {"own": 0, "direct": 0}
    broker.expire("kept", {0: 6, 1: 6})
    assert sorted(own.why(0, k="k1").rows["offset"]) == [0, 2]
