"""Record how the states of five queries grow: ``python -m benchmarks.recorded_loads`` writes ``recorded_loads.json``.

Three read a year of real flights, a file of five days in each epoch; two read made rows, a file of ten minutes. The
file has the duration, the rows and the bytes of each epoch, as Spark reported them, and the time that passed in the
data from one epoch to the next: how long a replay takes says nothing about a query that runs while its data come.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

import streamstate as ss
from streamstate.snapshots.capture.spark_load import load_of
from streamstate.tutorials.flights import flights, prepare

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDED = Path(__file__).with_suffix(".json")
_FILES = 73
_ROWS = 4_000


def main() -> None:
    """Run all queries, one after the other."""
    spark = ss.session(**{"spark.sql.shuffle.partitions": "2"})
    with tempfile.TemporaryDirectory(prefix="streamstate-bench-") as folder:
        data = prepare(Path(folder, "flights"), days_per_file=_DAYS.days)
        write_made(Path(folder, "made"))
        found = {}
        for name, build in QUERIES.items():
            found[name] = _recorded(build(spark, data, Path(folder, "made")), Path(folder, "checkpoints", name))
            found[name]["step"] = _STEPS[name].total_seconds()
            print(name, len(found[name]["rows"]), file=sys.stderr)
    RECORDED.write_text(json.dumps(found, separators=(",", ":")).replace("},", "},\n") + "\n", encoding="utf-8")
    spark.stop()


def write_made(folder: Path) -> None:
    """Write files of rows: names whose popularity follows Zipf's law, and more and more rows, with their times."""
    random = np.random.default_rng(50)
    folder.mkdir()
    for number in range(_FILES):
        rows = int(_ROWS * (1 + number / _FILES))
        begin = pd.Timestamp("2026-01-01", tz="UTC") + number * _MINUTES
        times = begin + pd.to_timedelta(random.uniform(0, _MINUTES.total_seconds(), rows), unit="s")
        frame = pd.DataFrame({"name": random.zipf(1.3, rows) % 10**9, "t": times.floor("us")})
        frame.to_parquet(folder / f"{number:03}.parquet", coerce_timestamps="us")


def _aircraft(spark: SparkSession, data: Path, _made: Path) -> DataFrame:
    return flights(spark, data).dropDuplicates(["tailnum"])


def _aircraft_routes(spark: SparkSession, data: Path, _made: Path) -> DataFrame:
    return flights(spark, data).dropDuplicates(["tailnum", "origin", "dest"])


def _flight_numbers(spark: SparkSession, data: Path, _made: Path) -> DataFrame:
    return flights(spark, data).groupBy("carrier", "flight", "dest").count()


def _names(spark: SparkSession, _data: Path, made: Path) -> DataFrame:
    return _made(spark, made).groupBy("name").count()


def _hours(spark: SparkSession, _data: Path, made: Path) -> DataFrame:
    return _made(spark, made).withWatermark("t", "2 days").dropDuplicates(["name", "t"])


def _made(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema("name long, t timestamp").option("maxFilesPerTrigger", 1).parquet(str(folder))


QUERIES: Mapping[str, Callable[[SparkSession, Path, Path], DataFrame]] = {
    "aircraft": _aircraft,
    "aircraft_routes": _aircraft_routes,
    "flight_numbers": _flight_numbers,
    "names": _names,
    "hours": _hours,
}
_DAYS, _MINUTES = timedelta(days=5), timedelta(minutes=10)
_STEPS = {"aircraft": _DAYS, "aircraft_routes": _DAYS, "flight_numbers": _DAYS, "names": _MINUTES, "hours": _MINUTES}


def _recorded(frame: DataFrame, checkpoint: Path) -> dict[str, Any]:
    """Run a query to the end of its input, and return what Spark reported."""
    writer = frame.writeStream.format("noop").outputMode("update").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    events = [event for event in query.recentProgress if event["numInputRows"]]
    loads = [load_of(event) for event in events]
    return {
        "seconds": [load.seconds for load in loads],
        "rows": [load.operators[0].rows for load in loads],
        "bytes": [load.operators[0].memory_bytes + load.operators[0].stores["rocksdbSstFileSize"] for load in loads],
    }


if __name__ == "__main__":
    main()
