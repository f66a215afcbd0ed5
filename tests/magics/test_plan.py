"""What a plan tells before a query starts; nothing is started here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pytest
from conftest import Source
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from streamstate.magics.plan import check_mode, check_state
from streamstate.snapshots.errors import NoStateError, QueryError


class Remembers(StatefulProcessor):
    """A processor that is never run."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Nothing to set up."""

    def handleInputRows(self, key: object, rows: Any, timerValues: object) -> Iterator[pd.DataFrame]:
        """Pass the rows on."""
        yield from rows

    def close(self) -> None:
        """Nothing to close."""


def passed_on(_key: object, rows: Iterator[pd.DataFrame], _state: object) -> Iterator[pd.DataFrame]:
    """A function of applyInPandasWithState that is never run."""
    yield from rows


def processed(frame: DataFrame) -> DataFrame:
    """Through transformWithState."""
    return frame.groupBy("k").transformWithStateInPandas(Remembers(), "k string, v long", "update", "none")


def late(frame: DataFrame) -> DataFrame:
    """With an event time and a watermark."""
    return frame.withColumn("t", F.timestamp_seconds("v")).withWatermark("t", "1 hour")


STATEFUL: dict[str, Callable[[DataFrame], DataFrame]] = {
    "aggregate": lambda frame: frame.groupBy("k").count(),
    "aggregate below a projection": lambda frame: frame.groupBy("k").count().select("count").where("count > 1"),
    "global aggregate": lambda frame: frame.agg(F.max("v")),
    "window": lambda frame: late(frame).groupBy(F.window("t", "1 hour", "20 minutes"), "k").count(),
    "session window": lambda frame: late(frame).groupBy(F.session_window("t", "1 hour"), "k").count(),
    "distinct": lambda frame: frame.select("k").distinct(),
    "deduplication": lambda frame: frame.dropDuplicates(["k"]),
    "deduplication within a watermark": lambda frame: late(frame).dropDuplicatesWithinWatermark(["k"]),
    "join of a stream with itself": lambda frame: frame.join(frame.withColumnRenamed("v", "w"), "k"),
    "limit": lambda frame: frame.limit(5),
    "transformWithState": processed,
    "applyInPandasWithState": lambda frame: frame.groupBy("k").applyInPandasWithState(
        passed_on, "k string, v long", "n long", "update", "NoTimeout"
    ),
}

STATELESS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "projection": lambda frame: frame.select("k", F.upper("k").alias("up")).where("v > 1"),
    "watermark alone": late,
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
def test_a_query_with_state_may_start(source: Source, query: Callable[[DataFrame], DataFrame]) -> None:
    """Every operator that keeps state is seen, wherever it stands in the plan."""
    check_state(query(source.stream()))


@pytest.mark.parametrize("query", STATELESS.values(), ids=STATELESS)
def test_a_query_without_state_is_refused(source: Source, query: Callable[[DataFrame], DataFrame]) -> None:
    """Also where a table beside the stream is aggregated: that is no state."""
    with pytest.raises(NoStateError, match="keeps no state"):
        check_state(query(source.stream()))


def test_sql_is_seen_through(source: Source, spark: SparkSession) -> None:
    """Views and common table expressions do not hide what is below them."""
    source.stream().createOrReplaceTempView("seen_through")
    check_state(spark.sql("WITH n AS (SELECT k, count(*) AS n FROM seen_through GROUP BY k) SELECT * FROM n"))
    with pytest.raises(NoStateError):
        check_state(spark.sql("WITH n AS (SELECT k FROM seen_through WHERE v > 1) SELECT * FROM n"))


def test_the_modes_that_fit_are_named(source: Source) -> None:
    """An outer join only appends, a sorted aggregate only shows all of itself, and some fit nothing."""
    stream = late(source.stream())
    outer = stream.alias("a").join(stream.alias("b"), F.expr("a.k = b.k AND a.t = b.t"), "leftOuter")
    check_mode(outer, "append")
    with pytest.raises(QueryError, match="Use --mode append"):
        check_mode(outer, "update")
    with pytest.raises(QueryError, match="Use --mode complete"):
        check_mode(source.stream().groupBy("k").count().orderBy("k"), "update")
    with pytest.raises(QueryError, match="cannot run this"):
        check_mode(source.stream().orderBy("k").dropDuplicates(["k"]), "append")
