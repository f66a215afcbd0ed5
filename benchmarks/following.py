"""``streamstate follow``, in a process of its own: how soon an epoch can be queried, and the memory it takes."""

from __future__ import annotations

import random
import statistics
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import Measurement
from benchmarks.processes import Follower, call_and_peak, follower
from benchmarks.replayed import Replayed
from benchmarks.size import Size
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
    """Seconds from when an epoch's commit appears until a reader that looks at the store finds the epoch."""
    for changes, bound in {size.changes: 0.15, _FEW_CHANGES: 0.06}.items():
        changed = Size(size.keys, changes, size.epochs)
        found = _followed(spark, folder / str(changes), changed)
        runs, setting = size.epochs, str(changed)
        question = "commit to queryable"
        median, slow = statistics.median(found.fresh), statistics.quantiles(found.fresh, n=20)[-1]
        yield Measurement(question, "median", median, "the bound", bound, runs, setting, wanted=1)
        yield Measurement(question, "95th percentile", slow, "the bound", bound, runs, setting)
        question = "CPU time of the follower, an epoch"
        yield Measurement(question, "mean", found.cpu, "the bound", 0.06, runs, setting, wanted=1)


def follower_memory(spark: SparkSession, folder: Path, size: Size) -> Iterator[Measurement]:
    """Memory of a follower, with few keys and with many; and of the process that has captured those before."""
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
        yield Measurement(question, "many keys", ours, "the bound", _MEMORY, 1, setting, unit="B", wanted=1)
    question, setting = "peak of one Checkpoint.capture of all keys", f"{size.keys:,} keys"
    yield Measurement(question, "many keys", many.all_keys, "the bound", _CALL_MEMORY, 1, setting, unit="B", wanted=1)


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
    """Seconds from each epoch's commit until it can be queried."""
    pauses, fresh = random.Random(2013), []
    for _ in range(epochs):
        threading.Event().wait(pauses.uniform(0, _PAUSE))
        revealed = replayed.reveal()
        fresh.append(follow.wait(replayed.newest) - revealed)
    return fresh
