"""Queries that drills run in processes of their own: a module to itself that imports little, since those import it."""

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
    """Four files, an epoch each: every one has all keys and brings one of its own."""
    folder.mkdir()
    for number in range(FILES):
        keys = [*(f"k{key}" for key in range(20)), f"only{number}"]
        rows = pd.DataFrame({"k": keys, "v": range(number, number + len(keys))})
        file = folder / f"{number:05}.parquet"
        rows.to_parquet(file)
        in_turn(file, number)


def letters(folder: Path) -> DataFrame:
    """The files as a stream."""
    spark: SparkSession = ss.session(**PLAIN_FILES)
    return spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))


def counts(folder: Path) -> DataFrame:
    """A keyed aggregate."""
    return letters(folder).groupBy("k").agg(F.count("*"), F.avg("v"), F.max("v"))


class Summing(StatefulProcessor):
    """Keeps each key's sum, and the values it is made of."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self._sum = handle.getValueState("sum", "total long")
        self._seen = handle.getListState("seen", "v long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        """Take in one epoch's rows of a key."""
        values = [int(value) for frame in rows for value in frame["v"]]
        before = self._sum.get()
        self._sum.update(((before[0] if before else 0) + sum(values),))
        self._seen.appendList([(value,) for value in values])
        yield pd.DataFrame({"k": [key[0]]})

    def close(self) -> None:
        """Nothing to close."""


def deduplicated_sums(folder: Path) -> DataFrame:
    """Two operators: one remembers what it let through, the other is a stateful processor in Python."""
    return processed(letters(folder).dropDuplicates(["k", "v"]), Summing())


def processed(frame: DataFrame, processor: StatefulProcessor) -> DataFrame:
    """The frame's rows through a processor, in event time, so that the input's end is the end."""
    timed = frame.withColumn("t", F.timestamp_seconds("v")).withWatermark("t", "1 hour")
    return timed.groupBy("k").transformWithStateInPandas(processor, "k string", "update", "eventTime")


_calls = 0
"""What a query must not have: something it remembers that Spark knows nothing of."""


class Numbering(Summing):
    """Counts a key's epochs in a variable of the module, not in its state: a restart begins at 1 again."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        """Keep the count so far."""
        global _calls  # noqa: PLW0603 - the fault that the drill is to find
        for _ in rows:
            pass
        if key[0] == "k7":
            _calls += 1
            self._sum.update((_calls,))
        yield pd.DataFrame({"k": [key[0]]})


def numbered(folder: Path) -> DataFrame:
    """One key's state depends on what a restart forgets."""
    return processed(letters(folder), Numbering())


def of(query: Callable[[Path], DataFrame], folder: Path) -> Callable[[], DataFrame]:
    """The function that a drill is given."""
    return lambda: query(folder)
