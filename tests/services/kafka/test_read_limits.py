"""A limit of rows that is moved while a query runs: a topic obeys it, and what the options set is never exceeded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from services.kafka.broker import Broker
from streamstate.snapshots.spark.read_limits import ReadLimits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("options", "own", "limited"),
    [
        pytest.param({}, None, 20, marks=pytest.mark.exhaustive),
        ({"maxOffsetsPerTrigger": "50"}, 50, 20),
        pytest.param({"minOffsetsPerTrigger": "1"}, None, 20, marks=pytest.mark.exhaustive),
    ],
)
def test_a_topic_obeys_a_limit(
    spark: SparkSession, broker: Broker, tmp_path: Path, options: dict[str, str], own: int | None, limited: int
) -> None:
    """It acts from the next epoch on, and is lifted to what the options say."""
    topic = f"limited{len(options)}{own}{'min' if 'minOffsetsPerTrigger' in options else ''}"
    broker.create(topic)
    settings = {"kafka.bootstrap.servers": broker.servers, "subscribe": topic, "startingOffsets": "earliest"}
    records = spark.readStream.format("kafka").options(**settings, **options).load()
    writer = records.groupBy("key").count().writeStream.format("noop").outputMode("update")
    query = (
        writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="200 milliseconds")
        .start()
    )
    try:
        broker.produce(topic, ((n % 2, "k", "v") for n in range(10)))
        query.processAllAvailable()
        limits = ReadLimits(spark, query)
        [source] = limits.sources()
        assert (source.unit, source.own) == ("rows", own)
        for limit, expected in ((20, limited), (1000, own), (None, own)):
            limits.set([limit])
            before = query.lastProgress["batchId"] if query.lastProgress else -1
            broker.produce(topic, ((n % 2, "k", "v") for n in range(200)))
            query.processAllAvailable()
            later = [report for report in query.recentProgress if report["batchId"] > before + 1]
            read = [report["numInputRows"] for report in later if report["numInputRows"]]
            if expected is not None:
                assert max(read) <= expected
                assert len(read) >= 200 // expected - 2
    finally:
        query.stop()
