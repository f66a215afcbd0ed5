"""Whether capture gets slower with the number of state partitions, each of which writes files of its own."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import Measurement, timed
from benchmarks.processes import WarmProcess, call_in_new_process, warm_process
from benchmarks.replayed import Replayed
from benchmarks.size import Size
from benchmarks.workload import Workload, finished

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WARM_UP = 3
_FEW = 2


def partitions(spark: SparkSession, folder: Path, size: Size) -> Iterator[Measurement]:
    """``Checkpoint.capture`` of an epoch, in a warm process and in a new one: many partitions, and two."""
    with ExitStack() as processes:
        sides = [_Side(spark, folder / str(count), size, count, processes) for count in (size.partitions, _FEW)]
        os.sync()
        for _ in range(_WARM_UP + size.epochs):
            for side in sides:
                side.capture()
    many, few = sides
    for question, ours, other in (
        ("Checkpoint.capture of an epoch, process warm", many.warm, few.warm),
        ("the same, in a new process, with its start", many.new, few.new),
    ):
        yield Measurement(
            question,
            f"{size.partitions} partitions",
            statistics.median(ours[_WARM_UP:]),
            f"{_FEW} partitions",
            statistics.median(other[_WARM_UP:]),
            size.epochs,
            str(size),
            wanted=1 / 2,
        )


class _Side:
    """A finished query with so many partitions, and both captures of it."""

    def __init__(self, spark: SparkSession, folder: Path, size: Size, count: int, processes: ExitStack) -> None:
        session = spark.newSession()
        session.conf.set("spark.sql.shuffle.partitions", str(count))
        load: Workload = finished(session, folder / "query", size.keys, size.changes, _WARM_UP + size.epochs)
        self._replayed, self._store = Replayed(load.checkpoint, folder / "new-checkpoint"), folder / "new"
        self._process: WarmProcess = processes.enter_context(warm_process(load.checkpoint, folder / "warm"))
        self.warm: list[float] = []
        self.new: list[float] = []
        for _ in range(load.first + 1):
            self._process.call()
            self._new()

    def capture(self) -> None:
        """Capture one more epoch both ways."""
        self.warm.append(self._process.call().seconds)
        self.new.append(self._new())

    def _new(self) -> float:
        self._replayed.reveal()
        return timed(partial(call_in_new_process, self._replayed.path, self._store))
