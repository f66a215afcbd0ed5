"""Time to recover from a kill, by the size of the state."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import streamstate as ss
from benchmarks.harness import Measurement, Size
from benchmarks.workload import Workload
from streamstate.operations.drill import drill
from streamstate.reports import DrillReport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KILLS = 3
_AFTER = 1


def recovering(_spark: object, folder: Path, size: Size) -> Iterator[Measurement]:
    """Measure the seconds from a kill to the next committed epoch, for a small state and for the given one.

    Starting Python and Spark does not depend on the state; the rest is planning, loading state and the epoch.
    """
    for keys, changes in ((10_000, 1_000), (size.keys, size.changes)):
        yield from _recovered(folder / str(keys), Size(keys, changes, size.epochs))


def _recovered(folder: Path, size: Size) -> Iterator[Measurement]:
    """Measure a few kills; each drill checks that the state is that of a run that never failed."""
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
    """Write the input files and return the function that builds the query over them."""
    no_session: Any = None  # the files are written without Spark
    load = Workload(no_session, folder, size.keys, size.changes)
    for _ in range(size.epochs - 1):
        load.change()
    return partial(count_by_key, folder)


def count_by_key(folder: Path) -> DataFrame:
    """Build the query of :class:`Workload` in another process."""
    from pyspark.sql import functions as F

    reader = ss.session().readStream.schema("key string, value double").option("maxFilesPerTrigger", 1)
    frame = reader.parquet(str(folder / "input"))
    return frame.groupBy("key").agg(F.count("*").alias("n"), F.sum("value"), F.max("value"))
