"""Who can use a shared variable: each interface of Spark, and each kind of operator above or below its use.

docs/guides/shared_variables.md has the same table; a test compares them.
"""

from __future__ import annotations

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
from streamstate.reports import History, SharedVariable
from variables.interfaces import BASE, CASES, INTERFACES, ROWS, Case, noted

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "shared_variables.md"
EPOCHS = 2


def table(heading: str) -> list[list[str]]:
    """The rows of the guide's table under a heading."""
    section = GUIDE.read_text(encoding="utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = re.findall(r"^\| .*$", section, re.MULTILINE)[1:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_guide_has_each_interface() -> None:
    """Its table of reading and contributing has the interfaces that are tested here."""
    tested = {name: ("yes", "yes" if contributes else "no") for name, contributes in INTERFACES.items()}
    told = {row[0].replace("`", ""): (row[1], row[2]) for row in table("Who can use a variable")}
    assert told == tested
    covered = [name for case in CASES.values() for name in (*case.in_state, *case.in_sink, case.in_key) if name]
    assert sorted(covered) == sorted(INTERFACES)


def seen_in(history: History, case: Case, folder: Path) -> dict[str, dict[int, set[int]]]:
    """Return what was seen at each interface in each epoch."""
    found: dict[str, dict[int, set[int]]] = {}
    for row in history.live().table().to_arrow().to_pylist():
        key, count, *values = (
            part for value in row.values() for part in (value.values() if isinstance(value, dict) else [value])
        )
        assert count == ROWS
        epoch = key
        if case.in_key is not None:
            epoch, seen = divmod(key, BASE)
            found.setdefault(case.in_key, {})[epoch] = {seen}
        for number, name in enumerate(case.in_state):
            found.setdefault(name, {})[epoch] = {*values[2 * number : 2 * number + 2]}
    return found | {name: {e: {seen} for e, seen in noted(folder, name).items()} for name in case.in_sink}


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(CASES, 1))
def test_each_interface_reads_and_contributes(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """All tasks of an epoch see one version, which has what all tasks of the epochs before contributed."""
    case, store = CASES[name], tmp_path / "store"
    interfaces = [name for name in (*case.in_state, *case.in_sink, case.in_key) if name]
    variables = {name: ss.shared(store, f"v{number}", "counter") for number, name in enumerate(interfaces)}
    source = Source(spark, tmp_path / "input", "e long, v long")
    for epoch in range(EPOCHS):
        source.add({"e": [epoch] * ROWS, "v": [*range(ROWS)]})
    frame = case.build(source.stream().repartition(2), variables)
    running = ss.start(
        frame,
        "q",
        store,
        mode=case.mode,
        shared=[*variables.values()],
        trigger="available-now",
        sink=case.sink(spark, tmp_path / "out", variables),
    )
    running.wait(timeout=300)
    running.stop()
    history = ss.open_store(store)["q"]
    # A sink has a row for each epoch.
    added = {name: 1 if name in case.in_sink else ROWS for name in interfaces}
    expected = {name: {epoch: {epoch * added[name]} for epoch in range(EPOCHS)} for name in interfaces}
    assert seen_in(history, case, tmp_path / "out") == expected
    assert {name: variable.get() for name, variable in variables.items()} == {
        name: EPOCHS * count for name, count in added.items()
    }
    bindings = history.bindings()
    assert bindings[bindings["variable"] == "v0"]["version"].tolist()[:EPOCHS] == [*range(EPOCHS)]


# Operators.


def limited(query: Query, limit: SharedVariable) -> Query:
    """A query whose rows pass a native filter with a variable and a Python function with it, below its operators."""

    def below(v: int | None) -> bool:
        return v is None or v < limit.get()

    def build(stream: DataFrame) -> DataFrame:
        native = F.col("v").isNull() | (F.col("v") < ss.shared_column(limit))
        return query.build(stream.where(native).where(F.udf(below, "boolean")("v")))

    return Query(build, query.tables, query.mode, query.conf)


def above(limit: SharedVariable) -> Query:
    """A query in which a variable is used above its operator."""
    return Query(
        lambda s: s.groupBy("k").agg(F.max("v").alias("most")).where(F.col("most") < ss.shared_column(limit)), ("op0",)
    )


def as_is(query: Query) -> Callable[[SharedVariable], Query]:
    """A query with a variable below its operators."""
    return lambda limit: limited(query, limit)


OPERATORS: dict[str, tuple[Query, Callable[[SharedVariable], Query]]] = {
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
        "processor": TRANSFORM["rows, no time"],
    }.items()
} | {"above an aggregation": (Query(lambda s: s.groupBy("k").agg(F.max("v").alias("most")), ("op0",)), above)}


def test_the_guide_has_each_kind_of_operator() -> None:
    """It claims no more than is tested."""
    assert {row[0] for row in table("Operators")} == {*OPERATORS}


def started(run: Run, query: Query, shared: tuple[SharedVariable, ...]) -> History:
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
    running.wait(timeout=300)
    running.stop()
    return run.history


def answers(history: History, query: Query) -> dict[str, Any]:
    """Return a history's answers about its newest epochs: results, inputs, and the input behind a change."""
    found: dict[str, Any] = {"captured": history.captured()}
    try:
        found["result"] = sorted(map(repr, history.at(1).result().to_arrow().to_pylist()))
    except NoResultError as error:
        found["result"] = type(error)
    found["inputs"] = lines(history.inputs(1, source="0").toPandas())
    name = query.tables[-1]
    at = [history.at(epoch).table(name) for epoch in range(EPOCHS)]
    before, after = ([tuple(row.items()) for row in table.to_arrow().to_pylist()] for table in at)
    changed = dict(next(row for row in after if row not in before))
    key = {column: changed[column] for column in at[1].key_columns if column != "_position"}
    why = history.why(1, table=name, **key)
    found["why"] = {side: lines(frame) for side, frame in why.shown.items()}
    assert any(found["why"].values())
    return found


def lines(frame: pd.DataFrame) -> list[str]:
    """The rows of a frame as sorted texts."""
    return sorted(map(repr, frame.astype(object).to_numpy().tolist()))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", OPERATORS)
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
    fork = ss.Checkpoint(bound.checkpoint).fork(tmp_path / "fork", at=0)
    report = fork.step(lambda: with_limit.build(bound.inputs.stream(spark)), mode=query.mode)
    assert [result.epoch for result in report.epochs] == [1]
    for state in query.tables:
        assert spark_rows(spark, fork.path, state, 1) == spark_rows(spark, bound.checkpoint, state, 1)
