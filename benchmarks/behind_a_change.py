"""The input behind a key's change: against reading the epoch's file and filtering it by hand, with Spark, too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import streamstate as ss
from benchmarks.harness import Measurement, alternate, timed
from benchmarks.size import Size
from benchmarks.workload import Workload, unload_state

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TURNS = 9
_SOON = 1.0
"""Seconds, warm."""


def behind_a_change(spark: SparkSession, folder: Path, size: Size) -> Iterator[Measurement]:
    """``history.why`` of a key, and the first rows of ``history.inputs``, at the newest epoch."""
    load = Workload(spark, folder, size.keys, size.changes)
    for _ in range(size.epochs):
        load.change()
    load.run()
    store, epoch = folder / "store", load.epochs - 1
    ss.Checkpoint(load.checkpoint).capture(store, "load")
    unload_state(spark)
    ss.open_store(store)["load"].describe(load.query)
    history = ss.open_store(store)["load"]
    [path] = {row.path for row in history.inputs(epoch).selectExpr("input_file_name() AS path").distinct().collect()}
    key = history.diff(epoch - 1, epoch).changed["key"][0]

    def rows() -> int:
        why = history.why(epoch, key=key)
        assert why.cause == "input"
        return len(why.rows)

    def by_hand() -> int:
        return len(spark.read.schema("key string, value double").parquet(path).where(f"key = '{key}'").toPandas())

    def first_rows() -> object:
        return history.inputs(epoch).limit(10).toPandas()

    def first_by_hand() -> object:
        return spark.read.schema("key string, value double").parquet(path).limit(10).toPandas()

    assert rows() == by_hand() == 1
    for question, ours, other in (
        ("why a key changed", rows, by_hand),
        ("the first rows of an epoch's input", first_rows, first_by_hand),
    ):
        timed(ours)
        seconds = alternate(ours, other, _TURNS)
        setting = f"{size}, {size.epochs} epochs"
        yield Measurement(question, "streamstate", seconds[0], "by hand", seconds[1], _TURNS, setting)
        yield Measurement(question, "streamstate", seconds[0], "bound", _SOON, _TURNS, setting, wanted=1.0)
