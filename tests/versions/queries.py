"""Small queries, and the batches that say what their state has to be."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from input_files import in_turn

import streamstate as ss
from streamstate.reports import History, Running

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EPOCHS = 3
DAY = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
AGGREGATES = ("count(*) AS n", "max(v) AS most", "sum(v) AS total")
STATE = ["k", "count", "max", "sum"]
"""The columns of the state of these aggregates."""

Rows = set[tuple[Any, ...]]


def spark_version() -> tuple[int, ...]:
    """The version of the PySpark that is installed, such as ``(4, 2)``."""
    return tuple(map(int, version("pyspark").split(".")[:2]))


def input_of(epoch: int) -> pd.DataFrame:
    """An hour of rows: of three keys, and of one that only this epoch has."""
    numbers = range(10 * epoch, 10 * epoch + 10)
    rows = [
        (f"k{number % 3}", number, DAY + dt.timedelta(hours=epoch, minutes=6 * (number % 10))) for number in numbers
    ]
    return pd.DataFrame([*rows, (f"only{epoch}", epoch, DAY + dt.timedelta(hours=epoch))], columns=["k", "v", "t"])


def add(folder: Path, number: int, rows: pd.DataFrame) -> None:
    """Add a file, which a query reads in one epoch; a running query never sees an incomplete one."""
    folder.mkdir(exist_ok=True)
    hidden = folder / f"_{number:05}.parquet"
    rows.to_parquet(hidden, coerce_timestamps="us")
    in_turn(hidden, number)
    hidden.rename(folder / f"{number:05}.parquet")


def stream(spark: SparkSession, folder: Path) -> DataFrame:
    """The files of a folder as a stream, one for each epoch."""
    return spark.readStream.schema("k string, v long, t timestamp").option("maxFilesPerTrigger", 1).parquet(str(folder))


def aggregated(rows: DataFrame, *aggregates: str) -> DataFrame:
    """The rows' totals by key, of a stream or a batch."""
    from pyspark.sql import functions as F

    return rows.groupBy("k").agg(*map(F.expr, aggregates or AGGREGATES))


@dataclass
class Totals:
    """Totals by key: the query, its input, its checkpoint and its history."""

    spark: SparkSession
    folder: Path
    running: Running | None = None

    @classmethod
    def started(cls, spark: SparkSession, folder: Path, epochs: int = EPOCHS) -> Totals:
        """Write the input, and run the query over it with ``ss.start``."""
        made = cls(spark, folder)
        for epoch in range(epochs):
            add(made.input, epoch, input_of(epoch))
        made.running = ss.start(made.build(), "totals", made.store, trigger="available-now", partitions=2)
        assert made.running.wait(timeout=300) == epochs - 1
        return made

    @property
    def input(self) -> Path:
        """The folder with a file for each epoch."""
        return self.folder / "input"

    @property
    def store(self) -> Path:
        """The store."""
        return self.folder / "store"

    @property
    def checkpoint(self) -> ss.Checkpoint:
        """The query's checkpoint."""
        assert self.running is not None
        return self.running.checkpoint

    @property
    def history(self) -> History:
        """The captured query."""
        return ss.open_store(self.store)["totals"]

    def build(self, *aggregates: str) -> DataFrame:
        """The query, perhaps with other aggregates."""
        return aggregated(stream(self.spark, self.input), *aggregates)

    @property
    def changed(self) -> Callable[[], DataFrame]:
        """Code that keeps one more aggregate."""
        return lambda: self.build(*AGGREGATES, "min(v) AS least")

    def rows(self, epoch: int) -> DataFrame:
        """What the query had read by the end of an epoch, as a batch."""
        files = [str(self.input / f"{number:05}.parquet") for number in range(epoch + 1)]
        return self.spark.read.parquet(*files)

    def expected(self, epoch: int) -> Rows:
        """The totals at an epoch: the same code, run as a batch."""
        return {tuple(row) for row in aggregated(self.rows(epoch)).collect()}


def state(history: History, epoch: int) -> Rows:
    """The captured totals at an epoch."""
    return rows_of(history.at(epoch).table().to_pandas()[STATE])


def rows_of(frame: pd.DataFrame) -> Rows:
    """The rows of a frame."""
    return {*frame.itertuples(index=False, name=None)}


def recaptured(checkpoint: ss.Checkpoint, store: Path, epoch: int) -> Rows:
    """The totals at an epoch of a checkpoint, captured now into a store of its own."""
    checkpoint.capture(store, "again", verify="never")
    return state(ss.open_store(store)["again"], epoch)
