"""Small queries with several state tables each, and the truth about them from Spark's own reader, read once."""

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
    """A query that has run to its end, and the truth about it."""

    checkpoint: Path
    expected: Expected
    expected_at: Path


def remembered(source: Source) -> DataFrame:
    """A ``transformWithState`` with a list and a value: ``op0_recent`` and ``op0_total``."""

    # Inside the function, so that Spark's workers, which cannot import this module, get the class itself.
    class Remembering(StatefulProcessor):
        """Each key's recent values as a list, which grows and starts again, and their sum."""

        def init(self, handle: StatefulProcessorHandle) -> None:
            self._recent = handle.getListState("recent", "v long")
            self._total = handle.getValueState("total", "n long, most long")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
            """Append the values; past six of them start again, and forget a key whose total is a multiple of five."""
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
    """A join with itself: ``op0_left`` and ``op0_right``, from which rows are evicted."""
    left = source.stream().withWatermark("t", "1 hour").alias("a")
    right = source.stream().withColumnRenamed("v", "w").withWatermark("t", "1 hour").alias("b")
    return left.join(right, F.expr("a.k = b.k AND a.t >= b.t AND a.t <= b.t + INTERVAL 1 HOUR"), "leftOuter")


def values(epoch: int) -> dict[str, list[Any]]:
    """Input of one epoch of ``remembered``."""
    return {"k": [f"k{(epoch + row) % 5}" for row in range(8)], "v": [epoch * 7 + row * row for row in range(8)]}


def hours(epoch: int) -> dict[str, list[Any]]:
    """Input of one epoch of ``joined``: event times that move an hour on."""
    start = pd.Timestamp("2013-01-01", tz="UTC") + pd.Timedelta(hours=epoch)
    rows = range(8)
    return {
        "k": [f"k{row % 3}" for row in rows],
        "v": [epoch * 100 + row for row in rows],
        "t": [start + pd.Timedelta(minutes=10 * row) for row in rows],
    }


def source_of(spark: SparkSession, folder: Path, query: Callable[[Source], DataFrame]) -> Source:
    """The source that a query expects, empty, in a session of its own with settings that keep trials quick."""
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "1")
    if query is joined:  # the lighter of Spark's two providers, which transformWithState cannot use
        session.conf.set("spark.sql.streaming.stateStore.providerClass", _HDFS)
        session.conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", "1")
    return Source(session, folder, "k string, v long" + (", t timestamp" if query is joined else ""))


def run_to_end(source: Source, query: Callable[[Source], DataFrame], checkpoint: Path, epochs: range) -> None:
    """Add the input of some epochs and run the query over it."""
    for epoch in epochs:
        source.add(hours(epoch) if query is joined else values(epoch))
    run(query(source), checkpoint, "append" if query is joined else "update")


def finished(source: Source, checkpoint: Path) -> Workload:
    """The workload of a query that has run, with what Spark's reader says of it."""
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
    assert set(found.values()) <= {1}, "a key is there twice: the query is no good for this"
    return keyed(found, widths[table])


def _width(spark: SparkSession, checkpoint: Path, table: str) -> int:
    """How many key columns a state table has, an element's place in its list included."""
    part = table.removeprefix("op0_")
    is_side = part in ("left", "right")
    options = {"storeName": f"{part}-keyWithIndexToValue"} if is_side else {"stateVarName": part}
    schema = spark.read.format("statestore").options(**options).load(str(checkpoint)).schema
    key: Any = schema["key"].dataType
    return len(key.fields) + ("list_element" in schema.names)
