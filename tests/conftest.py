"""One Spark session for all tests, and small streaming queries to capture."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from input_files import in_turn
from pyspark.sql import DataFrame, SparkSession
from spark_settings import PLAIN_FILES

import streamstate as ss


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests come first, so that no worker is left alone with one at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The embedded session, shared because Spark starts slowly."""
    session = ss.session(
        **{
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "UTC",
            "spark.driver.memory": "2g",
            "spark.sql.streaming.minBatchesToRetain": "100",
            # Tests run many small jobs once: the quick compiler beats the thorough one.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            # Nor is it worth while to compile their queries. Tests with a Spark of their own, notebooks and whatever is
            # killed among them, run as Spark does by itself.
            "spark.sql.codegen.wholeStage": "false",
            **PLAIN_FILES,
        }
    )
    yield session
    session.stop()


class Source:
    """A folder of Parquet files that a query reads one file an epoch."""

    def __init__(self, spark: SparkSession, folder: Path, schema: str) -> None:
        self._spark = spark
        self._schema = schema
        self._numbers = itertools.count()
        self.folder = folder
        folder.mkdir(parents=True)

    def add(self, rows: dict[str, list[Any]]) -> None:
        """One more epoch's input; complete at once, so that a running query never sees half a file."""
        number = next(self._numbers)
        file = self.folder / f"{number:05}.parquet"
        hidden = file.with_name(f"_{file.name}")
        pd.DataFrame(rows).to_parquet(hidden, coerce_timestamps="us")
        in_turn(hidden, number)
        hidden.rename(file)

    def stream(self) -> DataFrame:
        """The streaming frame."""
        reader = self._spark.readStream.schema(self._schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.folder))


def run(frame: DataFrame, checkpoint: Path, mode: str = "update") -> None:
    """Run a query over all input that is there, then end it."""
    writer = frame.writeStream.format("noop").outputMode(mode).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> Source:
    """An empty source of ``k string, v long``."""
    return Source(spark, tmp_path / "input", "k string, v long")


def counts(source: Source) -> DataFrame:
    """A small keyed aggregate; ``avg`` beside ``count`` gives Spark's value struct two fields named count."""
    from pyspark.sql import functions as F

    return source.stream().groupBy("k").agg(F.count("*").alias("n"), F.avg("v").alias("mean"), F.max("v").alias("most"))


def letters(epoch: int, keys: int = 7, rows: int = 20) -> dict[str, list[Any]]:
    """Input of one epoch: every key, except that each epoch leaves one out and brings one of its own."""
    numbers = range(rows * epoch, rows * (epoch + 1))
    named = [f"k{number % keys}" for number in numbers if number % keys != epoch % keys]
    return {"k": [*named, f"only{epoch}"], "v": [*numbers[: len(named)], epoch]}


@pytest.fixture(scope="session")
def counted(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A finished query of five epochs, captured: its checkpoint and the store, in which it is called ``counts``."""
    folder = tmp_path_factory.mktemp("counted")
    source = Source(spark, folder / "input", "k string, v long")
    for epoch in range(5):
        source.add(letters(epoch))
    run(counts(source), folder / "checkpoint")
    ss.capture(folder / "checkpoint", folder / "store", "counts", spark=spark)
    return folder / "checkpoint", folder / "store"


@pytest.fixture(scope="session")
def store(counted: tuple[Path, Path]) -> ss.Store:
    """The store of ``counted``, opened."""
    return ss.open_store(counted[1])
