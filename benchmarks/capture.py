"""What capturing costs beside a query, and how soon an epoch can be queried."""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import streamstate as ss
from benchmarks.harness import Measurement, timed
from benchmarks.size import Size
from benchmarks.stepping import Stepped
from benchmarks.workload import Workload, whole_state

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

# Epochs before the measured ones: the JVM compiles what runs often.
_WARM_UP = 5
_TOGETHER = 4
# Which blocks of epochs are captured: both sides come early and late alike, because the JVM speeds up all the while.
_BLOCKS = (False, True, True, False, False, True, True, False)


def capture(spark: SparkSession, folder: Path, size: Size) -> Iterator[Measurement]:
    """Capturing an epoch against copying the whole state at it, turn by turn, over the same finished query.

    Then the same for passes over four epochs, as ``every=4`` makes them; what a pass costs at least is shared then.
    """
    load = Workload(spark, folder, size.keys, size.changes)
    for _ in range(size.epochs + _WARM_UP + _TOGETHER * size.epochs):
        load.change()
    load.run()
    stepped = Stepped(spark, load.checkpoint, folder / "store")
    stepped.step()
    captures, copies = [], []
    for epoch in range(1, size.epochs + _WARM_UP + 1):
        captures.append(stepped.step())
        copy = str(folder / "copies" / str(epoch))
        copies.append(timed(partial(whole_state(spark, load.checkpoint, epoch).write.parquet, copy)))
    yield Measurement(
        "capture one epoch",
        "changes to Delta",
        statistics.median(captures[_WARM_UP:]),
        "whole state to Parquet with Spark's reader",
        statistics.median(copies[_WARM_UP:]),
        size.epochs,
        str(size),
        wanted=25,
    )
    together = [stepped.step(_TOGETHER) / _TOGETHER for _ in range(size.epochs)]
    yield Measurement(
        f"capture one of {_TOGETHER} epochs of a pass",
        "changes to Delta",
        statistics.median(together),
        "whole state to Parquet, as above",
        statistics.median(copies[_WARM_UP:]),
        size.epochs,
        str(size),
    )


def paced(spark: SparkSession, folder: Path, size: Size) -> Iterator[Measurement]:
    """The batch time of a query that starts an epoch every two seconds, with capture and without."""
    yield _batch_time(Workload(spark, folder, size.keys, size.changes, "2 seconds"), size, "an epoch every 2 s")


def back_to_back(spark: SparkSession, folder: Path, size: Size) -> Iterator[Measurement]:
    """The batch time of a query whose epochs follow each other at once, so that each is captured during the next."""
    yield _batch_time(Workload(spark, folder, size.keys, size.changes), size, "epochs back to back")


def freshness(spark: SparkSession, folder: Path, size: Size) -> Iterator[Measurement]:
    """Seconds from when Spark has written an epoch's commit to when the epoch is in the manifest that readers see."""
    for changes, bound in ((size.changes, 1.0), (1000, 0.4)):
        run_size = Size(size.keys, changes, size.epochs)
        seconds = _fresh_after(spark, folder / str(changes), run_size)
        yield Measurement(
            "commit to queryable", "following", seconds, "the bound", bound, size.epochs, str(run_size), wanted=1
        )


def _fresh_after(spark: SparkSession, folder: Path, size: Size) -> float:
    load = Workload(spark, folder, size.keys, size.changes)
    query = load.start()
    _committed(load, 0)
    ss.capture(load.checkpoint, folder / "store", "load", spark=spark)
    following = ss.follow(load.checkpoint, folder / "store", "load", spark=spark)
    history = ss.open_store(folder / "store")["load"]
    took = []
    try:
        for epoch in range(1, size.epochs + _WARM_UP + 1):
            _one_batch(load, query, epoch)
            following.wait(epoch)
            found = history.live().epoch
            took.append(time.time() - (load.checkpoint / "commits" / str(epoch)).stat().st_mtime)
            if found < epoch:
                raise AssertionError(f"epoch {epoch} cannot be queried: the newest is {found}")
    finally:
        following.stop()
        query.stop()
    return statistics.median(took[_WARM_UP:])


def _batch_time(load: Workload, size: Size, how: str) -> Measurement:
    """The query's batch time in alternating blocks of one run.

    The first of each block does not count: the capture reads then, once, what it keeps between epochs.
    """
    store = load.folder / "store"
    query = load.start()
    epochs = itertools.count(1)
    _committed(load, 0)
    took: dict[bool, list[float]] = {True: [], False: []}
    try:
        for captured in _BLOCKS:
            ss.capture(load.checkpoint, store, "load", spark=load.spark)
            following = ss.follow(load.checkpoint, store, "load", spark=load.spark) if captured else None
            _one_batch(load, query, epoch := next(epochs))
            if following is not None:
                following.wait(epoch)
            for _ in range(max(3, size.epochs // 3)):
                took[captured].append(_one_batch(load, query, next(epochs)))
            if following is not None:
                following.stop()
    finally:
        query.stop()
    # The first block of each side warms up.
    captured_times, plain_times = (took[side][max(3, size.epochs // 3) :] for side in (True, False))
    return Measurement(
        f"the query's batch, {how}",
        "with capture",
        statistics.median(captured_times),
        "without",
        statistics.median(plain_times),
        len(captured_times),
        str(size),
        wanted=1 / 1.05,
    )


def _one_batch(load: Workload, query: StreamingQuery, epoch: int) -> float:
    """Seconds that Spark says the epoch took."""
    load.change()
    _committed(load, epoch)
    while True:
        progress = query.lastProgress
        if progress is not None and progress["batchId"] == epoch and "addBatch" in progress["durationMs"]:
            return float(progress["durationMs"]["triggerExecution"]) / 1000
        threading.Event().wait(0.02)


def _committed(load: Workload, epoch: int) -> None:
    """Wait until the query has committed an epoch."""
    while not (load.checkpoint / "commits" / str(epoch)).exists():
        threading.Event().wait(0.02)
