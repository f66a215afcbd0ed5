"""Cost of a fork, against copying the checkpoint."""

from __future__ import annotations

import itertools
import shutil
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import streamstate as ss
from benchmarks.harness import Measurement, Size, bounded, timed
from benchmarks.workload import Workload
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FORKS = 9


def forking(spark: SparkSession, folder: Path, size: Size) -> Iterator[Measurement]:
    """Measure seconds and new bytes of forks, at epochs spread over those that Spark retains."""
    work = Workload(spark, folder, size.keys, size.changes)
    for _ in range(size.epochs):
        work.change()
    work.run()
    committed = CheckpointFiles(work.checkpoint).committed()
    chosen = [committed[len(committed) * turn // _FORKS] for turn in range(_FORKS)]
    names = (folder / f"fork{number}" for number in itertools.count())
    forks, copies = [], []
    for epoch in chosen:
        forks.append(ss.Checkpoint(work.checkpoint).fork(next(names), at=epoch))
        copies.append(timed(lambda: shutil.copytree(work.checkpoint, folder / "copy")))
        shutil.rmtree(folder / "copy")
    setting = f"{size.keys:,} keys, {size.changes:,} changes, {len(committed)} epochs retained"
    whole = sum(file.stat().st_size for file in work.checkpoint.rglob("*") if file.is_file())
    seconds = [fork.seconds for fork in forks]
    copied = statistics.median(copies)
    yield Measurement(
        "fork at a retained epoch (median)",
        "fork, verified",
        statistics.median(seconds),
        "copy it all",
        copied,
        _FORKS,
        setting,
    )
    yield bounded("the same, the slowest", "fork, verified", max(seconds), 3.0, runs=_FORKS, setting=setting)
    new = max(fork.new_bytes for fork in forks)
    yield Measurement(
        "new bytes of a fork (most)", "fork", new, "the checkpoint", whole, _FORKS, setting, "B", wanted=20.0
    )
