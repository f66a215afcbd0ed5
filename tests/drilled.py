"""Queries that drills run in other processes. They import this module, so it has few imports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from input_files import in_turn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from spark_settings import PLAIN_FILES

import streamstate as ss

FILES = 4
_SCHEMA = "k string, v long"


def write_input(folder: Path) -> None:
    """Write four files, one per epoch, each with the common keys and one key of its own."""
    folder.mkdir()
    for number in range(FILES):
        keys = [*(f"k{key}" for key in range(20)), f"only{number}"]
        rows = pd.DataFrame({"k": keys, "v": range(number, number + len(keys))})
        file = folder / f"{number:05}.parquet"
        rows.to_parquet(file)
        in_turn(file, number)


def letters(folder: Path) -> DataFrame:
    """The files as a streaming DataFrame."""
    spark: SparkSession = ss.session(**PLAIN_FILES)
    return spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))


def counts(folder: Path) -> DataFrame:
    """A keyed aggregate."""
    return letters(folder).groupBy("k").agg(F.count("*"), F.avg("v"), F.max("v"))


class Summing(StatefulProcessor):
    """Stores the sum and the values of each key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self._sum = handle.getValueState("sum", "total long")
        self._seen = handle.getListState("seen", "v long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        """Add an epoch's values of a key."""
        values = [int(value) for frame in rows for value in frame["v"]]
        before = self._sum.get()
        self._sum.update(((before[0] if before else 0) + sum(values),))
        self._seen.appendList([(value,) for value in values])
        yield pd.DataFrame({"k": [key[0]]})

    def close(self) -> None:
        """Nothing to close."""


def deduplicated_sums(folder: Path) -> DataFrame:
    """A query with two operators: a deduplication and a stateful Python processor."""
    return processed(letters(folder).dropDuplicates(["k", "v"]), Summing())


def processed(frame: DataFrame, processor: StatefulProcessor) -> DataFrame:
    """Process the rows in event time, because a query with processing time would not end with its input."""
    timed = frame.withColumn("t", F.timestamp_seconds("v")).withWatermark("t", "1 hour")
    return timed.groupBy("k").transformWithStateInPandas(processor, "k string", "update", "eventTime")


_calls = 0
"""State outside Spark's state store, which a query must not have."""


class Numbering(Summing):
    """Counts a key's epochs in a module variable instead of the state, so that a restart resets the count to 1."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        """Store the current count."""
        global _calls  # noqa: PLW0603 - the fault that the drill must find
        for _ in rows:
            pass
        if key[0] == "k7":
            _calls += 1
            self._sum.update((_calls,))
        yield pd.DataFrame({"k": [key[0]]})


def numbered(folder: Path) -> DataFrame:
    """A query with a key whose state depends on a value that a restart loses."""
    return processed(letters(folder), Numbering())


def of(query: Callable[[Path], DataFrame], folder: Path) -> Callable[[], DataFrame]:
    """The query as a function without parameters, as drills expect it."""
    return lambda: query(folder)
