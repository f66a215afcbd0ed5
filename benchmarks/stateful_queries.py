"""Queries of several operators: an aggregate, a join, windows, a list, a map, and a map with a time to live."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import cloudpickle
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

from benchmarks.workload import unload_state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StatefulProcessorHandle

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # for Spark's workers

_HOUR = 3_600
_DAY_MS = 24 * _HOUR * 1000
_ELEMENTS = 50
"""Elements of a list, entries of a map, that an epoch changes: a call of a Python function per element is slow."""


def recorded(spark: SparkSession, folder: Path, kind: str, changes: int, epochs: int) -> Path:
    """The checkpoint of a finished query of a kind, each of whose epochs makes about so many changes of state."""
    build, rows_of = QUERIES[kind]
    random = np.random.default_rng(2013)
    (folder / "input").mkdir(parents=True)
    for epoch in range(epochs):
        keys = rows_of(random, changes)
        times = pa.array((epoch * _HOUR + np.arange(changes) * _HOUR // changes) * 1_000_000, pa.timestamp("us", "UTC"))
        columns = {"k": np.char.add("key-", keys.astype(str)), "v": np.arange(changes), "t": times}
        file = folder / "input" / f"{epoch:05}.parquet"
        pq.write_table(pa.table(columns), file)
        os.utime(file, (epoch, epoch))  # Spark reads them in this order
    # Otherwise the watermark would make epochs without input.
    spark = spark.newSession()
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    stream = spark.readStream.schema("k string, v long, t timestamp").option("maxFilesPerTrigger", 1)
    writer = build(stream.parquet(str(folder / "input"))).writeStream.format("noop")
    writer = writer.outputMode("append" if kind == "join" else "update").trigger(availableNow=True)
    writer.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination()
    unload_state(spark)
    return folder / "checkpoint"


def _joined(stream: DataFrame) -> DataFrame:
    """Two streams joined by key and time; a row is kept for three hours."""
    late = stream.withWatermark("t", "1 hour")
    left = late.where("v % 2 = 0")
    right = late.where("v % 2 = 1").selectExpr("k AS other_k", "v AS other_v", "t AS other_t")
    near = F.expr("k = other_k AND other_t BETWEEN t - INTERVAL 1 HOUR AND t + INTERVAL 1 HOUR")
    return left.join(right, near)


def _aggregated(stream: DataFrame) -> DataFrame:
    """Counts and sums by key."""
    return stream.groupBy("k").agg(F.count("*"), F.sum("v"))


def _windowed(stream: DataFrame) -> DataFrame:
    """Counts by key and hour, kept until the hour has passed."""
    return stream.withWatermark("t", "1 hour").groupBy(F.window("t", "1 hour"), "k").agg(F.count("*"), F.sum("v"))


class _Variable(StatefulProcessor):
    """One state variable, which a subclass declares and updates."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        """Update the variable with a key's rows of an epoch."""
        self.update([(int(value),) for frame in rows for value in frame["v"]])
        yield pd.DataFrame({"k": [key[0]]})

    def update(self, values: list[tuple[int]]) -> None:
        """Update the variable."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing to close."""


class _List(_Variable):
    """A list that grows."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.variable = handle.getListState("elements", "v long")

    def update(self, values: list[tuple[int]]) -> None:
        self.variable.appendList(values)


class _Map(_Variable):
    """A map whose entries change."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.variable = handle.getMapState("entries", "at long", "v long")

    def update(self, values: list[tuple[int]]) -> None:
        for (value,) in values:
            self.variable.updateValue((value % (2 * _ELEMENTS),), (value,))


class _TTL(_Map):
    """The same, with entries that expire after a day."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.variable = handle.getMapState("entries", "at long", "v long", _DAY_MS)


def _transformed(processor: type[_Variable], time: str, stream: DataFrame) -> DataFrame:
    return stream.groupBy("k").transformWithStateInPandas(processor(), "k string", "update", time)


def _one_each(random: np.random.Generator, changes: int) -> np.ndarray:
    return random.choice(2 * changes, changes, replace=False)


def _several_each(random: np.random.Generator, changes: int) -> np.ndarray:
    count = -(-changes // _ELEMENTS)
    return np.repeat(random.choice(2 * count, count, replace=False), _ELEMENTS)[:changes]


QUERIES: dict[str, tuple[Callable[[DataFrame], DataFrame], Callable[[np.random.Generator, int], np.ndarray]]] = {
    "aggregate": (_aggregated, _one_each),
    "join": (_joined, _one_each),
    "window": (_windowed, _one_each),
    "list": (partial(_transformed, _List, "none"), _several_each),
    "map": (partial(_transformed, _Map, "none"), _several_each),
    "TTL": (partial(_transformed, _TTL, "processingTime"), _several_each),
}
"""By kind: how the query is built, and the keys of an epoch's rows."""
