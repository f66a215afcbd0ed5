"""Small queries with several state tables, and their states from Spark's own reader, read once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from conftest import Source, run
from oracle import spark_rows
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from faults.inspection import Expected, keyed

_HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"


@dataclass(frozen=True)
class Workload:
    """A query that has run to its end, and its expected states."""

    checkpoint: Path
    expected: Expected
    expected_at: Path


def remembered(source: Source) -> DataFrame:
    """A ``transformWithState`` with a list and a value: ``op0_recent`` and ``op0_total``."""

    # Inside the function, so that the class is pickled: Spark's workers cannot import this module.
    class Remembering(StatefulProcessor):
        """Each key's recent values as a list, which is cleared when full, and their sum."""

        def init(self, handle: StatefulProcessorHandle) -> None:
            self._recent = handle.getListState("recent", "v long")
            self._total = handle.getValueState("total", "n long, most long")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
            """Append the values; clear the list after six, and remove a key whose total is a multiple of five."""
            values = [(row["v"],) for row in rows]
            if len(list(self._recent.get())) + len(values) > 6:
                self._recent.put(values[-2:])
            else:
                self._recent.appendList(values)
            before = self._total.get()
            total = sum(value for (value,) in values) + (before[0] if before else 0)
            if total % 5 == 0:
                self._recent.clear()
                self._total.clear()
            else:
                self._total.update((total, max(value for (value,) in values)))
            yield Row(k=key[0], n=total)

    return source.stream().groupBy("k").transformWithState(Remembering(), "k string, n long", "update", "none")


def joined(source: Source) -> DataFrame:
    """A self-join: ``op0_left`` and ``op0_right``, from which rows are evicted."""
    left = source.stream().withWatermark("t", "1 hour").alias("a")
    right = source.stream().withColumnRenamed("v", "w").withWatermark("t", "1 hour").alias("b")
    return left.join(right, F.expr("a.k = b.k AND a.t >= b.t AND a.t <= b.t + INTERVAL 1 HOUR"), "leftOuter")


def values(epoch: int) -> dict[str, list[Any]]:
    """The input of one epoch of ``remembered``."""
    return {"k": [f"k{(epoch + row) % 5}" for row in range(8)], "v": [epoch * 7 + row * row for row in range(8)]}


def hours(epoch: int) -> dict[str, list[Any]]:
    """The input of one epoch of ``joined``: event times that advance by an hour."""
    start = pd.Timestamp("2013-01-01", tz="UTC") + pd.Timedelta(hours=epoch)
    rows = range(8)
    return {
        "k": [f"k{row % 3}" for row in rows],
        "v": [epoch * 100 + row for row in rows],
        "t": [start + pd.Timedelta(minutes=10 * row) for row in rows],
    }


def source_of(spark: SparkSession, folder: Path, query: Callable[[Source], DataFrame]) -> Source:
    """The empty source of a query, in a separate session with settings that keep runs short."""
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "1")
    if query is joined:  # Spark's lighter state store provider, which transformWithState does not support
        session.conf.set("spark.sql.streaming.stateStore.providerClass", _HDFS)
        session.conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", "1")
    return Source(session, folder, "k string, v long" + (", t timestamp" if query is joined else ""))


def run_to_end(source: Source, query: Callable[[Source], DataFrame], checkpoint: Path, epochs: range) -> None:
    """Add the input of some epochs and run the query over it."""
    for epoch in epochs:
        source.add(hours(epoch) if query is joined else values(epoch))
    run(query(source), checkpoint, "append" if query is joined else "update")


def finished(source: Source, checkpoint: Path) -> Workload:
    """The workload of a finished query, with the states from Spark's reader."""
    spark = source._spark
    tables = ["op0_left", "op0_right"] if _is_a_join(checkpoint) else ["op0_recent", "op0_total"]
    epochs = len([commit for commit in (checkpoint / "commits").iterdir() if commit.name.isdigit()])
    widths = {table: _width(spark, checkpoint, table) for table in tables}
    states = {table: [_rows(spark, checkpoint, table, widths, epoch) for epoch in range(epochs)] for table in tables}
    expected = Expected(widths, states)
    return Workload(checkpoint, expected, expected.save(checkpoint.with_name("expected.json")))


def _is_a_join(checkpoint: Path) -> bool:
    return any((checkpoint / "state" / "0" / "0").glob("left-*"))


def _rows(spark: SparkSession, checkpoint: Path, table: str, widths: dict[str, int], epoch: int) -> dict[str, str]:
    found = spark_rows(spark, checkpoint, table, epoch)
    assert set(found.values()) <= {1}, "a key is duplicated: the query is not suitable"
    return keyed(found, widths[table])


def _width(spark: SparkSession, checkpoint: Path, table: str) -> int:
    """The number of key columns of a state table, including the position in a list."""
    part = table.removeprefix("op0_")
    is_side = part in ("left", "right")
    options = {"storeName": f"{part}-keyWithIndexToValue"} if is_side else {"stateVarName": part}
    schema = spark.read.format("statestore").options(**options).load(str(checkpoint)).schema
    key: Any = schema["key"].dataType
    return len(key.fields) + ("list_element" in schema.names)
