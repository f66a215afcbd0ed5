"""Checks of code that reads other topics than its checkpoint has offsets of, with Spark's own start as the oracle."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as f

import streamstate as ss
from services.kafka.broker import Broker
from services.kafka.counting import Counting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LENIENT = {"failOnDataLoss": "false"}
CASES: dict[str, tuple[dict[str, str], list[str]]] = {
    "the same topic": ({"subscribe": "here"}, []),
    "the same topic by a pattern": ({"subscribePattern": "he.e"}, []),
    "the same partitions": ({"assign": '{"here": [0, 1]}'}, []),
    "another topic": ({"subscribe": "there"}, ["topics_lost", "topics"]),
    "another topic by a pattern": ({"subscribePattern": "the.e"}, ["topics_lost", "topics"]),
    "partitions of another topic": ({"assign": '{"there": [0]}'}, ["topics_lost", "topics"]),
    "a pattern that no topic matches": ({"subscribePattern": "nowhere.*"}, ["topics_lost"]),
    "fewer partitions": ({"assign": '{"here": [0]}'}, ["topics_lost"]),
    "another topic, and no failures": ({"subscribe": "there", **LENIENT}, ["topics", "topics"]),
    "one more topic": ({"subscribe": "here, there"}, ["topics"]),
    "one more topic by a pattern": ({"subscribePattern": "t?here"}, ["topics"]),
    "one more topic, which has lost records": ({"subscribe": "here,old"}, ["records_lost"]),
    "the same, and no failures": ({"subscribe": "here,old", **LENIENT}, ["topics"]),
    "a topic that does not exist": ({"subscribe": "here,nowhere"}, ["topics_missing"]),
}


REPEATED = {
    "the same topic by a pattern", "the same partitions", "another topic by a pattern", "partitions of another topic",
    "one more topic by a pattern", "the same, and no failures", "fewer partitions",
}  # fmt: skip
"""Cases that say hardly more than others."""


@pytest.fixture(scope="module")
def query(spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Counting:
    """A query over a topic, with one epoch; there are records for another one."""
    for topic in ("here", "there", "old"):
        broker.create(topic)
        broker.produce(topic, ((n % 2, f"k{n % 5}", "v") for n in range(20)))
    broker.expire("old", {0: 4})
    made = Counting(spark, broker, "here", tmp_path_factory.mktemp("here"), subscribe="here")
    made.run()
    broker.produce("here", ((n % 2, f"k{n % 5}", "v") for n in range(20)))
    return made


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.exhaustive) if case in REPEATED else case for case in CASES]
)
def test_changed_topics_are_refused_where_spark_fails(query: Counting, case: str, tmp_path: Path) -> None:
    """What Spark accepts although the state then means something else is a change."""
    options, kinds = CASES[case]
    code = query.with_only(**options)
    report = query.checkpoint.check(code, store=query.store)
    found = [finding for finding in report.findings if finding.level != "note"]
    assert [finding.kind for finding in found] == kinds, report
    if case == "a pattern that no topic matches":
        return  # Spark waits for one, and fails then
    assert _starts(code(), shutil.copytree(query.path, tmp_path / "copy")) == all(
        finding.level == "changed" for finding in found
    )


def _starts(frame: DataFrame, checkpoint: Path) -> bool:
    writer = frame.writeStream.format("noop").outputMode("update").option("checkpointLocation", str(checkpoint))
    running = writer.trigger(once=True).start()
    try:
        running.awaitTermination(60)
    except StreamingQueryException:
        return False
    return True


@pytest.mark.parametrize(("options", "kind"), [({}, "records_lost"), (LENIENT, "records_skipped")])
def test_records_that_the_next_epoch_lacks(
    spark: SparkSession, broker: Broker, tmp_path: Path, options: dict[str, str], kind: str
) -> None:
    """They have expired before the query has read them."""
    topic = kind.replace("_", "-")
    broker.create(topic, partitions=1)
    broker.produce(topic, ((0, "k", "v") for _ in range(10)))
    query = Counting(spark, broker, kind, tmp_path, subscribe=topic, **options)
    query.run()
    broker.produce(topic, ((0, "k", "v") for _ in range(10)))
    broker.expire(topic, {0: 14})
    report = query.checkpoint.check(query.build, store=query.store)
    found = [finding for finding in report.findings if finding.level != "note"]
    assert [finding.kind for finding in found] == [kind]
    assert f"records 10 to 13 of the topic {topic}, partition 0" in found[0].change
    assert _starts(query.build(), query.path) == (kind == "records_skipped")


def test_sources_that_changed_places_are_refused(
    spark: SparkSession, broker: Broker, query: Counting, tmp_path: Path
) -> None:
    """Their offsets are found by the places."""

    def joined(first: str, second: str) -> DataFrame:
        frames = [
            spark.readStream.format("kafka")
            .options(**{"kafka.bootstrap.servers": broker.servers, "subscribe": topic, "startingOffsets": "earliest"})
            .load()
            for topic in (first, second)
        ]
        return frames[0].union(frames[1]).groupBy(f.col("key").cast("string").alias("k")).count()

    started = (
        (joined("here", "there").writeStream.format("noop").outputMode("update").trigger(once=True))
        .option("checkpointLocation", str(tmp_path / "two"))
        .start()
    )
    started.awaitTermination(60)
    report = ss.Checkpoint(tmp_path / "two").check(lambda: joined("there", "here"))
    assert [finding.kind for finding in report.findings if finding.level == "refused"] == ["topics_lost"] * 2
