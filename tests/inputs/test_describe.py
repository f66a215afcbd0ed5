"""Describing a query that was attached to, of every operator: then its input can be read, and changes explained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from operators.processors import PANDAS_STATE, TRANSFORM
from operators.queries import JOINS, OTHERS, aggregated, windowed
from operators.running import Build, Inputs, Query, Run, with_settings

import streamstate as ss
from streamstate.errors import InvalidArgumentError, QueryError
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.registry import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Case:
    """A query, what is asked about it, and how many input rows fell on that."""

    query: Query
    key: dict[str, Any]
    count: int
    table: str | None = None


CASES = {
    "limit": Case(OTHERS["limit"], {}, 11),
    "outer join": Case(JOINS["left_outer"], {"field0": "k4"}, 3, "op0_left"),
    "applyInPandasWithState": Case(PANDAS_STATE["no timeout"], {"k": "k4"}, 2),
    "transformWithState": Case(TRANSFORM["rows, no time"], {"k": "k4"}, 2, "op0_total"),
    "transformWithStateInPandas": Case(TRANSFORM["pandas, event time and timers"], {"k": "k4"}, 2, "op0_total"),
}
SLOW = ("applyInPandasWithState", "transformWithState", "transformWithStateInPandas")


def attached(spark: SparkSession, folder: Path, query: Query, epochs: int = 2) -> tuple[Run, Callable[[], DataFrame]]:
    """A captured query that nobody has described, and its code."""
    run = Run(spark, folder)
    run.start(query, epochs=range(epochs))
    run.capture()
    session = with_settings(spark, query.conf)
    return run, lambda: query.build(run.inputs.stream(session))


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in CASES])
def test_what_came_in_is_known_once_a_query_is_described(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Whatever its operator; the output mode is found."""
    case = CASES[name]
    run, build = attached(spark, tmp_path, case.query)
    ss.open_store(run.store)["q"].describe(build)
    plan = run.history.recorded.plans.at(1)
    assert plan is not None
    assert plan.mode == case.query.mode
    source = 0 if case.table == "op0_left" else None
    assert run.history.inputs(1, source=source).count() == 11
    why = run.history.why(1, table=case.table, **case.key)
    assert why.count() == case.count
    assert why.cause == "input"


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> DataFrame:
    """A stream that no query reads."""
    return Inputs(tmp_path / "input").stream(with_settings(spark))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with a query of which no epoch is captured, so that any code may be its."""
    register(Layout.at(tmp_path / "store"), "q", "id", str(tmp_path / "checkpoint"))
    return tmp_path / "store"


def mode_of(store: Path) -> str | None:
    """The output mode that is recorded."""
    plan = ss.open_store(store)["q"].recorded.plans.at(0)
    return None if plan is None else plan.mode


def test_a_mode_that_matters_has_to_be_given_once(stream: DataFrame, store: Path) -> None:
    """A checkpoint does not record it; later it is taken from the plan that is recorded."""
    with pytest.raises(InvalidArgumentError, match=r"not known[^$]*started with: update, append or complete"):
        ss.open_store(store)["q"].describe(lambda: windowed(stream))
    assert mode_of(store) is None
    ss.open_store(store)["q"].describe(lambda: windowed(stream), mode="append")
    ss.open_store(store)["q"].describe(lambda: windowed(stream.where("v > 3")))
    assert mode_of(store) == "append"


@pytest.mark.parametrize(
    ("build", "mode"),
    [
        (aggregated("sum(v)").build, "update"),  # complete keeps the same state
        (OTHERS["dropDuplicates"].build, "update"),  # append, too
        (JOINS["inner"].build, "update"),  # append, too
        (JOINS["full_outer"].build, "append"),
        (OTHERS["limit"].build, "append"),
        (lambda stream: stream.groupBy("k").count().orderBy("count").limit(3), "complete"),
    ],
)
def test_a_mode_that_does_not_matter_is_found(stream: DataFrame, store: Path, build: Build, mode: str) -> None:
    """Spark accepts only one, or the state is the same in each that it accepts."""
    ss.open_store(store)["q"].describe(lambda: build(stream))
    assert mode_of(store) == mode


def test_a_mode_that_spark_refuses_is_refused(stream: DataFrame, store: Path) -> None:
    """The error says which ones it accepts."""
    with pytest.raises(QueryError, match=r"refuses mode update for this query: LeftOuter join[^$]*Use mode append\."):
        ss.open_store(store)["q"].describe(lambda: JOINS["left_outer"].build(stream), mode="update")
    with pytest.raises(QueryError, match="cannot run this as a streaming query"):
        ss.open_store(store)["q"].describe(lambda: stream.orderBy("k").dropDuplicates(["k"]))
    assert mode_of(store) is None
    unchecked = stream.sparkSession
    unchecked.conf.set("spark.sql.streaming.unsupportedOperationCheck", "false")
    ss.open_store(store)["q"].describe(lambda: aggregated("sum(v)").build(stream), mode="append")
    assert mode_of(store) == "append"


@pytest.mark.slow
def test_code_with_another_operator_or_key_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Also where the plan knows no state columns: those of a limit, and of user code."""
    limited, _ = attached(spark, tmp_path / "limit", OTHERS["limit"], 1)
    transformed, _ = attached(spark, tmp_path / "transformed", TRANSFORM["rows, no time"], 1)
    stream = limited.inputs.stream(with_settings(spark))
    processor = TRANSFORM["rows, no time"].build
    for store, build, message in (
        (limited.store, lambda: stream.dropDuplicates(["k"]), r"operators op0 \(dedupe\)[^$]*op0 \(globalLimit\) was"),
        (limited.store, lambda: stream.select("k"), "no stateful operator"),
        (transformed.store, lambda: stream.limit(3), r"op0 \(globalLimit\)[^$]*op0 \(transformWithState"),
        (
            transformed.store,
            lambda: processor(stream.withColumn("k", stream["v"])),
            "op0_total has the columns k, of the types string; the DataFrame has int64",
        ),
    ):
        with pytest.raises(QueryError, match=message):
            ss.open_store(store)["q"].describe(build)
