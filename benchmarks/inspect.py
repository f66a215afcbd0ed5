"""Questions to a store, against the same questions to Spark's state reader."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import streamstate as ss
from benchmarks.harness import Measurement, Size, bounded, timed
from benchmarks.workload import Workload, finished, whole_state
from streamstate.reports import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TURNS = 3
# Ours is asked as often for each time that Spark is: it takes milliseconds.
_REPEATS = 9
_KEY = "key-77"
_GROUPED = "SELECT count, count(*) AS keys, sum(sum) AS sum, max(max) AS max FROM load VERSION AS OF {} GROUP BY count"


@dataclass(frozen=True)
class _Question:
    name: str
    ours: Callable[[], object]
    bound: float
    """Seconds that it may take at most."""
    spark: Callable[[], object] | None = None
    ratio: float | None = None
    """How many times Spark's reader should take, at least."""


def reading(spark: SparkSession, folder: Path, size: Size) -> Iterator[Measurement]:
    """Measure common questions about state, each against its bound and against Spark's reader."""
    load = finished(spark, folder, size.keys, size.changes, size.epochs)
    ss.Checkpoint(load.checkpoint).capture(folder / "store", "load", spark=spark)
    store = ss.open_store(folder / "store")
    history = store["load"]
    history.captured()  # reads the manifest
    loading = timed(partial(history.recorded.interval_table, "op0", -1))
    print(f"index of {size.epochs} epochs, loaded in {loading:.2f} s", file=sys.stderr)
    for question in _questions(spark, load, store, size.epochs):
        yield from _measured(question, f"{size}, {size.epochs} epochs")
    yield from _cold(load, folder / "store", f"{size}, {size.epochs} epochs")


class _InStore:
    """Questions to the store."""

    def __init__(self, store: Store) -> None:
        self.store, self.history = store, store["load"]

    def lookup(self, epoch: int) -> object:
        """Return a key's row at an epoch."""
        return self.history.at(epoch).table().lookup(key=_KEY)

    def top(self, epoch: int) -> object:
        """Return the hundred largest rows by a column."""
        return self.history.at(epoch).table().page(limit=100, order_by="max", descending=True)

    def grouped(self, epoch: int) -> object:
        """Return an aggregate over all keys."""
        return self.store.sql(_GROUPED.format(epoch)).to_arrow()

    def diff(self, a: int, b: int) -> object:
        """Count the keys that differ."""
        return self.history.diff(a, b).counts

    def key_history(self) -> object:
        """Return every change of a key."""
        return self.history.key_history(key=_KEY)

    def first(self) -> object:
        """Return the first epoch at which some key met a condition."""
        return self.history.first("count > 5 AND max > 0.999")


class _InSpark:
    """The same questions to Spark's reader."""

    def __init__(self, spark: SparkSession, load: Workload) -> None:
        self.state = partial(whole_state, spark, load.checkpoint)

    def lookup(self, epoch: int) -> object:
        return self.state(epoch).where(f"key.key = '{_KEY}'").collect()

    def top(self, epoch: int) -> object:
        return self.state(epoch).orderBy("value.max", ascending=False).limit(100).collect()

    def grouped(self, epoch: int) -> object:
        rows = self.state(epoch).selectExpr("value.count", "value.sum", "value.max")
        return rows.groupBy("count").agg({"*": "count", "sum": "sum", "max": "max"}).collect()

    def diff(self, a: int, b: int) -> object:
        old = self.state(a).selectExpr("key.key AS key", "value AS old")
        new = self.state(b).selectExpr("key.key AS key", "value AS new")
        added, removed = "count_if(old IS NULL)", "count_if(new IS NULL)"
        return old.join(new, "key", "full_outer").selectExpr(added, removed, "count_if(old <> new)").collect()


def _questions(spark: SparkSession, load: Workload, store: Store, newest: int) -> Iterator[_Question]:
    ours, sparks, past = _InStore(store), _InSpark(spark, load), newest // 2
    for which, epoch in (("live", newest), ("past", past)):
        for name, ask, spark_asks, bound, ratio in (
            ("look up one key", ours.lookup, sparks.lookup, 0.010, 300),
            ("top 100 by a column", ours.top, sparks.top, 0.050, 100),
            ("group the whole state", ours.grouped, sparks.grouped, 0.080, 60),
        ):
            yield _Question(f"{name}, {which}", partial(ask, epoch), bound, partial(spark_asks, epoch), ratio)
    between = (past, min(past + 10, newest))
    yield _Question(
        "diff of two epochs, 10 apart, counted", partial(ours.diff, *between), 0.3, partial(sparks.diff, *between), 30
    )
    yield _Question("a key's history", ours.key_history, 0.015)
    yield _Question("first epoch at which a predicate held", ours.first, 0.200)


def _measured(question: _Question, setting: str) -> Iterator[Measurement]:
    ours, spark = [], []
    for turn in range(_TURNS + 1):
        took = [timed(question.ours) for _ in range(_REPEATS)]
        ours += took if turn else []
        if question.spark is not None:
            took = [timed(question.spark)]
            spark += took if turn else []
    seconds = statistics.median(ours)
    yield bounded(question.name, "store", seconds, question.bound, runs=len(ours), setting=setting)
    if question.spark is not None:
        spark_seconds = statistics.median(spark)
        yield Measurement(
            question.name, "store", seconds, "Spark's reader", spark_seconds, _TURNS, setting, wanted=question.ratio
        )


_COLD = """
import sys
import streamstate as ss
print(len(ss.open_store(sys.argv[1])["load"].live().table().page(limit=100, order_by="max", descending=True)))
"""
_COLD_IN_SPARK = """
import sys
import streamstate as ss
spark = ss.session(**{"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "8g"})
state = spark.read.format("statestore").load(sys.argv[1])
print(len(state.orderBy("value.max", ascending=False).limit(100).collect()))
spark.stop()
"""


def _cold(load: Workload, store: Path, setting: str) -> Iterator[Measurement]:
    """Measure a new process each time, from the start of Python to the rows."""
    sides = (_COLD, store), (_COLD_IN_SPARK, load.checkpoint)
    turns = [[timed(partial(_process, *side)) for side in sides] for _ in range(_TURNS + 1)]
    ours, spark = (statistics.median(times) for times in zip(*turns[1:], strict=True))
    name = "cold: a new process shows the live top 100"
    yield bounded(name, "store", ours, 2.0, runs=_TURNS, setting=setting)
    yield Measurement(name, "store", ours, "Spark's reader", spark, _TURNS, setting, wanted=3)


def _process(program: str, argument: Path) -> None:
    command = [sys.executable, "-c", program, str(argument)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    if output.split()[-1] != "100":
        raise AssertionError(f"100 rows were asked for, and it printed {output!r}")
