"""Rescaling: seconds per million keys, verified, and how long the query stands still."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import streamstate as ss
from benchmarks.harness import Measurement, timed
from benchmarks.workload import Workload
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SPREAD = "spark.sql.shuffle.partitions"
_POLL_SECONDS = 0.05


def rescaling(
    spark: SparkSession, keys: int, changes: int = 10_000, before: int = 2, after: int = 8
) -> Iterator[Measurement]:
    """A query of so many keys goes from some partitions to others.

    Args:
        spark: the session; its setting of shuffle partitions is as before afterwards.
        keys: how many keys the state has.
        changes: how many of them an epoch changes.
        before: how many partitions there are at first.
        after: how many there are to be.
    """
    setting = f"{keys:,} keys, {before} to {after} partitions"
    with tempfile.TemporaryDirectory() as folder:
        load = Workload(spark, Path(folder) / "load", keys, min(changes, keys))
        with _partitions(spark, before):
            load.change()
            load.run()
            query = load.start()
        load.change()
        query.processAllAvailable()
        began = time.perf_counter()
        query.stop()
        report = ss.Checkpoint(load.checkpoint).rescale(after, spark=spark)
        load.change()
        query = load.start()
        still = _first_epoch_after(load.checkpoint, report.epoch, began)
        query.stop()
        started_over = _start_over(spark, load, after)
    per_million = 1_000_000 / keys
    yield Measurement(
        question="rescale, seconds per million keys",
        ours="spread by Spark, then verified key by key",
        ours_value=report.seconds * per_million,
        other="spread by Spark, not verified",
        other_value=report.seconds_spreading * per_million,
        runs=1,
        setting=setting,
    )
    yield Measurement(
        question="how long the query stands still",
        ours="from its stop to its first epoch after the rescale",
        ours_value=still,
        other="starting over with the new number, from the first input",
        other_value=started_over,
        runs=1,
        setting=setting,
    )


def _first_epoch_after(checkpoint: Path, epoch: int, began: float) -> float:
    """Seconds until an epoch after this one is committed."""
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
    """The setting that a query takes over when it starts, as it was again afterwards."""
    before = spark.conf.get(_SPREAD)
    spark.conf.set(_SPREAD, str(count))
    try:
        yield
    finally:
        spark.conf.set(_SPREAD, before or "200")
