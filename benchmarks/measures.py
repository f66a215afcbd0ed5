"""The questions that are measured."""

from __future__ import annotations

import itertools
import statistics
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import streamstate as ss
from benchmarks.harness import Measurement, alternate, timed
from benchmarks.workload import Workload, whole_state
from streamstate.snapshots.capture import capturer_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    keys: int
    changes: int
    epochs: int

    def __str__(self) -> str:
        """For the table."""
        return f"{self.keys:,} keys, {self.changes:,} changes an epoch"


def capture(spark: SparkSession, folder: Path, size: Size) -> Iterator[Measurement]:
    """Capturing an epoch against copying the whole state at it, epoch by epoch."""
    load = Workload(spark, folder / "capture", size.keys, size.changes)
    load.run()
    capturer = capturer_for(load.checkpoint, folder / "capture" / "store", "load", spark)
    capturer.run()
    ours, other = [], []
    for epoch in range(1, size.epochs + 2):
        load.change()
        load.run()
        ours.append(timed(capturer.run))
        copy = str(folder / "capture" / "copies" / str(epoch))
        other.append(timed(partial(whole_state(spark, load.checkpoint, epoch).write.parquet, copy)))
    yield Measurement(
        "capture one epoch",
        "changes to Delta",
        statistics.median(ours[1:]),
        "whole state to Parquet with Spark's reader",
        statistics.median(other[1:]),
        size.epochs,
        str(size),
    )


def reading(spark: SparkSession, folder: Path, size: Size) -> Iterator[Measurement]:
    """A point lookup and a past epoch's top rows, against Spark's state reader."""
    load = Workload(spark, folder / "reading", size.keys, size.changes)
    for _ in range(size.epochs):
        load.change()
    load.run()
    ss.capture(load.checkpoint, folder / "reading" / "store", "load", spark=spark)
    history = ss.open_store(folder / "reading" / "store")["load"]
    past, newest = size.epochs // 2, size.epochs
    history.at(past).table().count()

    def in_index(epoch: int) -> object:
        return history.at(epoch).table().lookup(key="key-77")

    def in_spark(epoch: int) -> object:
        return whole_state(spark, load.checkpoint, epoch).where("key.key = 'key-77'").collect()

    for name, epoch in (("live", newest), ("past", past)):
        ours, other = alternate(partial(in_index, epoch), partial(in_spark, epoch), 5)
        yield Measurement(f"look up one key, {name}", "lookup", ours, "Spark's reader, filtered", other, 5, str(size))

    def top() -> object:
        return history.at(past).table().page(limit=100, order_by="max", descending=True)

    def top_in_spark() -> object:
        return whole_state(spark, load.checkpoint, past).orderBy("value.max", ascending=False).limit(100).collect()

    ours, other = alternate(top, top_in_spark, 5)
    yield Measurement("top 100 at a past epoch", "page", ours, "Spark's reader, sorted", other, 5, str(size))


def batch_time(spark: SparkSession, folder: Path, size: Size) -> Iterator[Measurement]:
    """The query's batch time with capture beside it and without, in alternating blocks of the same run.

    Epochs follow each other at once, so each is captured while the next one runs. The first of each block does not
    count: the capture reads then, once, what it keeps between epochs.
    """
    load = Workload(spark, folder / "batches", size.keys, size.changes)
    store = folder / "batches" / "store"
    query = load.start()
    epochs = itertools.count(1)
    _committed(load, 0)
    took: dict[bool, list[float]] = {True: [], False: []}
    try:
        for block in range(6):
            ss.capture(load.checkpoint, store, "load", spark=spark)
            following = ss.follow(load.checkpoint, store, "load", spark=spark) if block % 2 else None
            _one_batch(load, query, epoch := next(epochs))
            if following is not None:
                following.wait(epoch)
            for _ in range(max(3, size.epochs // 3)):
                took[following is not None].append(_one_batch(load, query, next(epochs)))
            if following is not None:
                following.stop()
    finally:
        query.stop()
    with_capture, without = (statistics.median(took[side]) for side in (True, False))
    yield Measurement("the query's batch", "with capture", with_capture, "without", without, len(took[True]), str(size))


def _one_batch(load: Workload, query: object, epoch: int) -> float:
    """Seconds that Spark says the epoch took."""
    load.change()
    _committed(load, epoch)
    while True:
        progress = query.lastProgress  # type: ignore[attr-defined]  # a StreamingQuery
        if progress is not None and progress["batchId"] == epoch and "addBatch" in progress["durationMs"]:
            return float(progress["durationMs"]["triggerExecution"]) / 1000
        threading.Event().wait(0.02)


def _committed(load: Workload, epoch: int) -> None:
    """Wait until the query has committed an epoch."""
    while not (load.checkpoint / "commits" / str(epoch)).exists():
        threading.Event().wait(0.02)


ALL = {"capture": capture, "reading": reading, "batch_time": batch_time}
