"""Two streams of hourly files, and queries over them, for tests that filter the same files by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from input_files import in_turn
from pyspark.sql import functions as F

import streamstate as ss
from streamstate.reports import History

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EPOCHS = 4
START = pd.Timestamp("2024-01-01", tz="UTC")
HOUR = {"start": START + pd.Timedelta("2h"), "end": START + pd.Timedelta("3h")}
JOINED = "user = ruser AND rts BETWEEN ts - INTERVAL 1 HOUR AND ts + INTERVAL 1 HOUR"
Source = Callable[..., "DataFrame"]


def rows_of_file(epoch: int, seed: int, count: int = 300) -> pd.DataFrame:
    """An hour of rows, a quarter of which come up to six hours late."""
    random = np.random.default_rng(seed + epoch)
    late = np.where(random.random(count) < 0.25, random.integers(0, 6 * 3600, count), 0)
    seconds = epoch * 3600 + random.integers(0, 3600, count) - late
    columns = {
        "ts": (START + pd.to_timedelta(seconds, unit="s")).astype("datetime64[us, UTC]"),
        "user": random.choice(["a", "b", "c"], count),
        "x": random.random(count),
        "id": np.arange(count) + epoch * count,
    }
    return pd.DataFrame(columns)


def write_files(folder: Path, files: list[pd.DataFrame]) -> None:
    """Write a stream's files, one an epoch."""
    folder.mkdir()
    for epoch, rows in enumerate(files):
        rows.to_parquet(folder / f"{epoch}.parquet")
        in_turn(folder / f"{epoch}.parquet", epoch)


def read(spark: SparkSession, folder: Path, delay: str | None = "30 minutes") -> DataFrame:
    """A stream of such files."""
    reader = spark.readStream.schema("ts timestamp, user string, x double, id long")
    rows = reader.option("maxFilesPerTrigger", 1).parquet(str(folder))
    return rows if delay is None else rows.withWatermark("ts", delay)


def right_of(source: Source) -> DataFrame:
    """The other side of a join."""
    columns = [F.col("ts").alias("rts"), F.col("user").alias("ruser"), F.col("id").alias("rid")]
    return source("right", "1 hour").select(*columns)


def run(query: DataFrame, folder: Path, mode: str) -> tuple[History, dict[int, Any]]:
    """Run a query over all files; its history, and Spark's progress by epoch."""
    running = ss.start(query, "q", folder / "store", mode=mode, trigger="available-now")
    assert running.query is not None
    running.query.awaitTermination()
    progress = {int(one["batchId"]): one for one in running.query.recentProgress}
    running.wait(epoch=max(progress), timeout=300)
    running.stop()
    return ss.open_store(folder / "store")["q"], progress


def watermark_before(history: History, epoch: int) -> pd.Timestamp:
    """Return the watermark that rows of an epoch had to be later than."""
    return pd.Timestamp((history.at(epoch - 1).watermark if epoch else None) or pd.Timestamp(0, tz="UTC"))


def ids(sides: Any) -> list[list[int]]:
    """The ids of the source's rows of each side."""
    return [sorted(side.select(f"_source{at}.id").toPandas().id) for at, side in enumerate(sides.values())]
