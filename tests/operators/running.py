"""Runs a query over small inputs, captures it and compares every epoch with Spark's own state reader."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from input_files import in_turn
from oracle import compare
from pyspark.sql import DataFrame, SparkSession

import streamstate as ss

INPUT = pa.schema([("k", pa.string()), ("v", pa.int64()), ("t", pa.timestamp("us", tz="UTC"))])
START = dt.datetime(2024, 3, 31, 0, 30, 0, 123456, tzinfo=dt.UTC)

_STORE = "spark.sql.streaming.stateStore"
_PACKAGE = "org.apache.spark.sql.execution.streaming.state"
ROCKSDB = {f"{_STORE}.providerClass": f"{_PACKAGE}.RocksDBStateStoreProvider"}
HDFS = {f"{_STORE}.providerClass": f"{_PACKAGE}.HDFSBackedStateStoreProvider", f"{_STORE}.checkpointFormatVersion": "1"}
CHANGELOG_OFF = {**ROCKSDB, f"{_STORE}.rocksdb.changelogCheckpointing.enabled": "false"}
FORMAT_1 = {**ROCKSDB, f"{_STORE}.checkpointFormatVersion": "1"}
AVRO = {f"{_STORE}.encodingFormat": "avro"}
JOIN = "spark.sql.streaming.join.stateFormatVersion"


def rows(epoch: int, keys: int = 5, count: int = 11) -> pa.Table:
    """Input of one epoch: an hour of event time, one row that is late, one key that only this epoch has, nulls."""
    start = START + dt.timedelta(hours=epoch)
    times = [start + dt.timedelta(minutes=5 * row) for row in range(count)]
    times[-1] = start - dt.timedelta(minutes=50)
    names: list[str | None] = [f"k{(row + epoch) % keys}" for row in range(count)]
    names[0], names[1] = None, f"only{epoch}"
    numbers: list[int | None] = [epoch * count + row for row in range(count)]
    numbers[2] = None
    return pa.table([names, numbers, times], schema=INPUT)


class Inputs:
    """A folder of Parquet files that a query reads one file an epoch; columns ``k string, v long, t timestamp``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._numbers = itertools.count()
        folder.mkdir(parents=True)

    def add(self, table: pa.Table) -> None:
        """One more epoch's input; complete at once, so that a running query never sees half a file."""
        number = next(self._numbers)
        file = self.folder / f"{number:05}.parquet"
        hidden = file.with_name(f"_{file.name}")
        pq.write_table(table, hidden)
        in_turn(hidden, number)
        hidden.rename(file)

    def stream(self, spark: SparkSession) -> DataFrame:
        """The streaming frame, in a session of the caller's settings."""
        reader = spark.readStream.schema("k string, v long, t timestamp").option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.folder))


Build = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True)
class Query:
    """A stateful query over a stream of ``k, v, t``."""

    build: Build
    """Makes the query's frame; called with a stream as often as the query starts."""
    tables: tuple[str, ...]
    """The state tables that it is to have, sorted."""
    mode: str = "update"
    conf: Mapping[str, str] = field(default_factory=dict)
    """Settings that the query itself needs."""


def with_settings(spark: SparkSession, *settings: Mapping[str, str]) -> SparkSession:
    """A session of its own with some settings, so that those of the shared one stay as they are."""
    session = spark.newSession()
    defaults = {**ROCKSDB, f"{_STORE}.checkpointFormatVersion": "2"}
    defaults |= {f"{_STORE}.rocksdb.changelogCheckpointing.enabled": "true"}
    defaults |= {"spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC"}
    for key, value in {**defaults, **{key: value for one in settings for key, value in one.items()}}.items():
        session.conf.set(key, value)
    return session


@dataclass
class Run:
    """A query's inputs, checkpoint and store in one folder."""

    spark: SparkSession
    folder: Path

    def __post_init__(self) -> None:
        """Make the inputs' folder."""
        self.inputs = Inputs(self.folder / "input")
        self.checkpoint = self.folder / "checkpoint"
        self.store = self.folder / "store"
        self.reports: list[ss.CaptureReport] = []

    def start(self, query: Query, *settings: Mapping[str, str], epochs: range = range(5)) -> None:
        """Add inputs and run the query over all there are, as one start."""
        self.start_with(query, [rows(epoch) for epoch in epochs], *settings)

    def start_with(self, query: Query, inputs: Sequence[pa.Table], *settings: Mapping[str, str]) -> None:
        """The same with the rows of each epoch given."""
        for table in inputs:
            self.inputs.add(table)
        session = with_settings(self.spark, query.conf, *settings)
        frame = query.build(self.inputs.stream(session))
        writer = frame.writeStream.format("noop").outputMode(query.mode)
        writer = writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True)
        writer.start().awaitTermination()

    def capture(self) -> ss.CaptureReport:
        """Bring the store up to date."""
        return ss.capture(self.checkpoint, self.store, "q", spark=self.spark)

    @property
    def history(self) -> ss.History:
        """What was captured."""
        return ss.open_store(self.store)["q"]

    def check(self) -> int:
        """Compare every table at every captured epoch with Spark's reader; returns how many were compared."""
        return compare(self.spark, self.checkpoint, self.history)


STARTS = (range(2), range(2, 4))


def checked(
    spark: SparkSession,
    query: Query,
    folder: Path,
    *settings: Mapping[str, str],
    starts: Sequence[range] = STARTS,
) -> Run:
    """Run a query in some starts, capture it after each, and compare every table at every epoch."""
    run = Run(spark, folder)
    for epochs in starts:
        run.start(query, *settings, epochs=epochs)
        run.reports.append(run.capture())
    history = run.history
    assert sorted(history.tables()) == list(query.tables)
    assert run.check() == len(query.tables) * len(history.captured()) > 0
    return run
