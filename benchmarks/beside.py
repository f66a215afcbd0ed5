"""Slowdown of a query's batches while ``streamstate follow`` runs beside it."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import Measurement, Size
from benchmarks.processes import call_in_new_process, follower
from benchmarks.workload import Workload

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

# Which blocks of epochs are followed: both sides come early and late alike, because the JVM speeds up all the while.
_BLOCKS = (False, True, True, False, False, True, True, False, False, True)
# Epochs whose input waits, so that the query does not.
_AHEAD = 5
# So many inputs differ; then they come again.
_DIFFERENT = 20
_LOOK_SECONDS = 0.02


def back_to_back(spark: SparkSession, folder: Path, size: Size) -> Iterator[Measurement]:
    """Measure the batches of a query that never pauses, with a follower and without."""
    yield _batches(Workload(spark, folder, size.keys, size.changes), size, "epochs without a pause", 1.03)


def paced(spark: SparkSession, folder: Path, size: Size) -> Iterator[Measurement]:
    """Measure the batches of a query that starts an epoch every two seconds, with a follower and without."""
    yield _batches(Workload(spark, folder, size.keys, size.changes, "2 seconds"), size, "an epoch every 2 s", 1.03)


def _batches(load: Workload, size: Size, how: str, longer: float) -> Measurement:
    """Return the median batch in alternating blocks of ``size.epochs`` epochs of one run, as Spark measures it.

    A follower that starts captures first what was committed since the last one. Those epochs do not count.
    """
    store = load.folder / "store"
    for _ in range(_DIFFERENT):
        load.change()
    query = load.start()
    took: dict[bool, list[list[float]]] = {True: [], False: []}
    try:
        _run_until(load, load.first + _AHEAD)
        call_in_new_process(load.checkpoint, store)
        for followed in _BLOCKS:
            with ExitStack() as block:
                if followed:
                    follow = block.enter_context(follower(load.checkpoint, store))
                    while not follow.reached(_newest(load) - 1):
                        _run_until(load, _newest(load) + 1)
                first = _newest(load) + 2
                _run_until(load, first + size.epochs)
            took[followed].append(_durations(query, range(first, first + size.epochs)))
    finally:
        query.stop()
    # The first block of each side warms up.
    ours, other = ([seconds for block in took[side][1:] for seconds in block] for side in (True, False))
    return Measurement(
        f"the query's batch, {how}",
        "with a follower",
        statistics.median(ours),
        "without",
        statistics.median(other),
        len(ours),
        str(size),
        wanted=1 / longer,
    )


def _run_until(load: Workload, epoch: int) -> None:
    """Wait until the query has committed an epoch; it never waits for input meanwhile."""
    while (newest := _newest(load)) < epoch:
        while load.epochs <= newest + _AHEAD:
            load.change_again(_DIFFERENT)
        threading.Event().wait(_LOOK_SECONDS)


def _newest(load: Workload) -> int:
    """Return the newest committed epoch; −1 before the first."""
    commits = load.checkpoint / "commits"
    return max((int(file.name) for file in commits.glob("[0-9]*")), default=-1)


def _durations(query: StreamingQuery, epochs: range) -> list[float]:
    """Return each epoch's seconds from Spark's progress events."""
    progress = {event["batchId"]: event["durationMs"] for event in query.recentProgress}
    return [float(progress[epoch]["triggerExecution"]) / 1000 for epoch in epochs]
