"""Who can use a shared variable: each interface of Spark, and each kind of operator above or below its use.

docs/guides/shared_variables.md has the same table; a test compares them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from conftest import Source
from operators.processors import PANDAS_STATE, TRANSFORM
from operators.queries import JOINS, OTHERS, WINDOWS
from operators.running import Query, Run, rows
from oracle import compare, spark_rows
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from sampling import sampled

import streamstate as ss
from streamstate.errors import NoResultError
from variables.interfaces import INTERFACES, ROWS, Interface

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "shared_variables.md"
EPOCHS = 2


def table(heading: str) -> list[list[str]]:
    """The rows of the guide's table under a heading."""
    section = GUIDE.read_text(encoding="utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = re.findall(r"^\| .*$", section, re.MULTILINE)[1:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_guide_has_each_interface() -> None:
    """What it says of reading and contributing is what is tested here."""
    tested = {name: ("yes", "yes" if case.contributes else "no") for name, case in INTERFACES.items()}
    told = {row[0].replace("`", ""): (row[1], row[2]) for row in table("Who can use a variable")}
    assert {name: told.get(name) for name in tested} == tested


def seen_by_epoch(history: ss.History) -> dict[int, tuple[int, int, int]]:
    """The number of rows of each epoch, and the least and the most that they saw."""
    found = history.live().table().to_pandas()
    return {int(row[0]): tuple(map(int, row[-3:])) for row in found.itertuples(index=False)}


@pytest.mark.slow
@pytest.mark.parametrize("name", INTERFACES)
def test_each_interface_reads_and_contributes(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """All tasks of an epoch see one version, which has what all tasks of the epochs before contributed."""
    case: Interface = INTERFACES[name]
    total = ss.shared(tmp_path / "store", "total", "counter")
    source = Source(spark, tmp_path / "input", "e long, v long")
    for epoch in range(EPOCHS):
        source.add({"e": [epoch] * ROWS, "v": [*range(ROWS)]})
    frame = case.build(source.stream().repartition(2), total)
    sink = "noop" if case.to is None else case.to(tmp_path / "out", total)
    running = ss.start(frame, "q", tmp_path / "store", shared=(total,), trigger="available-now", sink=sink)
    running.wait(timeout=120)
    running.stop()
    history = ss.open_store(tmp_path / "store")["q"]
    if case.to is None:
        assert seen_by_epoch(history) == {epoch: (ROWS, *[epoch * case.added] * 2) for epoch in range(EPOCHS)}
    else:
        noted = {int(file.stem): json.loads(file.read_text()) for file in (tmp_path / "out").iterdir()}
        assert noted == {epoch: epoch * case.added for epoch in range(EPOCHS)}
    assert history.bindings()["version"].tolist()[:EPOCHS] == [*range(EPOCHS)]
    assert total.history()["kind"].tolist() == ["init", "merge", "merge"]
    assert total.get() == EPOCHS * case.added


# Operators.


def limited(query: Query, limit: ss.SharedVariable) -> Query:
    """A query whose rows pass a native filter with a variable and a Python function with it, below its operators."""

    def below(v: int | None) -> bool:
        return v is None or v < limit.get()

    def build(stream: DataFrame) -> DataFrame:
        native = F.col("v").isNull() | (F.col("v") < ss.shared_column(limit))
        return query.build(stream.where(native).where(F.udf(below, "boolean")("v")))

    return Query(build, query.tables, query.mode, query.conf)


def above(limit: ss.SharedVariable) -> Query:
    """A query in which a variable is used above its operator."""
    return Query(
        lambda s: s.groupBy("k").agg(F.max("v").alias("most")).where(F.col("most") < ss.shared_column(limit)), ("op0",)
    )


def as_is(query: Query) -> Callable[[ss.SharedVariable], Query]:
    """A query with a variable below its operators."""
    return lambda limit: limited(query, limit)


OPERATORS: dict[str, tuple[Query, Callable[[ss.SharedVariable], Query]]] = {
    name: (query, as_is(query))
    for name, query in {
        "aggregation": WINDOWS["tumbling window"],
        "aggregation, complete": OTHERS["global aggregation"],
        "session window": WINDOWS["session window"],
        "deduplication": OTHERS["dropDuplicates with a watermark"],
        "join": JOINS["inner"],
        "self-join": JOINS["self"],
        "several operators": OTHERS["two aggregations"],
        "function with state": PANDAS_STATE["event-time timeout"],
        "processor": TRANSFORM["rows, event time and timers"],
    }.items()
} | {"above an aggregation": (Query(lambda s: s.groupBy("k").agg(F.max("v").alias("most")), ("op0",)), above)}


def test_the_guide_has_each_kind_of_operator() -> None:
    """It claims no more than is tested."""
    assert {row[0] for row in table("Operators")} == {*OPERATORS}


def started(run: Run, query: Query, shared: tuple[ss.SharedVariable, ...]) -> ss.History:
    """The history of a query that ran over all input."""
    running = ss.start(
        query.build(run.inputs.stream(run.spark)),
        "q",
        run.store,
        checkpoint=run.checkpoint,
        mode=query.mode,
        trigger="available-now",
        shared=shared,
    )
    running.wait(timeout=120)
    running.stop()
    return run.history


def answers(history: ss.History, query: Query) -> dict[str, Any]:
    """What a history says of its newest epochs: results, inputs, and the input behind a change."""
    found: dict[str, Any] = {"captured": history.captured()}
    try:
        found["result"] = sorted(map(repr, history.at(1).result().to_arrow().to_pylist()))
    except NoResultError as error:
        found["result"] = type(error)
    found["inputs"] = sorted(history.inputs(1).toPandas()["v"].tolist(), key=str)
    name = query.tables[0]
    changed = history.diff(0, 1, name).to_pandas()
    key = {
        column: value for column, value in changed.iloc[0].items() if column in history.at(1).table(name).key_columns
    }
    why = history.why(1, table=name, **{column: _plain(value) for column, value in key.items()})
    found["why"] = {side: sorted(frame["v"].tolist(), key=str) for side, frame in why.shown.items()}
    return found


def _plain(value: Any) -> Any:
    return None if value is None or value is pd.NaT else getattr(value, "item", lambda: value)()


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(OPERATORS, 2))
def test_each_operator_works_as_without_a_variable(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """State, results, inputs, the input behind a change, and steps of a fork are those of the query without it."""
    plain, bound = Run(spark, tmp_path / "plain"), Run(spark, tmp_path / "bound")
    query, using = OPERATORS[name]
    for epoch in range(EPOCHS):
        plain.inputs.add(rows(epoch))
        bound.inputs.add(rows(epoch))
    limit = ss.shared(bound.store, "limit", "double", init=1e9)
    with_limit = using(limit)
    histories = started(plain, query, ()), started(bound, with_limit, (limit,))
    assert compare(spark, bound.checkpoint, histories[1]) > 0
    for epoch in histories[0].captured():
        for state in query.tables:
            expected, found = (spark_rows(spark, run.checkpoint, state, epoch) for run in (plain, bound))
            assert found == expected, (state, epoch)
    assert answers(histories[1], query) == answers(histories[0], query)
    limit.set(0)
    fork = ss.fork(bound.checkpoint, tmp_path / "fork", at=0)
    report = ss.step(lambda: with_limit.build(bound.inputs.stream(spark)), fork, mode=query.mode)
    assert [result.epoch for result in report.epochs] == [1]
    for state in query.tables:
        assert spark_rows(spark, fork.checkpoint, state, 1) == spark_rows(spark, bound.checkpoint, state, 1)
