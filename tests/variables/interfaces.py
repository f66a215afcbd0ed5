"""Queries in which one interface of Spark reads and contributes to a variable: a query for each interface.

Each makes a state with a row for each epoch ``e``: how many rows it had, and the least and the most of the values that
they saw. The functions are pickled by value, because Spark's Python workers cannot import the tests.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

import streamstate as ss

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

ROWS = 11
"""The rows of an epoch."""
SEEN = "e long, v long, seen long"
STATE = "n long, least long, most long"
OUTPUT = f"e long, {STATE}"

Build = Callable[[DataFrame, ss.SharedVariable], DataFrame]


@dataclass(frozen=True)
class Interface:
    """An interface of Spark in which code of one's own runs.

    Attributes:
        build: makes the query from the stream of ``e, v`` and the variable.
        contributes: whether it contributes; else a function beside it does.
        added: how much is added in an epoch of eleven rows.
        to: makes the sink, from a folder in which it writes down what it saw; by default results go nowhere.
    """

    build: Build
    contributes: bool = True
    added: int = ROWS
    to: Callable[[Path, ss.SharedVariable], Any] | None = None


def kept(seen: DataFrame) -> DataFrame:
    """The state of a query whose rows have ``e`` and ``seen``."""
    return seen.groupBy("e").agg(F.count("*").alias("n"), F.min("seen").alias("least"), F.max("seen").alias("most"))


def python_udf(stream: DataFrame, total: ss.SharedVariable) -> DataFrame:
    """A function of a row."""

    def seen(_v: int | None) -> Any:
        total.add(1)
        return total.get()

    return kept(stream.withColumn("seen", F.udf(seen, "long")("v")))


def pandas_udf(stream: DataFrame, total: ss.SharedVariable) -> DataFrame:
    """A function of a pandas series."""

    def seen(v: pd.Series) -> pd.Series:
        total.add(len(v))
        return pd.Series([total.get()] * len(v), dtype="int64")

    return kept(stream.withColumn("seen", F.pandas_udf(seen, "long")("v")))


def arrow_udf(stream: DataFrame, total: ss.SharedVariable) -> DataFrame:
    """A function of an Arrow array."""

    def seen(v: pa.Array) -> pa.Array:
        total.add(len(v))
        return pa.array([total.get()] * len(v), pa.int64())

    return kept(stream.withColumn("seen", F.arrow_udf(seen, "long")("v")))


def map_in_pandas(stream: DataFrame, total: ss.SharedVariable) -> DataFrame:
    """A function of frames."""

    def seen(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            total.add(len(frame))
            yield frame.assign(seen=total.get())

    return kept(stream.mapInPandas(seen, SEEN))


def map_in_arrow(stream: DataFrame, total: ss.SharedVariable) -> DataFrame:
    """A function of record batches."""

    def seen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            total.add(len(batch))
            yield batch.append_column("seen", pa.array([total.get()] * len(batch), pa.int64()))

    return kept(stream.mapInArrow(seen, SEEN))


def merged(before: Any, rows: int, seen: int) -> tuple[int, int, int]:
    """The state of a key with more rows."""
    n, least, most = before or (0, seen, seen)
    return n + rows, min(least, seen), max(most, seen)


def with_group_state(stream: DataFrame, total: ss.SharedVariable) -> DataFrame:
    """A function with state."""

    def seen(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        rows = sum(map(len, frames))
        total.add(rows)
        state.update(merged(state.get if state.exists else None, rows, total.get()))
        yield pd.DataFrame([(key[0], *state.get)], columns=["e", "n", "least", "most"])

    return stream.groupBy("e").applyInPandasWithState(seen, OUTPUT, STATE, "update", "NoTimeout")


class Seeing(StatefulProcessor):
    """A processor that reads and contributes where it handles rows."""

    def __init__(self, total: ss.SharedVariable) -> None:
        self.total = total

    def init(self, handle: Any) -> None:
        """Declare the state."""
        self.state = handle.getValueState("kept", STATE)

    def update(self, rows: int) -> tuple[int, int, int]:
        """Add rows to the state."""
        self.total.add(rows)
        state = merged(self.state.get() if self.state.exists() else None, rows, self.total.get())
        self.state.update(state)
        return state

    def close(self) -> None:
        """Nothing to close."""


class SeeingRows(Seeing):
    """``transformWithState``."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        """Count the rows."""
        n, least, most = self.update(len(list(rows)))
        yield Row(e=key[0], n=n, least=least, most=most)


class SeeingFrames(Seeing):
    """``transformWithStateInPandas``."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        """Count the rows of the frames."""
        state = self.update(sum(map(len, rows)))
        yield pd.DataFrame([(key[0], *state)], columns=["e", "n", "least", "most"])


def processor_of_rows(stream: DataFrame, total: ss.SharedVariable) -> DataFrame:
    """A processor of rows."""
    return stream.groupBy("e").transformWithState(SeeingRows(total), OUTPUT, "update", "none")


def processor_of_frames(stream: DataFrame, total: ss.SharedVariable) -> DataFrame:
    """A processor of frames."""
    return stream.groupBy("e").transformWithStateInPandas(SeeingFrames(total), OUTPUT, "update", "none")


@dataclass
class Half(InputPartition):  # type: ignore[misc] # PySpark's class has no types
    """A part of an epoch's rows."""

    epoch: int
    half: int

    def __init__(self, epoch: int, half: int) -> None:
        self.epoch, self.half = epoch, half


class SeenReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Eleven rows an epoch, in two partitions, for two epochs."""

    def __init__(self, total: ss.SharedVariable) -> None:
        self.total = total

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's)
        """Two epochs are available."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 (Spark's)
        """The beginning."""
        return {"epoch": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802 (Spark's)
        """An epoch more."""
        return {"epoch": min(start["epoch"] + 1, 2)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Two for each epoch."""
        return [Half(epoch, half) for epoch in range(start["epoch"], end["epoch"]) for half in range(2)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, int, int]]:
        """The rows, with what is seen when they are read."""
        assert isinstance(partition, Half)
        for row in range(partition.half, ROWS, 2):
            self.total.add(1)
            yield partition.epoch, row, self.total.get()


def python_source(stream: DataFrame, total: ss.SharedVariable) -> DataFrame:
    """A source that is written in Python."""

    class Seen(DataSource):
        @classmethod
        def name(cls) -> str:
            return "seen"

        def schema(self) -> str:
            return SEEN

        def streamReader(self, schema: StructType) -> SeenReader:  # noqa: N802 (Spark's)
            return SeenReader(total)

    spark = stream.sparkSession
    spark.dataSource.register(Seen)
    return kept(spark.readStream.format("seen").load())


@dataclass
class Written(WriterCommitMessage):  # type: ignore[misc] # PySpark's class has no types
    """What a task wrote."""

    path: str


class SinkWriter(DataSourceStreamWriter):
    """Writes what its tasks see into files."""

    def __init__(self, folder: str, total: ss.SharedVariable) -> None:
        self.folder, self.total = folder, total

    def write(self, iterator: Iterator[Row]) -> Written:
        """A file of each partition that has rows."""
        for row in iterator:
            self.total.add(1)
            note(self.folder, f"{row.e}", self.total.get())
        return Written(self.folder)

    def commit(self, messages: Any, batchId: int) -> None:
        """Nothing to do."""

    def abort(self, messages: Any, batchId: int) -> None:
        """Nothing to do."""


def note(folder: str, epoch: str, seen: int) -> None:
    """Write down what was seen in an epoch; a task that runs again replaces it."""
    Path(folder).mkdir(exist_ok=True)
    (Path(folder) / f"{epoch}.json").write_text(json.dumps(seen))


def counted(stream: DataFrame, total: ss.SharedVariable) -> DataFrame:
    """A query that uses no variable itself: its sink does. The state has the rows of each epoch."""
    return stream.groupBy("e").agg(F.count("*").alias("n"))


def python_sink(folder: Path, total: ss.SharedVariable) -> str:
    """A sink that is written in Python."""

    class SeenSink(DataSource):
        @classmethod
        def name(cls) -> str:
            return "seen_sink"

        def streamWriter(self, schema: StructType, overwrite: bool) -> SinkWriter:  # noqa: N802 (Spark's)
            return SinkWriter(self.options["path"], total)

    from pyspark.sql import SparkSession

    SparkSession.active().dataSource.register(SeenSink)
    return f"seen_sink:{folder}"


def in_the_driver(folder: Path, total: ss.SharedVariable) -> Callable[[DataFrame, int], None]:
    """The function of ``foreachBatch`` itself."""

    def handle(batch: DataFrame, epoch: int) -> None:
        for row in batch.collect():
            total.add(1)
            note(str(folder), f"{row.e}", total.get())
        assert epoch >= 0

    return handle


def in_its_jobs(folder: Path, total: ss.SharedVariable) -> Callable[[DataFrame, int], None]:
    """What runs in the tasks of the jobs that ``foreachBatch`` starts."""

    def seen(e: int) -> int:
        total.add(1)
        note(str(folder), f"{e}", total.get())
        return 0

    def handle(batch: DataFrame, _epoch: int) -> None:
        batch.select(F.udf(seen, "long")("e")).collect()

    return handle


def native_column(stream: DataFrame, total: ss.SharedVariable) -> DataFrame:
    """An expression of Spark's own; a function beside it contributes."""
    return kept(contributed(stream, total).withColumn("seen", ss.shared_column(total)))


def contributed(stream: DataFrame, total: ss.SharedVariable) -> DataFrame:
    """The stream, whose rows are counted by a function."""

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            total.add(len(batch))
            yield batch

    return stream.mapInArrow(count, "e long, v long")


def in_sql(stream: DataFrame, total: ss.SharedVariable) -> DataFrame:
    """SQL; a function beside it contributes."""
    from streamstate.variables.columns import with_variables_in_sql

    contributed(stream, total).createOrReplaceTempView("counted_rows")
    sql = "SELECT e, count(*) AS n, min(s) AS least, max(s) AS most FROM"
    sql = f"{sql} (SELECT e, shared('total') AS s FROM counted_rows) GROUP BY e"
    return stream.sparkSession.sql(with_variables_in_sql(sql, stream.sparkSession, {"total": total}))


INTERFACES = {
    "Python UDF": Interface(python_udf),
    "pandas UDF": Interface(pandas_udf),
    "Arrow UDF": Interface(arrow_udf),
    "mapInPandas": Interface(map_in_pandas),
    "mapInArrow": Interface(map_in_arrow),
    "applyInPandasWithState": Interface(with_group_state),
    "transformWithState": Interface(processor_of_rows),
    "transformWithStateInPandas": Interface(processor_of_frames),
    "Python source": Interface(python_source),
    "Python sink": Interface(counted, added=1, to=python_sink),
    "foreachBatch, its function": Interface(counted, added=1, to=in_the_driver),
    "foreachBatch, its jobs": Interface(counted, added=1, to=in_its_jobs),
    "native column": Interface(native_column, contributes=False),
    "SQL": Interface(in_sql, contributes=False),
}
