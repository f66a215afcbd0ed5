"""Checks of a query's plan, without starting the query."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pytest
from conftest import Source
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from streamstate.errors import NoStateError, QueryError
from streamstate.launch.launch import check_state
from streamstate.snapshots.spark.output_modes import check_mode


class Remembers(StatefulProcessor):
    """A processor that is never run."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Do nothing."""

    def handleInputRows(self, key: object, rows: Any, timerValues: object) -> Iterator[pd.DataFrame]:
        """Return the rows."""
        yield from rows

    def close(self) -> None:
        """Do nothing."""


def unchanged(_key: object, rows: Iterator[pd.DataFrame], _state: object) -> Iterator[pd.DataFrame]:
    """A function of applyInPandasWithState that is never run."""
    yield from rows


def with_processor(frame: DataFrame) -> DataFrame:
    """A query with transformWithState."""
    return frame.groupBy("k").transformWithStateInPandas(Remembers(), "k string, v long", "update", "none")


def with_watermark(frame: DataFrame) -> DataFrame:
    """The frame with an event time and a watermark."""
    return frame.withColumn("t", F.timestamp_seconds("v")).withWatermark("t", "1 hour")


STATEFUL: dict[str, Callable[[DataFrame], DataFrame]] = {
    "aggregate": lambda frame: frame.groupBy("k").count(),
    "aggregate below a projection": lambda frame: frame.groupBy("k").count().select("count").where("count > 1"),
    "global aggregate": lambda frame: frame.agg(F.max("v")),
    "window": lambda frame: with_watermark(frame).groupBy(F.window("t", "1 hour", "20 minutes"), "k").count(),
    "session window": lambda frame: with_watermark(frame).groupBy(F.session_window("t", "1 hour"), "k").count(),
    "distinct": lambda frame: frame.select("k").distinct(),
    "deduplication": lambda frame: frame.dropDuplicates(["k"]),
    "deduplication within a watermark": lambda frame: with_watermark(frame).dropDuplicatesWithinWatermark(["k"]),
    "join of a stream with itself": lambda frame: frame.join(frame.withColumnRenamed("v", "w"), "k"),
    "limit": lambda frame: frame.limit(5),
    "transformWithState": with_processor,
    "applyInPandasWithState": lambda frame: frame.groupBy("k").applyInPandasWithState(
        unchanged, "k string, v long", "n long", "update", "NoTimeout"
    ),
}

STATELESS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "projection": lambda frame: frame.select("k", F.upper("k").alias("up")).where("v > 1"),
    "watermark alone": with_watermark,
    "union": lambda frame: frame.union(frame),
    "explode": lambda frame: frame.select(F.explode(F.split("k", ","))),
    "a Python function": lambda frame: frame.select(F.udf(lambda text: text)("k")),
    "rows through pandas": lambda frame: frame.mapInPandas(lambda rows: rows, "k string, v long"),
    "join with an aggregated table": lambda frame: frame.join(
        frame.sparkSession.range(5).selectExpr("id AS v").groupBy("v").count(), "v"
    ),
    "left join of a table": lambda frame: frame.join(frame.sparkSession.range(5).selectExpr("id AS v"), "v", "left"),
    "repartition": lambda frame: frame.repartition(3, "k"),
}


@pytest.mark.parametrize("query", STATEFUL.values(), ids=STATEFUL)
def test_a_stateful_query_is_accepted(source: Source, query: Callable[[DataFrame], DataFrame]) -> None:
    """Every stateful operator is found, at any depth of the plan."""
    check_state(query(source.stream()))


@pytest.mark.parametrize("query", STATELESS.values(), ids=STATELESS)
def test_a_stateless_query_is_refused(source: Source, query: Callable[[DataFrame], DataFrame]) -> None:
    """Aggregating a static table keeps no state."""
    with pytest.raises(NoStateError, match="keeps no state"):
        check_state(query(source.stream()))


def test_plans_of_sql_are_checked_too(source: Source, spark: SparkSession) -> None:
    """Stateful operators are found through views and common table expressions."""
    source.stream().createOrReplaceTempView("seen_through")
    check_state(spark.sql("WITH n AS (SELECT k, count(*) AS n FROM seen_through GROUP BY k) SELECT * FROM n"))
    with pytest.raises(NoStateError):
        check_state(spark.sql("WITH n AS (SELECT k FROM seen_through WHERE v > 1) SELECT * FROM n"))


def test_the_error_names_supported_modes(source: Source) -> None:
    """An outer join needs append, a sorted aggregate complete. Some queries cannot run in any mode."""
    stream = with_watermark(source.stream())
    outer = stream.alias("a").join(stream.alias("b"), F.expr("a.k = b.k AND a.t = b.t"), "leftOuter")
    check_mode(outer, "append")
    with pytest.raises(QueryError, match="Use mode append"):
        check_mode(outer, "update")
    with pytest.raises(QueryError, match="Use mode complete"):
        check_mode(source.stream().groupBy("k").count().orderBy("k"), "update")
    with pytest.raises(QueryError, match="cannot run this"):
        check_mode(source.stream().orderBy("k").dropDuplicates(["k"]), "append")
