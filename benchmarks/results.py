"""What the query's own columns cost, computed from the state's: against asking for the state's columns themselves."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

import streamstate as ss
from benchmarks.harness import Measurement, alternate
from benchmarks.large_stores import made
from benchmarks.size import Size
from streamstate.reports import Store
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.query_plans.plan_record import Expression, PlannedColumn, QueryPlan, TablePlan
from streamstate.snapshots.store.query_plans.plan_table import record_plan

_TURNS = 9
_WHOLE = 1 / 1.5
"""All rows may take 1.5 times as long as the state's."""
_SOON = 0.06
"""Seconds that sorting or summing by a computed column may take."""


def results(spark: Any, folder: Path, size: Size) -> Iterator[Measurement]:
    """A past epoch as the query returns it: averages from sums and counts."""
    store = ss.open_store(made(folder, size.keys, size.changes, size.epochs))
    record_plan(Layout.at(folder), "load", _plan(), 0)
    epoch = size.epochs // 2
    setting = f"{size}, {size.epochs} epochs"
    named = {name: f"load{kind} VERSION AS OF {epoch}" for name, kind in (("ours", ".result"), ("state", ""))}
    questions = {
        "all rows": ("SELECT {key}, {average}, total, number FROM {rows}", _WHOLE, None),
        "the sum of a computed column": ("SELECT sum({average}) FROM {rows}", None, _SOON),
        "the top 100 by a computed column": ("FROM {rows} ORDER BY {average} DESC LIMIT 100", None, _SOON),
    }
    for question, (sql, ratio, bound) in questions.items():
        ours = sql.format(key="key", average="average", rows=named["ours"])
        state = sql.replace("total, number", "value_001, count").format(
            key="key", average="value_000", rows=named["state"]
        )
        seconds = alternate(partial(_rows, store, ours), partial(_rows, store, state), _TURNS)
        yield Measurement(question, "the result", seconds[0], "the state", seconds[1], _TURNS, setting, wanted=ratio)
        if bound is not None:
            yield Measurement(question, "the result", seconds[0], "bound", bound, _TURNS, setting, wanted=1.0)
    yield _with_spark(spark, store, epoch, setting)


def _with_spark(spark: Any, store: Store, epoch: int, setting: str) -> Measurement:
    """All rows by the query's own plan over the state, against Spark's reading of the state alone."""

    def build() -> Any:
        source = spark.readStream.format("rate").load().selectExpr("string(value) AS key", "double(value) AS x")
        return source.groupBy("key").agg(F.count("*").alias("number"), F.sum("x").alias("total"), F.max("x").alias("m"))

    ss.open_store(store.path)["load"].describe(build)

    def read(relation: str) -> None:
        frame = store.sql(f"FROM {relation} VERSION AS OF {epoch}", engine="spark", spark=spark).to_spark()
        frame.write.format("noop").mode("overwrite").save()

    seconds = alternate(partial(read, "load.result"), partial(read, "load"), _TURNS)
    return Measurement(
        "all rows in Spark", "the result", seconds[0], "the state", seconds[1], _TURNS, setting, wanted=_WHOLE
    )


def _rows(store: Store, sql: str) -> object:
    return store.sql(sql).to_arrow()


def _plan() -> QueryPlan:
    """The plan of a query that returns an average, a total and a number."""

    def value(at: int, kind: str) -> Expression:
        return {"is": "State", "part": "value", "at": at, "type": kind}

    number: Expression = {"is": "Cast", "of": [value(0, "long")], "type": "double"}
    columns = (
        PlannedColumn("key", "string", {"is": "State", "part": "key", "at": 0, "type": "string"}),
        PlannedColumn("average", "double", {"is": "Divide", "of": [value(1, "double"), number]}),
        PlannedColumn("total", "double", value(2, "double")),
        PlannedColumn("number", "long", value(0, "long")),
    )
    kept = tuple(
        PlannedColumn(name, kind) for name, kind in (("count", "long"), ("sum", "double"), ("total", "double"))
    )
    table = TablePlan((PlannedColumn("key", "string"),), kept, (None,), columns)
    return QueryPlan("update", "4.3.0", {}, {"op0": table})
