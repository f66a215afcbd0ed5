"""Cost of writing state: restore, migrate, bootstrap and edits, with the driver's memory."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import streamstate as ss
from benchmarks.harness import Measurement, Size, timed
from streamstate.operations.drill.scratch import scratch
from streamstate.snapshots.spark.child_settings import spark_settings

_SECONDS_PER_MILLION = 15.0
"""What is aimed at, at most, with everything read back."""
_TURNS = 3
_DRIVER = "512m"
_MORE = 10
"""The larger state of the driver's memory has so many times the keys."""


class State:
    """A captured keyed aggregate, and the ways to make another checkpoint of its state."""

    def __init__(self, spark: SparkSession, folder: Path, keys: int) -> None:
        self.spark, self.folder, self.checkpoint, self.made = spark, folder, folder / "checkpoint", 0
        rows = spark.range(keys).selectExpr("concat('key ', id) AS key", "double(id) AS x")
        rows.write.parquet(str(folder / "input"))
        self.started_over = timed(lambda: self._run(self.checkpoint))
        ss.Checkpoint(self.checkpoint).capture(folder / "store", "q", spark=spark)

    def _run(self, checkpoint: Path) -> None:
        writer = self.query().writeStream.format("noop").outputMode("update")
        writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()

    def query(self) -> DataFrame:
        """Return the query."""
        stream = self.spark.readStream.schema("key string, x double").parquet(str(self.folder / "input"))
        return stream.groupBy("key").agg(F.count("*"), F.max("x"))

    def changed(self) -> DataFrame:
        """Return the query without one of its aggregates."""
        stream = self.spark.readStream.schema("key string, x double").parquet(str(self.folder / "input"))
        return stream.groupBy("key").agg(F.max("x"))

    def totals(self) -> DataFrame:
        """Return the rows of the state, as a user has them in a table."""
        return self.spark.read.parquet(str(self.folder / "input")).selectExpr("key", "1L AS count", "x AS max")

    def ways(self) -> Mapping[str, Callable[[], object]]:
        """Return each way to make a checkpoint."""
        read = [[f"{self.folder}/input/*.parquet"]]
        return {
            "restore": lambda: (
                ss.open_store(self.folder / "store")["q"].live().restore(to=self._new(), spark=self.spark)
            ),
            "migrate": lambda: ss.Checkpoint(self.checkpoint).migrate(self.changed, to=self._new()),
            "bootstrap": lambda: ss.bootstrap(self.query, to=self._new(), state=self.totals(), offsets=read),
            "edit": lambda: ss.Checkpoint(self.checkpoint).fork(
                self._new(), edit="UPDATE op0 SET max = -max", spark=self.spark
            ),
        }

    def _new(self) -> Path:
        self.made += 1
        return self.folder / f"made-{self.made}"


def writing_state(spark: SparkSession, folder: Path, size: Size) -> Iterator[Measurement]:
    """Measure restore, migrate, bootstrap and an edit of every row, read back, and the driver's memory."""
    state, millions = State(spark, folder, size.keys), size.keys / 1_000_000
    setting = f"{size.keys:,} keys"
    bound = _SECONDS_PER_MILLION * millions
    ways = state.ways()
    turns = [{name: timed(make) for name, make in ways.items()} for _turn in range(_TURNS)]
    for name in ways:
        seconds = statistics.median([turn[name] for turn in turns])
        yield Measurement(
            f"{name}, read back",
            "Checkpoint.fork" if name == "edit" else f"ss.{name}",
            seconds,
            "bound",
            bound,
            _TURNS,
            setting,
            wanted=1.0,
        )
    yield Measurement("the query over the whole input", "run again", state.started_over, "bound", bound, 1, setting)
    small, large = (_driver_bytes(size.keys * times) for times in (1, _MORE))
    for name, before in small.items():
        yield Measurement(
            f"driver after {name}",
            f"{size.keys * _MORE:,} keys",
            large[name],
            setting,
            before,
            1,
            f"two executors, {_DRIVER} for the driver",
            unit="B",
        )


def _driver_bytes(keys: int) -> dict[str, float]:
    with scratch(None, keep=False) as place:
        command = [sys.executable, "-m", "benchmarks.writing_state", str(keys), str(place.folder), str(place.temporary)]
        environment = place.environment() | {"PYSPARK_PYTHON": sys.executable}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return {name: float(found) for name, found in (line.split("\t") for line in done.stdout.splitlines())}


def _on_a_cluster(keys: int, folder: Path, temporary: Path) -> None:
    """Print the driver's memory after each way: Java's live bytes, and Python's peak so far."""
    builder = SparkSession.builder
    settings = spark_settings(4, temporary, cluster=True) | {
        "spark.driver.memory": _DRIVER,
        "spark.ui.enabled": "false",
    }
    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    settings["spark.sql.streaming.stateStore.providerClass"] = provider
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    with tempfile.TemporaryDirectory(dir=folder) as made:
        state = State(spark, Path(made), keys)
        for name, make in {"capture": lambda: None, **state.ways()}.items():
            make()
            java = spark._jvm.java.lang  # type: ignore[union-attr]
            java.System.gc()
            runtime = java.Runtime.getRuntime()
            python = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            print(f"{name}, Java's heap\t{runtime.totalMemory() - runtime.freeMemory()}")
            print(f"{name}, Python\t{python}", flush=True)


if __name__ == "__main__":
    _on_a_cluster(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
