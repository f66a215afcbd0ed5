"""Cost of stepping a fork, against running the query from scratch to the same epoch."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import streamstate as ss
from benchmarks.harness import Measurement, Size, bounded, timed
from benchmarks.workload import Workload

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def stepping_forks(spark: SparkSession, folder: Path, size: Size) -> Iterator[Measurement]:
    """Measure the steps of a fork, from a query's third epoch."""
    work = Workload(spark, folder, size.keys, size.changes)
    for _ in range(size.epochs + 1):
        work.change()
    work.run()
    fork = ss.Checkpoint(work.checkpoint).fork(folder / "fork", at=0)
    fork.step(work.query)
    steps = [timed(lambda: fork.step(work.query)) for _ in range(size.epochs)]
    # The same query over the same files, from nothing up to the epoch that the fork has reached.
    again = work.query().writeStream.format("noop").outputMode("update").trigger(availableNow=True)
    scratch = timed(lambda: again.option("checkpointLocation", str(folder / "scratch")).start().awaitTermination())
    setting = f"{size.keys:,} keys, {size.changes:,} changes an epoch, {size.epochs} epochs"
    seconds = statistics.median(steps)
    yield Measurement(
        "a step (median) against restarting from scratch to the last epoch",
        "step",
        seconds,
        "from scratch",
        scratch,
        size.epochs,
        setting,
        wanted=20.0,
    )
    yield bounded("a step, the slowest", "step", max(steps), 1.5, runs=size.epochs, setting=setting)
