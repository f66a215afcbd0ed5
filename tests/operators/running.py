"""Run a query over small inputs, capture it, and compare every epoch with Spark's own state reader."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from input_files import in_turn
from oracle import compare
from pyspark.sql import DataFrame, SparkSession

import streamstate as ss
from streamstate.reports import CaptureReport, History

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
    """The input of one epoch: an hour of event time, with a late row, a key of this epoch only, and nulls."""
    start = START + dt.timedelta(hours=epoch)
    times = [start + dt.timedelta(minutes=5 * row) for row in range(count)]
    times[-1] = start - dt.timedelta(minutes=50)
    names: list[str | None] = [f"k{(row + epoch) % keys}" for row in range(count)]
    names[0], names[1] = None, f"only{epoch}"
    numbers: list[int | None] = [epoch * count + row for row in range(count)]
    numbers[2] = None
    return pa.table([names, numbers, times], schema=INPUT)


class Inputs:
    """A folder of Parquet files with the columns ``k string, v long, t timestamp``, of which each epoch reads one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._numbers = itertools.count()
        folder.mkdir(parents=True)

    def add(self, table: pa.Table) -> None:
        """Add the input of an epoch; a running query never sees an incomplete file, as it is renamed when complete."""
        number = next(self._numbers)
        file = self.folder / f"{number:05}.parquet"
        hidden = file.with_name(f"_{file.name}")
        pq.write_table(table, hidden)
        in_turn(hidden, number)
        hidden.rename(file)

    def stream(self, spark: SparkSession) -> DataFrame:
        """The streaming frame in a session."""
        reader = spark.readStream.schema("k string, v long, t timestamp").option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.folder))


Build = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True)
class Query:
    """A stateful query over a stream of ``k, v, t``."""

    build: Build
    """Builds the query's frame from a stream, at each start."""
    tables: tuple[str, ...]
    """The expected state tables, sorted."""
    mode: str = "update"
    conf: Mapping[str, str] = field(default_factory=dict)
    """Settings that the query needs."""


def with_settings(spark: SparkSession, *settings: Mapping[str, str]) -> SparkSession:
    """A new session with the given settings, so that those of the shared session are unchanged."""
    session = spark.newSession()
    defaults = {**ROCKSDB, f"{_STORE}.checkpointFormatVersion": "2"}
    defaults |= {f"{_STORE}.rocksdb.changelogCheckpointing.enabled": "true"}
    defaults |= {"spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC"}
    for key, value in {**defaults, **{key: value for conf in settings for key, value in conf.items()}}.items():
        session.conf.set(key, value)
    return session


@dataclass
class Run:
    """A folder with a query's inputs, checkpoint and store."""

    spark: SparkSession
    folder: Path

    def __post_init__(self) -> None:
        """Create the folder of the inputs."""
        self.inputs = Inputs(self.folder / "input")
        self.checkpoint = self.folder / "checkpoint"
        self.store = self.folder / "store"
        self.reports: list[CaptureReport] = []

    def start(self, query: Query, *settings: Mapping[str, str], epochs: range = range(5)) -> None:
        """Add the input of the epochs, and run the query over all available input."""
        self.start_with(query, [rows(epoch) for epoch in epochs], *settings)

    def start_with(self, query: Query, inputs: Sequence[pa.Table], *settings: Mapping[str, str]) -> None:
        """Add the given input, one table per epoch, and run the query over all available input."""
        for table in inputs:
            self.inputs.add(table)
        session = with_settings(self.spark, query.conf, *settings)
        frame = query.build(self.inputs.stream(session))
        writer = frame.writeStream.format("noop").outputMode(query.mode)
        writer = writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True)
        writer.start().awaitTermination()

    def capture(self) -> CaptureReport:
        """Capture the new epochs."""
        return ss.Checkpoint(self.checkpoint).capture(self.store, "q", spark=self.spark)

    @property
    def history(self) -> History:
        """The captured query."""
        return ss.open_store(self.store)["q"]

    def check(self) -> int:
        """Compare every table at every captured epoch with Spark's reader; returns the number of comparisons."""
        return compare(self.spark, self.checkpoint, self.history)


STARTS = (range(2), range(2, 4))


def checked(
    spark: SparkSession,
    query: Query,
    folder: Path,
    *settings: Mapping[str, str],
    starts: Sequence[range] = STARTS,
    by_spark: Collection[str] = (),
) -> Run:
    """Start a query several times, capture it after each start, and compare every table at every epoch.

    All tables but those ``by_spark`` have to be decoded from the checkpoint's files.
    """
    run = Run(spark, folder)
    for epochs in starts:
        run.start(query, *settings, epochs=epochs)
        run.reports.append(run.capture())
    assert {table for report in run.reports for table in report.by_spark} == {*by_spark}
    history = run.history
    assert sorted(history.tables()) == list(query.tables)
    assert run.check() == len(query.tables) * len(history.captured()) > 0
    return run
