"""The plan of a micro-batch as a graph, read from real queries."""

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

from streamstate.snapshots.spark.plan_graph import PlanGraph, PlanNode, graph_of, last_execution

ROWS: dict[str, list[Any]] = {"k": ["a", "b", "a"], "v": [1, 2, 3]}


@contextmanager
def ended(frame: DataFrame, checkpoint: Path) -> Iterator[StreamingQuery]:
    """The handle of a query that has processed all available input."""
    writer = frame.writeStream.format("noop").outputMode("append" if "join" in checkpoint.name else "update")
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    yield query


def graph(frame: DataFrame, checkpoint: Path) -> PlanGraph:
    """The plan of a query's last batch."""
    with ended(frame, checkpoint) as query:
        return graph_of(last_execution(query))


def source(spark: SparkSession, folder: Path) -> Source:
    """A source with one epoch of input."""
    source = Source(spark, folder, "k string, v long")
    source.add(ROWS)
    return source


def test_an_aggregation_is_a_chain_with_metrics(spark: SparkSession, tmp_path: Path) -> None:
    """Nodes have their metrics, and stateful nodes their operator's number. Codegen nodes are left out."""
    frame = source(spark, tmp_path / "in").stream().groupBy("k").agg(F.sum("v").alias("total"))
    found = graph(frame, tmp_path / "checkpoint")
    assert (found.epoch, next(node.kind for node in found.nodes), found.nodes[-1].kind) == (0, "source", "sink")
    assert found.nodes[0].metrics["numOutputRows"] == 3
    assert all(node.inputs == ((node.id - 1,) if node.id else ()) for node in found.nodes)
    [state] = [node for node in found.nodes if node.kind == "state"]
    assert (state.operator, state.metrics["numTotalStateRows"], state.metrics["numUpdatedStateRows"]) == (0, 2, 2)
    assert any(node.kind == "exchange" and node.metrics["dataSize"] > 0 for node in found.nodes)
    assert not any("Codegen" in node.name or "Adapter" in node.name for node in found.nodes)


def test_a_join_has_two_inputs(spark: SparkSession, tmp_path: Path) -> None:
    """The two inputs of the stateful operator each start at a source."""
    left, right = (source(spark, tmp_path / side).stream() for side in ("left", "right"))
    joined = left.join(right.withColumnRenamed("v", "w"), "k")
    found = graph(joined, tmp_path / "joined")
    assert [node.kind for node in found.nodes].count("source") == 2
    [join] = [node for node in found.nodes if node.kind == "state"]
    assert (join.name, join.operator, join.metrics["numOutputRows"]) == ("StreamingSymmetricHashJoin", 0, 5)
    assert [sources(found, index) for index in join.inputs] == [["source"], ["source"]]


def sources(found: PlanGraph, index: int) -> list[str]:
    """The sources that a node reads, directly or through its inputs."""
    node: PlanNode = found.nodes[index]
    if node.kind == "source":
        return ["source"]
    return [kind for child in node.inputs for kind in sources(found, child)]


def test_adaptive_stages_are_unwrapped(spark: SparkSession, tmp_path: Path) -> None:
    """The graph has the operators only, without the nodes that Spark wraps around them."""
    found = graph(source(spark, tmp_path / "in").stream().repartition(2).where("v > 1"), tmp_path / "plain")
    assert {node.kind for node in found.nodes} <= {"source", "exchange", "operator", "sink"}
    assert not any("Stage" in node.name or "Adaptive" in node.name for node in found.nodes)
    assert found.nodes[0].kind == "source"


@pytest.mark.slow
def test_a_python_processor_is_an_operator_with_state(spark: SparkSession, tmp_path: Path) -> None:
    """``transformWithState`` in Python has row counts and an operator number, like Spark's own operators."""
    found = graph(evolving("n int").build(source(spark, tmp_path / "in").stream()), tmp_path / "checkpoint")
    [state] = [node for node in found.nodes if node.kind == "state"]
    assert state.operator == 0
    assert state.metrics["numTotalStateRows"] == 2


def test_a_query_has_no_plan_before_its_first_batch(spark: SparkSession, tmp_path: Path) -> None:
    """The last execution is None."""
    empty = Source(spark, tmp_path / "in", "k string, v long").stream().groupBy("k").count()
    with ended(empty, tmp_path / "checkpoint") as query:
        assert last_execution(query) is None
