"""Cost of capture in a process without Spark, against copying the whole state."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import Measurement, Size, bounded, timed
from benchmarks.processes import (
    Took,
    call_in_new_process,
    command_in_new_process,
    median_seconds,
    warm_process,
)
from benchmarks.replayed import Replayed
from benchmarks.workload import finished, whole_state

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Epochs before the measured ones: the JVM compiles what runs often.
_WARM_UP = 5
_TOGETHER = 4
_NEW_PROCESSES = {
    "Python: import streamstate; Checkpoint.capture": call_in_new_process,
    "command line: streamstate capture": command_in_new_process,
}


def alone(spark: SparkSession, folder: Path, size: Size) -> Iterator[Measurement]:
    """Measure the capture of an epoch, in a follower and in a new process, against a full copy with Spark's reader.

    The query is finished; all sides take turns, epoch by epoch. Then several epochs in a pass.
    """
    measured = _WARM_UP + size.epochs
    load = finished(spark, folder / "query", size.keys, size.changes, measured + _TOGETHER * size.epochs)
    new = {how: Replayed(load.checkpoint, folder / f"new-{at}-checkpoint") for at, how in enumerate(_NEW_PROCESSES)}
    with warm_process(load.checkpoint, folder / "warm") as warm:
        for how, replayed in new.items():
            replayed.reveal(load.first + 1)
            _NEW_PROCESSES[how](replayed.path, _store(replayed))
        for _ in range(load.first + 1):
            warm.step()
        following: list[Took] = []
        seconds: dict[str, list[float]] = {how: [] for how in new}
        copies = []
        for epoch in range(load.first + 1, load.first + 1 + measured):
            os.sync()  # so that capture does not wait for the copy's writes
            following.append(warm.step())
            for how, replayed in new.items():
                replayed.reveal()
                seconds[how].append(timed(partial(_NEW_PROCESSES[how], replayed.path, _store(replayed))))
            copy = whole_state(spark, load.checkpoint, epoch).write.parquet
            copies.append(timed(partial(copy, str(folder / "copies" / str(epoch)))))
        os.sync()
        together = [warm.step(_TOGETHER) for _ in range(size.epochs)]
    against = "whole state to Parquet with Spark's reader", statistics.median(copies[_WARM_UP:])
    runs, setting = size.epochs, str(size)
    following = following[_WARM_UP:]
    took = median_seconds(following)
    yield Measurement("an epoch while following", "without Spark", took, *against, runs, setting, wanted=60)
    cpu = statistics.fmean(epoch.cpu for epoch in following)
    yield bounded("CPU time of an epoch, mean", "all threads", cpu, 0.06, runs=runs, setting=setting)
    took = median_seconds(together) / _TOGETHER
    yield Measurement(f"one of {_TOGETHER} epochs of a pass", "without Spark", took, *against, runs, setting)
    for how, times in seconds.items():
        took = statistics.median(times[_WARM_UP:])
        question = "a new epoch in a new process, with its start"
        yield Measurement(question, how, took, *against, runs, setting, wanted=25)
        yield bounded(question, how, took, 0.5, runs=runs, setting=setting)


def _store(replayed: Replayed) -> Path:
    return replayed.path.with_name(replayed.path.name.removesuffix("-checkpoint"))
