"""How long a query that is killed takes to commit its next epoch, by the size of its state."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import streamstate as ss
from benchmarks.harness import Measurement
from benchmarks.size import Size
from benchmarks.workload import Workload
from streamstate.operations.drill import drill
from streamstate.reports import DrillReport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KILLS = 3
_EPOCHS = 4
_AFTER = 1


def recovering(_spark: object, folder: Path, size: Size) -> Iterator[Measurement]:
    """Seconds from the kill of the whole query to the first epoch committed after it, against the start of Spark alone.

    Medians over a few kills. What Spark's start takes out of that is no matter of state; the rest is planning, loading
    state and the epoch. Every drill verifies that the state is that of a run that never failed.

    Args:
        _spark: not used: a drill's Spark runs in processes of its own.
        folder: where to work.
        size: how many keys the state has, and how many of them an epoch changes.
    """
    build_query = _workload(folder, size)
    reports = [_killed(build_query, folder / f"kill-{number}") for number in range(_KILLS)]
    total = statistics.median(report.seconds_to_recover for report in reports)
    starting = statistics.median(
        report.phases["to start Python"] + report.phases["to start Spark"] for report in reports
    )
    loading = statistics.median(report.loading_seconds or 0.0 for report in reports)
    yield Measurement(
        "from kill to first committed epoch",
        "the whole query killed",
        total,
        "of that, starting Python and Spark",
        starting,
        _KILLS,
        f"{size}; loading state {loading:.2f} s, all tasks together",
    )


def _killed(build_query: Callable[[], DataFrame], folder: Path) -> DrillReport:
    report = drill(build_query, after=_AFTER, directory=folder, partitions=2, timeout=3600)
    if not (report.ok and report.aligned and report.in_flight):
        raise AssertionError(f"this drill measures nothing:\n{report!r}")
    return report


def _workload(folder: Path, size: Size) -> Callable[[], DataFrame]:
    """The function that builds the query over files that are there: the first brings every key."""
    no_session: Any = None  # the files are written without Spark
    load = Workload(no_session, folder, size.keys, size.changes)
    for _ in range(_EPOCHS - 1):
        load.change()
    return partial(_query, folder)


def _query(folder: Path) -> DataFrame:
    """The query of :class:`Workload`, in another process."""
    from pyspark.sql import functions as F

    reader = ss.session().readStream.schema("key string, value double").option("maxFilesPerTrigger", 1)
    frame = reader.parquet(str(folder / "input"))
    return frame.groupBy("key").agg(F.count("*").alias("n"), F.sum("value"), F.max("value"))
