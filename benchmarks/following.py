"""Delay and memory of ``streamstate follow`` in its own process."""

from __future__ import annotations

import random
import statistics
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import Measurement, Size, bounded
from benchmarks.processes import Follower, call_and_peak, follower
from benchmarks.replayed import Replayed
from benchmarks.workload import finished

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WARM_UP = 5
_FEW_CHANGES = 1_000
_FEW_KEYS = 10_000
# Epochs come at any moment of the follower's own pauses.
_PAUSE = 0.3
_MEMORY = 200 * 2**20
_CALL_MEMORY = 1.5 * 2**30


@dataclass(frozen=True)
class _Followed:
    fresh: list[float]
    """Seconds from an epoch's commit until it can be queried."""
    cpu: float
    """CPU seconds of the follower per epoch, its looking for epochs included."""
    resident: int
    """Bytes that the follower holds after the last epoch."""
    peak: int
    """Bytes that it held at most."""
    all_keys: int
    """Bytes that the process held at most that captured the epochs with all keys, in one call."""


def freshness(spark: SparkSession, folder: Path, size: Size) -> Iterator[Measurement]:
    """Measure the seconds from an epoch's commit until a reader finds it in the store."""
    for changes, bound in {size.changes: 0.15, _FEW_CHANGES: 0.06}.items():
        changed = Size(size.keys, changes, size.epochs)
        found = _followed(spark, folder / str(changes), changed)
        runs, setting = size.epochs, str(changed)
        question = "commit to queryable"
        median, slow = statistics.median(found.fresh), statistics.quantiles(found.fresh, n=20)[-1]
        yield bounded(question, "median", median, bound, runs=runs, setting=setting)
        yield bounded(question, "95th percentile", slow, 2 * bound, runs=runs, setting=setting)
        question = "CPU time of the follower, an epoch"
        yield bounded(question, "mean", found.cpu, 0.06, runs=runs, setting=setting)


def follower_memory(spark: SparkSession, folder: Path, size: Size) -> Iterator[Measurement]:
    """Measure the memory of a follower, with few keys and with many, and of one capture of all keys."""
    many, few = (
        _followed(spark, folder / str(keys), Size(keys, min(size.changes, keys), size.epochs))
        for keys in (size.keys, min(_FEW_KEYS, size.keys))
    )
    setting = f"{size.keys:,} against {_FEW_KEYS:,} keys, {size.changes:,} changes an epoch, {size.epochs} epochs"
    for question, ours, other in (
        ("memory of a follower", many.resident, few.resident),
        ("the same, peak", many.peak, few.peak),
    ):
        yield Measurement(question, "many keys", ours, "few keys", other, 1, setting, unit="B", wanted=1 / 1.1)
        yield bounded(question, "many keys", ours, _MEMORY, runs=1, setting=setting, unit="B")
    question, setting = "peak of one Checkpoint.capture of all keys", f"{size.keys:,} keys"
    yield bounded(question, "many keys", many.all_keys, _CALL_MEMORY, runs=1, setting=setting, unit="B")


def _followed(spark: SparkSession, folder: Path, size: Size) -> _Followed:
    load = finished(spark, folder / "query", size.keys, size.changes, _WARM_UP + size.epochs)
    replayed, store = Replayed(load.checkpoint, folder / "checkpoint"), folder / "store"
    replayed.reveal(load.first + 1)
    all_keys = call_and_peak(replayed.path, store)
    with follower(replayed.path, store) as follow:
        _fresh(replayed, follow, _WARM_UP)
        before = follow.cpu()
        fresh = _fresh(replayed, follow, size.epochs)
        return _Followed(fresh, (follow.cpu() - before) / size.epochs, follow.resident(), follow.peak(), all_keys)


def _fresh(replayed: Replayed, follow: Follower, epochs: int) -> list[float]:
    """Return the seconds from each epoch's commit until it can be queried."""
    pauses, fresh = random.Random(2013), []
    for _ in range(epochs):
        threading.Event().wait(pauses.uniform(0, _PAUSE))
        revealed = replayed.reveal()
        fresh.append(follow.wait(replayed.newest) - revealed)
    return fresh
