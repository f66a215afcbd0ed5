"""Cost of rescaling: seconds per million keys, verified, and how long the query is down."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import streamstate as ss
from benchmarks.harness import Measurement, Size, timed
from benchmarks.workload import Workload
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SPREAD = "spark.sql.shuffle.partitions"
_POLL_SECONDS = 0.05
_BEFORE, _AFTER = 2, 8


def rescaling(spark: SparkSession, folder: Path, size: Size) -> Iterator[Measurement]:
    """Measure the rescale of a query from two partitions to eight, and how long the query is down."""
    setting = f"{size.keys:,} keys, {_BEFORE} to {_AFTER} partitions"
    load = Workload(spark, folder / "load", size.keys, size.changes)
    with _partitions(spark, _BEFORE):
        load.change()
        load.run()
        query = load.start()
    load.change()
    query.processAllAvailable()
    began = time.perf_counter()
    query.stop()
    report = ss.Checkpoint(load.checkpoint).rescale(_AFTER, spark=spark)
    load.change()
    query = load.start()
    down = _first_epoch_after(load.checkpoint, report.epoch, began)
    query.stop()
    started_over = _start_over(spark, load, _AFTER)
    per_million = 1_000_000 / size.keys
    yield Measurement(
        question="rescale, seconds per million keys",
        ours="repartitioned by Spark, then verified key by key",
        ours_value=report.seconds * per_million,
        other="repartitioned by Spark, not verified",
        other_value=report.seconds_spreading * per_million,
        runs=1,
        setting=setting,
    )
    yield Measurement(
        question="how long the query is down",
        ours="from its stop to its first epoch after the rescale",
        ours_value=down,
        other="starting over with the new number, from the first input",
        other_value=started_over,
        runs=1,
        setting=setting,
    )


def _first_epoch_after(checkpoint: Path, epoch: int, began: float) -> float:
    """Return the seconds until an epoch after this one is committed."""
    files = CheckpointFiles(checkpoint)
    while max(files.committed(), default=-1) <= epoch:
        time.sleep(_POLL_SECONDS)
    return time.perf_counter() - began


def _start_over(spark: SparkSession, load: Workload, partitions: int) -> float:
    load.checkpoint = load.folder / "started_over"
    with _partitions(spark, partitions):
        return timed(load.run)


@contextmanager
def _partitions(spark: SparkSession, count: int) -> Iterator[None]:
    """Set the number of partitions that a new query takes over."""
    before = spark.conf.get(_SPREAD)
    spark.conf.set(_SPREAD, str(count))
    try:
        yield
    finally:
        spark.conf.set(_SPREAD, before or "200")
