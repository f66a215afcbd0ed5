"""Queries in which code of one's own, at each interface of Spark, reads and contributes to a variable.

Each query covers an interface or several, each with a variable of its own: its state, or what its sink writes down, has
what was seen at each interface in each epoch ``e``. The functions are pickled by value, because Spark's Python workers
cannot import the tests.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, Row, SparkSession
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
from streamstate.reports import SharedVariable
from streamstate.snapshots.spark.python_sources import register_source
from streamstate.variables.columns import with_variables_in_sql

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

ROWS, BASE = 11, 1000
"""The rows of an epoch, and what ``e`` is multiplied by in a key that also has what was seen."""
STATE = "n long, least long, most long"
OUTPUT = f"e long, {STATE}"

INTERFACES = {
    "Python UDF": True,
    "pandas UDF": True,
    "Arrow UDF": True,
    "mapInPandas": True,
    "mapInArrow": True,
    "applyInPandasWithState": True,
    "transformWithState": True,
    "transformWithStateInPandas": True,
    "Python source": True,
    "Python sink": True,
    "foreachBatch, its function": True,
    "foreachBatch, its jobs": True,
    "native column": False,
    "SQL": False,
}
"""Where a variable is read, and whether it can be contributed to there. If not, a function beside it does."""

Variables = Mapping[str, SharedVariable]
Build = Callable[[DataFrame, Variables], DataFrame]
Step = Callable[[DataFrame, SharedVariable, str], DataFrame]


@dataclass(frozen=True)
class Case:
    """A query that covers some interfaces.

    Attributes:
        build: makes it from a stream of ``e, v`` and the variables by interface.
        in_state: the interfaces of which the state has what they saw: the least and the most of each, in this order.
        in_sink: those of which the sink writes down what they saw.
        in_key: the one of which the key has what it saw, beside ``e``.
        mode: the output mode.
        sink: makes the sink from a session, a folder and the variables; by default results go nowhere.
    """

    build: Build
    in_state: tuple[str, ...]
    in_sink: tuple[str, ...] = ()
    mode: str = "update"
    sink: Callable[[SparkSession, Path, Variables], Any] = lambda _spark, _folder, _variables: "noop"
    in_key: str | None = None


# Functions of rows: each adds a column with what it saw.


def python_udf(stream: DataFrame, total: SharedVariable, name: str) -> DataFrame:
    """A function of a row."""

    def seen(_v: int) -> Any:
        total.add(1)
        return total.get()

    return stream.withColumn(name, F.udf(seen, "long")("v"))


def pandas_udf(stream: DataFrame, total: SharedVariable, name: str) -> DataFrame:
    """A function of a pandas series."""

    def seen(v: pd.Series) -> pd.Series:
        total.add(len(v))
        return pd.Series([total.get()] * len(v), dtype="int64")

    udf = F.pandas_udf(seen, "long")  # type: ignore[call-overload] # PySpark's stubs want the kind, which it infers
    return stream.withColumn(name, udf("v"))


def arrow_udf(stream: DataFrame, total: SharedVariable, name: str) -> DataFrame:
    """A function of an Arrow array."""

    def seen(v: pa.Array) -> pa.Array:
        total.add(len(v))
        return pa.array([total.get()] * len(v), pa.int64())

    udf = F.arrow_udf(seen, "long")  # type: ignore[call-overload] # likewise
    return stream.withColumn(name, udf("v"))


def map_in_pandas(stream: DataFrame, total: SharedVariable, name: str) -> DataFrame:
    """A function of frames."""

    def seen(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            total.add(len(frame))
            yield frame.assign(**{name: total.get()})

    return stream.mapInPandas(seen, StructType([*stream.schema]).add(name, "long"))


def map_in_arrow(stream: DataFrame, total: SharedVariable, name: str) -> DataFrame:
    """A function of record batches."""

    def seen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            total.add(len(batch))
            yield batch.append_column(name, pa.array([total.get()] * len(batch), pa.int64()))

    return stream.mapInArrow(seen, StructType([*stream.schema]).add(name, "long"))


def contributed(stream: DataFrame, total: SharedVariable) -> DataFrame:
    """The stream, whose rows are counted by a function."""

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            total.add(len(batch))
            yield batch

    return stream.mapInArrow(count, stream.schema)


def native_column(stream: DataFrame, total: SharedVariable, name: str) -> DataFrame:
    """An expression of Spark's own."""
    return contributed(stream, total).withColumn(name, ss.shared_column(total))


def in_sql(stream: DataFrame, total: SharedVariable, name: str) -> DataFrame:
    """SQL."""
    spark = stream.sparkSession
    contributed(stream, total).createOrReplaceTempView("rows_in_sql")
    sql = f"SELECT *, shared('{total.name}') AS {name} FROM rows_in_sql"
    return spark.sql(with_variables_in_sql(sql, spark, {total.name: total}))


STEPS: dict[str, Step] = {
    "Python UDF": python_udf,
    "pandas UDF": pandas_udf,
    "Arrow UDF": arrow_udf,
    "mapInPandas": map_in_pandas,
    "mapInArrow": map_in_arrow,
    "native column": native_column,
    "SQL": in_sql,
}


def with_steps(*interfaces: str) -> Case:
    """A query with some functions of rows, one after another."""

    def build(stream: DataFrame, variables: Variables) -> DataFrame:
        sums = []
        for number, interface in enumerate(interfaces):
            name = f"s{number}"
            stream = STEPS[interface](stream, variables[interface], name)
            sums += [F.min(name).alias(f"least{number}"), F.max(name).alias(f"most{number}")]
        return stream.groupBy("e").agg(F.count("*").alias("n"), *sums)

    return Case(build, interfaces)


# Functions with state.


def merged(before: Any, rows: int, seen: int) -> tuple[int, int, int]:
    """The state of a key with more rows."""
    n, least, most = before or (0, seen, seen)
    return n + rows, min(least, seen), max(most, seen)


def with_group_state(stream: DataFrame, total: SharedVariable) -> DataFrame:
    """``applyInPandasWithState``."""

    def seen(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        rows = sum(map(len, frames))
        total.add(rows)
        state.update(merged(state.get if state.exists else None, rows, total.get()))
        yield pd.DataFrame([(key[0], *state.get)], columns=["e", "n", "least", "most"])

    return stream.groupBy("e").applyInPandasWithState(seen, OUTPUT, STATE, "update", "NoTimeout")


class Seeing(StatefulProcessor):
    """A processor that reads and contributes where it handles rows."""

    def __init__(self, total: SharedVariable) -> None:
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


def processor_of_rows(stream: DataFrame, variables: Variables) -> DataFrame:
    """A processor of rows."""
    processor = SeeingRows(variables["transformWithState"])
    return stream.groupBy("e").transformWithState(processor, OUTPUT, "append", "none")


def processor_of_frames(stream: DataFrame, variables: Variables) -> DataFrame:
    """A processor of frames."""
    processor = SeeingFrames(variables["transformWithStateInPandas"])
    return stream.groupBy("e").transformWithStateInPandas(processor, OUTPUT, "update", "none")


# Sources and sinks.


@dataclass
class Half(InputPartition):
    """A part of an epoch's rows."""

    epoch: int
    half: int

    def __init__(self, epoch: int, half: int) -> None:
        self.epoch, self.half = epoch, half


class SeenReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Eleven rows an epoch, in two partitions, for two epochs."""

    def __init__(self, total: SharedVariable) -> None:
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


def from_a_source(stream: DataFrame, variables: Variables) -> DataFrame:
    """A source that is written in Python, under a function with state."""
    total = variables["Python source"]

    class Seen(DataSource):
        @classmethod
        def name(cls) -> str:
            return "seen"

        def schema(self) -> str:
            return "e long, v long, seen long"

        def streamReader(self, schema: StructType) -> SeenReader:  # noqa: N802 (Spark's)
            return SeenReader(total)

    spark = stream.sparkSession
    register_source(spark, Seen)
    read = spark.readStream.format("seen").load()
    # The function's state has what it saw itself, and the key what the source saw.
    keyed = read.select((F.col("e") * BASE + F.col("seen")).alias("e"))
    return with_group_state(keyed, variables["applyInPandasWithState"])


@dataclass
class Written(WriterCommitMessage):
    """The file that a task wrote."""

    path: str


class SinkWriter(DataSourceStreamWriter):
    """Writes what its tasks see into files."""

    def __init__(self, folder: str, total: SharedVariable) -> None:
        self.folder, self.total = folder, total

    def write(self, iterator: Iterator[Row]) -> Written:
        """A file of each partition that has rows."""
        for row in iterator:
            self.total.add(1)
            note(self.folder, "Python sink", row.e, self.total.get())
        return Written(self.folder)

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803 (Spark's)
        """Nothing to do."""

    def abort(self, messages: Any, batchId: int) -> None:  # noqa: N803 (Spark's)
        """Nothing to do."""


def note(folder: Path | str, interface: str, epoch: int, seen: Any) -> None:
    """Write down what was seen at an interface in an epoch; a task that runs again replaces it."""
    (Path(folder) / interface).mkdir(exist_ok=True, parents=True)
    (Path(folder) / interface / f"{epoch}.json").write_text(json.dumps(seen))


def noted(folder: Path, interface: str) -> dict[int, int]:
    """Return what was written down for an interface, by epoch."""
    return {int(file.stem): json.loads(file.read_text()) for file in (folder / interface).iterdir()}


def python_sink(spark: SparkSession, folder: Path, variables: Variables) -> str:
    """A sink that is written in Python."""
    total = variables["Python sink"]

    class SeenSink(DataSource):
        @classmethod
        def name(cls) -> str:
            return "seen_sink"

        def streamWriter(self, schema: StructType, overwrite: bool) -> SinkWriter:  # noqa: N802 (Spark's)
            return SinkWriter(self.options["path"], total)

    register_source(spark, SeenSink)
    return f"seen_sink:{folder}"


def for_each_batch(_spark: SparkSession, folder: Path, variables: Variables) -> Callable[[DataFrame, int], None]:
    """A function of an epoch's rows, which runs in the driver, and starts a job."""
    here, there = variables["foreachBatch, its function"], variables["foreachBatch, its jobs"]

    def seen(e: int) -> int:
        there.add(1)
        note(folder, "foreachBatch, its jobs", e, there.get())
        return e

    def handle(batch: DataFrame, _epoch: int) -> None:
        for row in batch.select(F.udf(seen, "long")("e").alias("e")).collect():
            here.add(1)
            note(folder, "foreachBatch, its function", row.e, here.get())

    return handle


CASES = {
    **{name: with_steps(name) for name in ("Python UDF", "pandas UDF", "Arrow UDF", "mapInPandas", "mapInArrow")},
    "native column and SQL": with_steps("native column", "SQL"),
    "source and function with state": Case(from_a_source, ("applyInPandasWithState",), in_key="Python source"),
    "processor of rows and sink": Case(
        processor_of_rows, ("transformWithState",), ("Python sink",), "append", python_sink
    ),
    "processor of frames and foreachBatch": Case(
        processor_of_frames,
        ("transformWithStateInPandas",),
        ("foreachBatch, its function", "foreachBatch, its jobs"),
        sink=for_each_batch,
    ),
}
