"""Epochs of NEXMark's queries with each epoch captured, and without."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import streamstate as ss
from benchmarks.harness import Measurement, Size
from benchmarks.nexmark.generator import SCHEMA, Events
from benchmarks.nexmark.queries import QUERIES, Query, Stream
from benchmarks.workload import unload_state
from streamstate.tutorials import broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PARTITIONS = 2
_EVENTS = Events()
_WARM = 5
"""Epochs at the start of each run that do not count, at most half of them."""
_SAMPLED = 6
"""With too few epochs to measure, which only show that it works, one query in so many is run."""
_LONGEST = 1.05


def nexmark(spark: SparkSession, folder: Path, size: Size) -> Iterator[Measurement]:
    """Measure NEXMark's stateful queries over files, captured and not, in turns."""
    _write(folder / "input", size)
    yield from _measured(partial(from_files, spark, folder / "input"), folder, size, "files")


def nexmark_kafka(_: object, folder: Path, size: Size) -> Iterator[Measurement]:
    """Measure NEXMark's stateful queries over a topic, captured and not, in turns."""
    folder.mkdir(parents=True)
    arguments = map(str, (folder, size.keys, size.changes, size.epochs))
    command = [sys.executable, "-m", "benchmarks.nexmark.measuring", *arguments]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as child:
        assert child.stdout is not None
        yield from (Measurement(**json.loads(line)) for line in child.stdout)
    assert child.returncode == 0, child.returncode


def from_files(spark: SparkSession, folder: Path) -> DataFrame:
    """Return the events of a folder as a stream, a file an epoch."""
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))


def _from_topic(spark: SparkSession, servers: str, an_epoch: int) -> DataFrame:
    from pyspark.sql import functions as F

    options = {
        "kafka.bootstrap.servers": servers,
        "subscribe": "events",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(an_epoch),
    }
    records = spark.readStream.format("kafka").options(**options).load()
    return records.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("event")).select("event.*")


def _write(folder: Path, size: Size) -> None:
    _EVENTS.write(folder, 0, size.changes * size.epochs, size.changes)


def _fill(spark: SparkSession, servers: str, folder: Path) -> None:
    """Write the events to a topic as JSON, in their order, an equal part to each partition."""
    for file in sorted(folder.glob("*.parquet")):
        events = spark.read.schema(SCHEMA).parquet(str(file)).coalesce(1)
        rows = events.selectExpr("to_json(struct(*)) AS value", f"CAST(number % {_PARTITIONS} AS int) AS partition")
        rows.write.format("kafka").options(**{"kafka.bootstrap.servers": servers, "topic": "events"}).save()


def _measured(load: Callable[[], DataFrame], folder: Path, size: Size, source: str) -> Iterator[Measurement]:
    """Run each query ``size.keys`` times captured and as often not; of several runs, after one that does not count."""
    stream = Stream(load, _EVENTS.longest_auction)
    every = _SAMPLED if size.epochs <= _WARM else 1
    for name, query in [*QUERIES.items()][::every]:
        before = os.getloadavg()[0]
        if size.keys > 1:
            _run(stream, name, query, folder / "run", captured=True)
        took: dict[bool, list[list[float]]] = {True: [], False: []}
        for turn in range(2 * size.keys):
            captured = turn % 4 in (1, 2)  # neither side always comes first
            took[captured].append(_run(stream, name, query, folder / "run", captured=captured))
        load_average = f"load average {before:.1f} before, {os.getloadavg()[0]:.1f} after"
        setting = f"{source}, {size.changes:,} events an epoch, {size.epochs} epochs; {load_average}"
        yield from _compared(name, took, size, setting)


def _compared(name: str, took: dict[bool, list[list[float]]], size: Size, setting: str) -> Iterator[Measurement]:
    """Compare the medians of both sides' runs: of the 50th and the 99th percentile, and of the events a second."""
    for percent, wanted in ((50, None), (99, 1 / _LONGEST)):
        on, off = (
            statistics.median(float(np.percentile(run, percent)) for run in took[side]) for side in (True, False)
        )
        question = f"{name}: {percent}th percentile of epochs"
        yield Measurement(question, "captured", on, "not captured", off, size.keys, setting, wanted=wanted)
    on, off = (statistics.median(statistics.fmean(run) for run in took[side]) for side in (True, False))
    labels = (f"{how}, {size.changes / seconds:,.0f} events/s" for how, seconds in (("captured", on), ("not", off)))
    million = 1_000_000 / size.changes
    ours, other = labels
    yield Measurement(f"{name}: a million events", ours, on * million, other, off * million, size.keys, setting)


def _run(stream: Stream, name: str, query: Query, folder: Path, *, captured: bool) -> list[float]:
    """Run a query over all events and return the seconds of each epoch with events, as Spark measures them."""
    frame = query.build(stream)
    spark, checkpoint = frame.sparkSession, folder / "checkpoint"
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "100000")
    if captured:
        trigger = "available-now"
        running = ss.start(frame, name, folder / "store", checkpoint=checkpoint, mode=query.mode, trigger=trigger)
        running.wait()
        assert running.query is not None
        progress = running.query.recentProgress
        running.stop()
    else:
        writer = frame.writeStream.format("noop").outputMode(query.mode).trigger(availableNow=True)
        plain = writer.option("checkpointLocation", str(checkpoint)).start()
        plain.awaitTermination()
        progress = plain.recentProgress
    unload_state(spark)
    shutil.rmtree(folder)
    took = [event["durationMs"]["triggerExecution"] / 1000 for event in progress if event["numInputRows"]]
    return took[min(_WARM, len(took) // 2) :]


def _main(folder: Path, size: Size) -> None:
    """Print the measurements over a topic as lines of JSON."""
    spark = ss.session(
        **{"spark.jars": broker.connector(), "spark.sql.shuffle.partitions": "2", "spark.driver.memory": "4g"}
    )
    kafka = broker.Broker(folder / "broker", num_partitions=str(_PARTITIONS), log_retention_ms="-1")
    try:
        _write(folder / "input", size)
        _fill(spark, kafka.servers, folder / "input")
        load = partial(_from_topic, spark, kafka.servers, size.changes)
        for measurement in _measured(load, folder, size, "a topic of 2 partitions"):
            print(json.dumps(asdict(measurement)), flush=True)
    finally:
        kafka.stop()
        spark.stop()


if __name__ == "__main__":
    _main(Path(sys.argv[1]), Size(*map(int, sys.argv[2:])))
