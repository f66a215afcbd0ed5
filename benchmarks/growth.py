"""Cost of capturing an epoch as the state grows and the number of changes stays the same."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import Measurement, Size
from benchmarks.plot import publish
from benchmarks.replayed import Stepped
from benchmarks.workload import finished

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SMALLEST = 10_000
# Epochs before the measured ones: the JVM compiles what runs often.
_WARM_UP = 5


def growth(spark: SparkSession, folder: Path, size: Size) -> Iterator[Measurement]:
    """Measure states from 10,000 keys to ``--keys``, each ten times the one before, in turn.

    Every epoch changes 10,000 keys, whatever ``--changes`` says: the smallest state has no more. With ten million
    keys and more the figures and their plot go into the docs.
    """
    sizes = [_SMALLEST]
    while sizes[-1] * 10 <= size.keys:
        sizes.append(sizes[-1] * 10)
    captures = {keys: _finished(spark, folder / str(keys), Size(keys, _SMALLEST, size.epochs)) for keys in sizes}
    took: dict[int, list[float]] = {keys: [] for keys in sizes}
    for _ in range(_WARM_UP + size.epochs):
        for keys, stepped in captures.items():
            took[keys].append(stepped.step())
    seconds = {keys: statistics.median(times[_WARM_UP:]) for keys, times in took.items()}
    if size.keys >= 10_000_000:
        figures = [{"keys": keys, "seconds": round(median, 4)} for keys, median in seconds.items()]
        publish("growth", figures)
    for keys in sizes[1:]:
        setting = f"{_SMALLEST:,} changes an epoch"
        yield Measurement(
            "capture as the state grows",
            f"{keys:,} keys",
            seconds[keys],
            f"{_SMALLEST:,} keys",
            seconds[_SMALLEST],
            size.epochs,
            setting,
            wanted=1 / 1.5,
        )


def _finished(spark: SparkSession, folder: Path, size: Size) -> Stepped:
    """Return a capture of a finished query that has reached the first epoch with all keys."""
    load = finished(spark, folder, size.keys, size.changes, size.epochs + _WARM_UP)
    stepped = Stepped(spark, load.checkpoint, folder / "store")
    for _ in range(load.first + 1):
        stepped.step()
    return stepped
