"""How long a check of changed code takes: warm, and as the first thing that a process does."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

import streamstate as ss
from benchmarks.harness import Measurement, timed
from benchmarks.size import Size

_WARM, _COLD = 1.0, 10.0
"""Seconds that are aimed at, at most."""
_TURNS = 9


class Total(StatefulProcessor):
    """Sums each key's values."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the variable."""
        self.total = handle.getValueState("total", "total double")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        """Add an epoch's values."""
        import pandas as pd

        before = self.total.get()
        total = (before[0] if before else 0.0) + sum(float(frame["x"].sum()) for frame in rows)
        self.total.update((total,))
        yield pd.DataFrame({"key": [key[0]], "total": [total]})

    def close(self) -> None:
        """Nothing is open."""


def aggregate(spark: SparkSession, folder: Path) -> DataFrame:
    """A keyed aggregate."""
    return _input(spark, folder).groupBy("key").agg({"x": "max", "*": "count"})


def processor(spark: SparkSession, folder: Path) -> DataFrame:
    """A processor in Python."""
    grouped = _input(spark, folder).groupBy("key")
    return grouped.transformWithStateInPandas(Total(), "key string, total double", "Update", "none")


_QUERIES: dict[str, Callable[[SparkSession, Path], DataFrame]] = {"aggregate": aggregate, "processor": processor}


def checking_changes(spark: SparkSession, folder: Path, size: Size) -> Iterator[Measurement]:
    """A check without a rehearsal, of an aggregate and of a Python processor, warm and in a new process."""
    rows = spark.range(size.keys).selectExpr("string(id) AS key", "double(id) AS x")
    rows.repartition(2).write.parquet(str(folder / "input"))
    for name, build in _QUERIES.items():
        frame, checkpoint = build(spark, folder), folder / name
        writer = frame.writeStream.format("noop").outputMode("update").option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()
        ss.Checkpoint(checkpoint).capture(folder / "store", name)
        check = partial(ss.Checkpoint(checkpoint).check, frame, spark=spark)
        times = [timed(check) for _turn in range(_TURNS + 1)][1:]
        yield _measured(f"check, warm: {name}", statistics.median(times), _WARM, _TURNS, size)
        command = [sys.executable, "-m", "benchmarks.checking_changes", name, str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        yield _measured(f"first check of a process: {name}", float(done.stdout.splitlines()[-1]), _COLD, 1, size)


def _measured(question: str, seconds: float, bound: float, runs: int, size: Size) -> Measurement:
    return Measurement(question, "Checkpoint.check", seconds, "bound", bound, runs, f"{size.keys:,} keys", wanted=1.0)


def _input(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema("key string, x double").parquet(str(folder / "input"))


def _cold(name: str, folder: Path) -> None:
    """Time the first check of this process; the start of Spark does not count."""
    spark = ss.session()
    build = _QUERIES[name]
    print(timed(lambda: ss.Checkpoint(folder / name).check(lambda: build(spark, folder), spark=spark)))


if __name__ == "__main__":
    _cold(sys.argv[1], Path(sys.argv[2]))
