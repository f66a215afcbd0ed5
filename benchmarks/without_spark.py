"""What capture costs in a process of its own, without Spark: from its start, an epoch, and in memory."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from benchmarks.harness import Measurement, timed
from benchmarks.size import Size
from benchmarks.stepping import Stepped
from benchmarks.workload import Workload, whole_state

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WARM_UP = 5
_FEW_KEYS = 10_000
_FEW_CHANGES = 1_000


def without_spark(spark: SparkSession, folder: Path, size: Size) -> Iterator[Measurement]:
    """One new epoch captured by a fresh process; epochs captured one after another, with their CPU time.

    Against them: the whole state copied with Spark's reader, in a warm session. The query is finished before.
    """
    load = _finished(spark, folder, size.keys, size.changes, 2 * size.epochs + _WARM_UP)
    fresh, copies = [], []
    for epoch in range(size.epochs + 1):
        seconds = timed(partial(_child, "upto", load.checkpoint, folder / "fresh", epoch))
        copy = whole_state(spark, load.checkpoint, epoch).write.parquet
        copied = timed(partial(copy, str(folder / "copies" / str(epoch))))
        if epoch:  # the first brings all keys
            fresh.append(seconds)
            copies.append(copied)
    against = "whole state to Parquet with Spark's reader", statistics.median(copies)
    yield Measurement(
        "one epoch in a fresh process, with its start",
        "without Spark",
        statistics.median(fresh),
        *against,
        size.epochs,
        str(size),
        wanted=25,
    )
    steps = _child("steps", load.checkpoint, folder / "steps", 2 * size.epochs + _WARM_UP)
    yield Measurement(
        "one epoch after another", "without Spark", steps["seconds"], *against, 2 * size.epochs, str(size), wanted=60
    )
    yield Measurement(
        "CPU time of an epoch", "all threads", steps["cpu"], "the bound", 0.06, 2 * size.epochs, str(size), wanted=1
    )


def follower_memory(spark: SparkSession, folder: Path, size: Size) -> Iterator[Measurement]:
    """Resident memory after epochs of 1,000 changes, with few keys and with many; another process captured those."""
    sizes = {}
    for keys in (_FEW_KEYS, size.keys):
        load = _finished(spark, folder / str(keys), keys, _FEW_CHANGES, size.epochs)
        store = folder / f"store-{keys}"
        _child("upto", load.checkpoint, store, 0)
        sizes[keys] = _child("follow", load.checkpoint, store, size.epochs)["resident"]
    setting = f"{size.keys:,} against {_FEW_KEYS:,} keys, {_FEW_CHANGES:,} changes an epoch"
    many, few = sizes[size.keys], sizes[_FEW_KEYS]
    question = "memory of a process that follows"
    yield Measurement(question, "many keys", many, "few keys", few, 1, setting, unit="B", wanted=1 / 1.1)
    yield Measurement(question, "many keys", many, "the bound", 200 * 2**20, 1, setting, unit="B", wanted=1)


def _finished(spark: SparkSession, folder: Path, keys: int, changes: int, epochs: int) -> Workload:
    load = Workload(spark, folder / "query", keys, changes)
    for _ in range(epochs):
        load.change()
    load.run()
    return load


def _child(what: str, checkpoint: Path, store: Path, epochs: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.without_spark", what, str(checkpoint), str(store), str(epochs)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return dict(json.loads(output.splitlines()[-1]))


def _main(what: str, checkpoint: str, store: str, epochs: str) -> dict[str, float]:
    sys.modules["pyspark"] = None  # type: ignore[assignment]  # so that it cannot be imported
    return {"upto": _upto, "steps": _steps, "follow": _follow}[what](Path(checkpoint), Path(store), int(epochs))


def _upto(checkpoint: Path, store: Path, epoch: int) -> dict[str, float]:
    """Capture the epochs up to one."""
    stepped = Stepped(None, checkpoint, store)
    stepped.checkpoint.newest = epoch
    stepped.capturer.run()
    return {}


def _steps(checkpoint: Path, store: Path, epochs: int) -> dict[str, float]:
    """The seconds and the CPU seconds that an epoch takes."""
    stepped = Stepped(None, checkpoint, store)
    for _ in range(_WARM_UP + 1):
        stepped.step()
    seconds, cpu = [], []
    for _ in range(epochs - _WARM_UP):
        before = os.times()
        seconds.append(stepped.step())
        after = os.times()
        cpu.append(after.user + after.system - before.user - before.system)
    return {"seconds": statistics.median(seconds), "cpu": statistics.fmean(cpu)}


def _follow(checkpoint: Path, store: Path, epochs: int) -> dict[str, float]:
    """The bytes that the process holds after some epochs."""
    stepped = Stepped(None, checkpoint, store)
    stepped.checkpoint.newest = 0
    for _ in range(epochs):
        stepped.step()
    return {"resident": psutil.Process().memory_info().rss}


if __name__ == "__main__":
    print(json.dumps(_main(*sys.argv[1:])))
