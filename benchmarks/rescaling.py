"""Stand-still of a rescale: how long a captured query commits nothing, and how that grows with its keys."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import streamstate as ss
from benchmarks.harness import Measurement, Size, bounded
from benchmarks.workload import Workload
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streamstate.launch.running import Running
    from streamstate.reports import RescaleReport

_FEW, _MANY = 4, 16
_SLOWER = 10
_MOST_SECONDS = 12.0
_WAIT = 600.0


def rescaling(spark: SparkSession, folder: Path, size: Size) -> Iterator[Measurement]:
    """Measure rescales of a running query, 4 to 16 partitions and back, at a tenth of the keys and at all."""
    for keys in (size.keys // _SLOWER, size.keys):
        running, load = _started(spark, folder / f"{keys}", keys, size.changes)
        reports = [_rescaled(running, load, count) for _ in range(size.epochs) for count in (_MANY, _FEW)]
        yield from _compared(keys, reports, _separately(running, load))


def _compared(keys: int, reports: list[RescaleReport], separate: float) -> Iterator[Measurement]:
    for first, (before, after) in enumerate(((_FEW, _MANY), (_MANY, _FEW))):
        chosen = reports[first::2]
        standing = statistics.median(report.seconds_standing or 0.0 for report in chosen)
        phases = {name: statistics.median(report.phases[name] for report in chosen) for name in chosen[0].phases}
        parts = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in phases.items())
        setting = f"{keys:,} keys, {before} to {after} partitions, captured; {parts}"
        question, ours = "stand-still of a rescale", "the query runs: Running.rescale"
        yield bounded(question, ours, standing, _MOST_SECONDS, runs=len(chosen), setting=setting)
        if first == 0:
            other = "stop, a new Spark session, Checkpoint.rescale, start"
            yield Measurement(question, ours, standing, other, separate, runs=len(chosen), setting=setting)


def _started(spark: SparkSession, folder: Path, keys: int, changes: int) -> tuple[Running, Workload]:
    load = Workload(spark, folder / "load", keys, changes)
    checkpoint = load.checkpoint
    running = ss.start(load.query(), "load", folder / "store", checkpoint=checkpoint, partitions=_FEW)
    running.wait(epoch=load.first, timeout=_WAIT)
    return running, load


def _rescaled(running: Running, load: Workload, partitions: int) -> RescaleReport:
    """Rescale once while input waits."""
    load.change()
    running.wait(epoch=running.capture.committed() + 1, timeout=_WAIT)
    for _ in range(3):
        load.change()
    files = CheckpointFiles(load.checkpoint)
    while files.begun()[-1:] == files.committed()[-1:]:  # until the query is busy
        time.sleep(0.001)
    report = running.rescale(partitions)
    running.wait(timeout=_WAIT)
    return report


def _separately(running: Running, load: Workload) -> float:
    """Return the seconds that a rescale takes in a new session, from the stop to the first epoch."""
    load.change()
    running.wait(timeout=_WAIT)
    began = time.perf_counter()
    running.stop()
    load.change()
    subprocess.run([sys.executable, "-m", "benchmarks.rescaling", str(load.folder)], check=True)
    return time.perf_counter() - began


def main() -> None:
    """Rescale a stopped query in this process, and start it until its first epoch."""
    spark = ss.session(**{"spark.driver.memory": "8g"})
    load = Workload(spark, Path(sys.argv[1]), keys=0, changes=0)
    report = ss.Checkpoint(load.checkpoint).rescale(_MANY, spark=spark)
    query = load.start()
    files = CheckpointFiles(load.checkpoint)
    while max(files.committed(), default=-1) <= report.epoch:
        time.sleep(0.01)
    query.stop()


if __name__ == "__main__":
    main()
