"""The plan of a micro-batch as plain data, read from real queries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import Source
from operators.processors import evolving
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from streamstate.snapshots.plan_graph import PlanGraph, PlanNode, graph_of, last_execution

ROWS: dict[str, list[Any]] = {"k": ["a", "b", "a"], "v": [1, 2, 3]}


@contextmanager
def ended(frame: DataFrame, checkpoint: Path) -> Iterator[StreamingQuery]:
    """A query that has run over all input that is there, still with its handle."""
    writer = frame.writeStream.format("noop").outputMode("append" if "join" in checkpoint.name else "update")
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    yield query


def graph(frame: DataFrame, checkpoint: Path) -> PlanGraph:
    """The plan of a query's last batch."""
    with ended(frame, checkpoint) as query:
        return graph_of(last_execution(query))


def source(spark: SparkSession, folder: Path) -> Source:
    """One epoch of input."""
    made = Source(spark, folder, "k string, v long")
    made.add(ROWS)
    return made


def test_an_aggregation_is_a_chain_with_figures(spark: SparkSession, tmp_path: Path) -> None:
    """Rows counted in every operator that counts them; the state belongs to operator 0; nothing of codegen is left."""
    made = source(spark, tmp_path / "in").stream().groupBy("k").agg(F.sum("v").alias("total"))
    found = graph(made, tmp_path / "checkpoint")
    assert (found.epoch, next(node.kind for node in found.nodes), found.nodes[-1].kind) == (0, "source", "sink")
    assert found.nodes[0].metrics["numOutputRows"] == 3
    assert all(node.inputs == ((node.id - 1,) if node.id else ()) for node in found.nodes)
    [state] = [node for node in found.nodes if node.kind == "state"]
    assert (state.operator, state.metrics["numTotalStateRows"], state.metrics["numUpdatedStateRows"]) == (0, 2, 2)
    assert any(node.kind == "exchange" and node.metrics["dataSize"] > 0 for node in found.nodes)
    assert not any("Codegen" in node.name or "Adapter" in node.name for node in found.nodes)


def test_a_join_has_two_inputs(spark: SparkSession, tmp_path: Path) -> None:
    """Two branches from two sources meet in the operator that keeps both sides."""
    left, right = (source(spark, tmp_path / side).stream() for side in ("left", "right"))
    joined = left.join(right.withColumnRenamed("v", "w"), "k")
    found = graph(joined, tmp_path / "joined")
    assert [node.kind for node in found.nodes].count("source") == 2
    [join] = [node for node in found.nodes if node.kind == "state"]
    assert (join.name, join.operator, join.metrics["numOutputRows"]) == ("StreamingSymmetricHashJoin", 0, 5)
    assert [branch(found, at) for at in join.inputs] == [["source"], ["source"]]


def branch(found: PlanGraph, at: int) -> list[str]:
    """The sources from which a branch comes."""
    node: PlanNode = found.nodes[at]
    return ["source"] if node.kind == "source" else [one for below in node.inputs for one in branch(found, below)]


def test_a_query_without_state_has_adaptive_stages_taken_apart(spark: SparkSession, tmp_path: Path) -> None:
    """Whatever Spark wraps around its operators, only the operators are told."""
    found = graph(source(spark, tmp_path / "in").stream().repartition(2).where("v > 1"), tmp_path / "plain")
    assert {node.kind for node in found.nodes} <= {"source", "exchange", "operator", "sink"}
    assert not any("Stage" in node.name or "Adaptive" in node.name for node in found.nodes)
    assert found.nodes[0].kind == "source"


@pytest.mark.slow
def test_a_python_processor_is_an_operator_with_state(spark: SparkSession, tmp_path: Path) -> None:
    """``transformWithState`` in Python has its rows and its number as Spark's own operators have."""
    found = graph(evolving("n int").build(source(spark, tmp_path / "in").stream()), tmp_path / "checkpoint")
    [state] = [node for node in found.nodes if node.kind == "state"]
    assert state.operator == 0
    assert state.metrics["numTotalStateRows"] == 2


def test_before_its_first_batch_a_query_has_no_plan(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing to run is nothing to tell."""
    empty = Source(spark, tmp_path / "in", "k string, v long").stream().groupBy("k").count()
    with ended(empty, tmp_path / "checkpoint") as query:
        assert last_execution(query) is None
