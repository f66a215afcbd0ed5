"""Questions about an epoch of a query over Kafka, beside a broker on this machine."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

import streamstate as ss
from benchmarks.harness import Measurement, Size, bounded, timed
from streamstate.tutorials import broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PARTITIONS = 4
_OF_A_KEY = 20
"""Records of each key in each epoch."""
_LIMIT = 3
"""Seconds."""


def topic(_: object, folder: Path, size: Size) -> Iterator[Measurement]:
    """Ask why a key changed in an epoch of a topic, against a batch query of the topic for the same records."""
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "benchmarks.topic", *map(str, (folder, size.keys, size.changes, size.epochs))]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent.parent)
    ours, others = (statistics.median(seconds) for seconds in json.loads(done.stdout.splitlines()[-1]))
    setting = f"{size.keys:,} records, {size.changes:,} an epoch"
    question = f"why, of a key with {_OF_A_KEY} records"
    yield bounded(question, "from Python", ours, _LIMIT, runs=size.epochs, setting=setting)
    yield Measurement(question, "from Python", ours, "a batch query of the topic", others, size.epochs, setting)


def _asked(folder: Path, records: int, an_epoch: int, epochs: int) -> tuple[list[float], list[float]]:
    """Return the seconds of each question, and of each batch query."""
    spark = ss.session(**{"spark.jars": broker.connector(), "spark.sql.shuffle.partitions": "2"})
    kafka = broker.Broker(folder / "broker", num_partitions=str(_PARTITIONS), log_retention_ms="-1")
    try:
        _fill(spark, kafka, records, an_epoch)
        options = {
            "kafka.bootstrap.servers": kafka.servers,
            "subscribe": "events",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(an_epoch),
        }

        def build() -> DataFrame:
            events = spark.readStream.format("kafka").options(**options).load()
            return events.groupBy(F.col("key").cast("string").alias("k")).count()

        running = ss.start(build(), "events", folder / "store", trigger="available-now", partitions=2)
        running.wait()
        everything = spark.read.format("kafka").options(**options | {"endingOffsets": "latest"}).load()
        of_key = everything.where(F.col("key").cast("string") == "k7")
        history = running.history
        newest = history.live().epoch
        ours, others = [], []
        for epoch in range(newest - epochs, newest):
            first, last = (at * an_epoch // _PARTITIONS for at in (epoch, epoch + 1))
            of_epoch = of_key.where((F.col("offset") >= first) & (F.col("offset") < last))
            ours.append(timed(partial(_check, partial(history.why, epoch, k="k7"))))
            others.append(timed(partial(_check, partial(of_epoch.select, "*"))))
        return ours, others
    finally:
        kafka.stop()
        spark.stop()


def _check(records: Callable[[], Any]) -> None:
    """Count the records that a call returns."""
    assert records().count() == _OF_A_KEY


def _fill(spark: SparkSession, kafka: broker.Broker, records: int, an_epoch: int) -> None:
    """Write the records: each partition has an equal part, in which each epoch has the same keys."""
    keys, part = an_epoch // _OF_A_KEY, records // _PARTITIONS
    numbers = spark.range(0, records, 1, _PARTITIONS)
    rows = numbers.selectExpr(
        f"concat('k', id % {part} % {keys}) AS key",
        "concat('{\"n\": ', id, '}') AS value",
        f"CAST(id DIV {part} AS int) AS partition",
    )
    options = {"kafka.bootstrap.servers": kafka.servers, "topic": "events", "kafka.linger.ms": "20"}
    rows.write.format("kafka").options(**options).save()


if __name__ == "__main__":
    print(json.dumps(_asked(Path(sys.argv[1]), *map(int, sys.argv[2:]))))
