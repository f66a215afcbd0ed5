"""Real queries with the troubles that the troubleshooting guide shows: ``python -m scripts.symptoms FOLDER``.

Each is captured into a store of its own, ``FOLDER/<query>/store``.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

import streamstate as ss

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EPOCHS = 30
IDLE_FROM = 9
"""The epoch from which the second of two streams delivers nothing more."""
START = dt.datetime(2026, 3, 1, 9, tzinfo=dt.UTC)
SCHEMA = "id long, page string, t timestamp"
Build = Callable[["DataFrame", "DataFrame"], "DataFrame"]


def payments(clicks: DataFrame, _: DataFrame) -> DataFrame:
    """Remember the id of every payment."""
    return clicks.withWatermark("t", "10 minutes").dropDuplicates(["id"])


def visits(clicks: DataFrame, views: DataFrame) -> DataFrame:
    """Count the rows of two streams by ten minutes."""
    from pyspark.sql import functions as F

    both = clicks.withWatermark("t", "10 minutes").union(views.withWatermark("t", "10 minutes"))
    return both.groupBy(F.window("t", "10 minutes"), "page").count()


def daily(clicks: DataFrame, _: DataFrame) -> DataFrame:
    """Count rows by day, although the stream has only hours."""
    from pyspark.sql import functions as F

    return clicks.withWatermark("t", "1 hour").groupBy(F.window("t", "1 day"), "page").count()


SYMPTOMS: dict[str, Build] = {"payments": payments, "visits": visits, "daily": daily}


def main(folder: Path) -> None:
    """Run and capture each query."""
    spark = ss.session(**{"spark.sql.shuffle.partitions": "2"})
    for stream, epochs in (("clicks", EPOCHS), ("views", IDLE_FROM)):
        (folder / stream).mkdir(parents=True)
        for epoch in range(epochs):
            pq.write_table(rows(epoch), folder / stream / f"{epoch:03}.parquet")
    for name, build in SYMPTOMS.items():
        capture(spark, folder, name, build)
    spark.stop()


def rows(epoch: int) -> pa.Table:
    """Return ten minutes of a stream: a row every five seconds."""
    count = 120
    times = [START + dt.timedelta(minutes=10 * epoch, seconds=5 * at) for at in range(count)]
    columns = [[epoch * count + at for at in range(count)], [f"/{at % 4}" for at in range(count)], times]
    return pa.table(columns, names=["id", "page", "t"])


def capture(spark: SparkSession, folder: Path, name: str, build: Build) -> None:
    """Run a query over all of its input, capture it and describe it."""

    def frame() -> DataFrame:
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return build(*(reader.parquet(str(folder / stream)) for stream in ("clicks", "views")))

    checkpoint, store = folder / name / "checkpoint", folder / name / "store"
    writer = frame().writeStream.format("noop").outputMode("append").option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
    ss.Checkpoint(checkpoint).capture(store, name, spark=spark)
    ss.open_store(store)[name].describe(frame, mode="append")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
