"""Small stateful queries that are recorded with several versions of Spark.

This module runs with each of these versions, in an environment with PySpark and pandas only (see ``make.py``), and with
the installed version in tests that continue a recorded query.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

EPOCHS = 4
"""The number of input files, one per epoch."""
WIDE = "aggregation-200-partitions"

_STORE = "spark.sql.streaming.stateStore"
_PACKAGE = "org.apache.spark.sql.execution.streaming.state"
_ROCKSDB = {f"{_STORE}.providerClass": f"{_PACKAGE}.RocksDBStateStoreProvider"}
_CHANGELOG = f"{_STORE}.rocksdb.changelogCheckpointing.enabled"
_FORMAT = f"{_STORE}.checkpointFormatVersion"
PROVIDERS: Mapping[str, Mapping[str, str]] = {
    "HDFS": {f"{_STORE}.providerClass": f"{_PACKAGE}.HDFSBackedStateStoreProvider", _FORMAT: "1"},
    "RocksDB": {**_ROCKSDB, _CHANGELOG: "false", _FORMAT: "1"},
    "RocksDB-with-changelog": {**_ROCKSDB, _CHANGELOG: "true", _FORMAT: "1"},
    "RocksDB-format-2": {**_ROCKSDB, _CHANGELOG: "true", _FORMAT: "2"},
}
"""Settings of the state store. Spark versions ignore settings that they do not know."""
_START = dt.datetime(2024, 3, 31, 0, 30, tzinfo=dt.timezone.utc)  # noqa: UP017 - runs with older versions of Python


@dataclass(frozen=True)
class Recorded:
    """A query over the streams ``left`` and ``right`` of ``k, v, t``."""

    build: Callable[[DataFrame, DataFrame], DataFrame]
    tables: tuple[str, ...] = ("op0",)
    """The state tables of the query."""
    mode: str = "append"


def _counts(left: DataFrame, _right: DataFrame) -> DataFrame:
    return left.groupBy("k").agg(F.count("*").alias("n"), F.avg("v").alias("mean"), F.max("t").alias("last"))


def _windows(left: DataFrame, _right: DataFrame) -> DataFrame:
    return left.withWatermark("t", "30 minutes").groupBy(F.window("t", "20 minutes"), "k").agg(F.sum("v"))


def _sessions(left: DataFrame, _right: DataFrame) -> DataFrame:
    return left.withWatermark("t", "30 minutes").groupBy("k", F.session_window("t", "6 minutes")).agg(F.count("*"))


def _distinct(left: DataFrame, _right: DataFrame) -> DataFrame:
    return left.withWatermark("t", "30 minutes").dropDuplicates(["k", "t"])


def _distinct_within_watermark(left: DataFrame, _right: DataFrame) -> DataFrame:
    return left.withWatermark("t", "30 minutes").dropDuplicatesWithinWatermark(["k"])


def _sides(left: DataFrame, right: DataFrame) -> tuple[DataFrame, DataFrame, Any]:
    left = left.withWatermark("t", "30 minutes")
    right = right.select(F.col("k").alias("k2"), F.col("v").alias("w"), F.col("t").alias("u"))
    condition = F.expr("k = k2 AND u >= t - INTERVAL 10 MINUTES AND u <= t + INTERVAL 10 MINUTES")
    return left, right.withWatermark("u", "30 minutes"), condition


def _inner(left: DataFrame, right: DataFrame) -> DataFrame:
    left, right, condition = _sides(left, right)
    return left.join(right, condition)


def _left_outer(left: DataFrame, right: DataFrame) -> DataFrame:
    left, right, condition = _sides(left, right)
    return left.join(right, condition, "left_outer")


def _limit(left: DataFrame, _right: DataFrame) -> DataFrame:
    return left.limit(20)


def _two_operators(left: DataFrame, right: DataFrame) -> DataFrame:
    return _distinct(left, right).groupBy(F.window("t", "20 minutes")).agg(F.count("*"))


def _groups(left: DataFrame, _right: DataFrame) -> DataFrame:
    def total(key: tuple[str], frames: Iterator[Any], state: Any) -> Iterator[Any]:
        import pandas as pd

        before = state.get[0] if state.exists else 0
        state.update((before + sum(len(frame) for frame in frames),))
        yield pd.DataFrame({"k": [key[0]], "n": [state.get[0]]})

    grouped = left.where("k IS NOT NULL").groupBy("k")
    return grouped.applyInPandasWithState(total, "k string, n long", "n long", "append", "NoTimeout")


QUERIES: Mapping[str, Recorded] = {
    "aggregation": Recorded(_counts, mode="update"),
    "window": Recorded(_windows),
    "session-window": Recorded(_sessions),
    "dropDuplicates": Recorded(_distinct),
    "dropDuplicatesWithinWatermark": Recorded(_distinct_within_watermark),
    "inner-join": Recorded(_inner, ("op0_left", "op0_right")),
    "left-outer-join": Recorded(_left_outer, ("op0_left", "op0_right")),
    "limit": Recorded(_limit),
    "two-operators": Recorded(_two_operators, ("op0", "op1")),
    "applyInPandasWithState": Recorded(_groups),
}
_EVERYWHERE = ("HDFS", "RocksDB", "RocksDB-with-changelog")
_SOME = ("aggregation", "session-window", "left-outer-join")


def recorded(version: str) -> Iterator[tuple[str, str]]:
    """The queries that are recorded with a version of Spark such as ``3.5``, with their state store providers."""
    spark_3 = version.startswith("3.")
    for name in QUERIES:
        # Spark 3.4 has neither this operator nor changelog checkpointing.
        if (version, name) == ("3.4", "dropDuplicatesWithinWatermark"):
            continue
        for provider in _EVERYWHERE:
            supported = (version, provider) != ("3.4", "RocksDB-with-changelog")
            # Since 4.0, checkpoints have operator metadata, so that fewer combinations need to be tested.
            if supported and (
                spark_3 or provider == "RocksDB-with-changelog" or (provider == "HDFS" and name in _SOME)
            ):
                yield name, provider
    if version == "3.5":
        yield WIDE, "HDFS"
    if not spark_3:
        yield "aggregation", "RocksDB-format-2"


def rows(epoch: int, side: str) -> list[dict[str, Any]]:
    """The input of one epoch: an hour of event time, with a late row, changing keys, nulls and a duplicate."""
    start = _START + dt.timedelta(hours=epoch)
    shift = dt.timedelta(minutes=0 if side == "left" else 3)
    result: list[dict[str, Any]] = [
        {"k": f"k{(row + epoch) % 4}", "v": 10 * epoch + row, "t": (start + shift + 4 * row * _MINUTE).isoformat()}
        for row in range(8)
    ]
    result[0]["k"] = None
    result[1]["k"] = f"only{epoch}"
    result[2]["v"] = None
    result[-1]["t"] = (start - dt.timedelta(minutes=50)).isoformat()
    return [*result, result[3]]


_MINUTE = dt.timedelta(minutes=1)


def add_input(folder: Path, epoch: int) -> None:
    """Write the input files of an epoch, with a modification time after those of earlier epochs."""
    for side in ("left", "right"):
        file = folder / side / f"{epoch:05}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(json.dumps(row) + "\n" for row in rows(epoch, side)), encoding="utf-8")
        os.utime(file, (1_700_000_000 + epoch, 1_700_000_000 + epoch))


def frame(spark: SparkSession, name: str, folder: Path) -> DataFrame:
    """The query's streaming frame over the input in a folder."""
    reader = spark.readStream.schema("k string, v long, t timestamp").option("maxFilesPerTrigger", 1)
    return query(name).build(reader.json(str(folder / "left")), reader.json(str(folder / "right")))


def query(name: str) -> Recorded:
    """The query with a name."""
    return QUERIES["aggregation" if name == WIDE else name]


def run(spark: SparkSession, name: str, folder: Path, checkpoint: Path) -> None:
    """Run a query over all available input."""
    writer = frame(spark, name, folder).writeStream.format("noop").outputMode(query(name).mode)
    writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()


def _record(version: str, folder: Path) -> None:
    """Run every query of a version, each with a separate checkpoint."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for epoch in range(EPOCHS):
        add_input(folder / "input", epoch)
    for name, provider in recorded(version):
        session = spark.newSession()
        settings = {**PROVIDERS[provider], "spark.sql.shuffle.partitions": "200" if name == WIDE else "2"}
        # Checkpoints then have both deltas and snapshots.
        settings |= {f"{_STORE}.minDeltasForSnapshot": "3", "spark.sql.session.timeZone": "UTC"}
        for key, value in settings.items():
            session.conf.set(key, value)
        run(session, name, folder / "input", folder / provider / name)
    spark.stop()


if __name__ == "__main__":
    _record(sys.argv[1], Path(sys.argv[2]))
