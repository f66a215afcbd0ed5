"""The physical plan of a query's newest micro-batch as plain data: its operators, what feeds what, and their figures.

Spark plans each micro-batch anew and counts rows, bytes and time in every operator while it runs. The plan lives in
the JVM; here it is read through Spark's own objects, once for a batch, and nothing of the JVM is left in the result.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

__all__ = ["PlanGraph", "PlanNode", "graph_of", "last_execution"]

Kind = Literal["source", "operator", "exchange", "state", "sink"]

# How Spark runs operators, not what they do: codegen stages, adaptive execution and its stages.
_WRAPPERS = {
    "AdaptiveSparkPlanExec",
    "WholeStageCodegenExec",
    "InputAdapter",
    "ShuffleQueryStageExec",
    "BroadcastQueryStageExec",
    "ResultQueryStageExec",
    "TableCacheQueryStageExec",
    "AQEShuffleReadExec",
    "ReusedExchangeExec",
}
# Adaptive execution's nodes keep what they stand for where a tree's walk does not find it.
_HIDDEN_CHILD = {"AdaptiveSparkPlanExec": "executedPlan", "ReusedExchangeExec": "child"}
_SINKS = re.compile(r"^(WriteToDataSourceV2|AppendData|OverwriteByExpression|WriteFiles|DataWritingCommand|Execute)")
_NEVER_PLANNED = "PlanLater"  # the initial state of a processor that has none
_STATE_METRIC = "numTotalStateRows"
_FUSED = "pipelineTime"
# A metric as Spark's accumulators write themselves: all of an operator's in one call instead of four for each.
_METRIC = re.compile(r"(\w+) -> SQLMetric\(id: \d+, name: .*?, value: (-?\d+)\)")
_EXPRESSION_ID = re.compile(r"#\d+L?")
_TEXT = 300


@dataclass(frozen=True)
class PlanNode:
    """One operator of a plan."""

    id: int
    """Its number in the plan; those that feed it have smaller ones."""
    name: str
    """Spark's name, such as ``Exchange``."""
    kind: Kind
    """What part it plays: it reads a source, moves rows between partitions, keeps state, writes, or computes."""
    text: str
    """What Spark says of it in a line, cut where that is long."""
    metrics: Mapping[str, int] = field(hash=False)
    """Spark's SQL metrics by their names, in Spark's units: rows, bytes, and milliseconds (nanoseconds of
    ``shuffleWriteTime``), summed over the tasks. ``pipelineTime`` is of all operators that were compiled into one
    function with this one, of which it is the last."""
    operator: int | None
    """The number of the stateful operator that it is, or reads the state of: 0 for the tables called ``op0…``."""
    inputs: tuple[int, ...]
    """The numbers of the operators that feed it, in Spark's order."""


@dataclass(frozen=True)
class PlanGraph:
    """The plan of one micro-batch: a tree, whose root, the last node, writes."""

    epoch: int
    """The batch's number."""
    nodes: tuple[PlanNode, ...]


def last_execution(query: StreamingQuery) -> Any:
    """Spark's own object of the newest batch that was planned; None before the first.

    It stays readable after the batch, and only then are its figures complete.

    Args:
        query: a query of this process.

    Raises:
        Py4JError: where the JVM does not answer.
    """
    running = query._jsq.streamingQuery()
    return running.lastExecution() if hasattr(running, "lastExecution") else None


def graph_of(execution: Any) -> PlanGraph:
    """A batch's plan with its figures as they stand now.

    Args:
        execution: what :func:`last_execution` gave.

    Raises:
        Py4JError: where the JVM does not answer.

    Example:
        >>> graph_of(last_execution(query)).nodes[0].name  # doctest: +SKIP
        'MicroBatchScan'
    """
    nodes: list[PlanNode] = []
    _walk(execution.executedPlan(), nodes)
    return PlanGraph(int(execution.currentBatchId()), tuple(nodes))


def _walk(plan: Any, nodes: list[PlanNode]) -> int:
    """Append the operators below and at ``plan``; returns the number of the one that stands for it."""
    kind = str(plan.getClass().getSimpleName())
    children = _children(plan, kind)
    if kind in _WRAPPERS and len(children) == 1:
        found = _walk(children[0], nodes)
        fused = _metrics(plan).get(_FUSED)
        if fused is not None:
            nodes[found] = replace(nodes[found], metrics={**nodes[found].metrics, _FUSED: fused})
        return found
    inputs = tuple(_walk(child, nodes) for child in children)
    metrics = _metrics(plan)
    nodes.append(_node(len(nodes), plan, kind, metrics, inputs))
    return len(nodes) - 1


def _children(plan: Any, kind: str) -> list[Any]:
    if kind in _HIDDEN_CHILD:
        return [getattr(plan, _HIDDEN_CHILD[kind])()]
    if kind.endswith("QueryStageExec"):
        return [plan.plan()]
    children = plan.children()
    below = [children.apply(at) for at in range(children.size())]
    return [child for child in below if str(child.nodeName()) != _NEVER_PLANNED]


def _node(number: int, plan: Any, kind: str, metrics: Mapping[str, int], inputs: tuple[int, ...]) -> PlanNode:
    name = str(plan.nodeName()).strip()
    text = _EXPRESSION_ID.sub("", str(plan.simpleString(25)))
    operator = _operator(plan) if _STATE_METRIC in metrics or "StateStoreRestore" in kind else None
    cut = text if len(text) <= _TEXT else text[: _TEXT - 1] + "…"
    return PlanNode(number, name, _kind(name, metrics, inputs), cut, metrics, operator, inputs)


def _kind(name: str, metrics: Mapping[str, int], inputs: tuple[int, ...]) -> Kind:
    if not inputs:
        return "source"
    if _STATE_METRIC in metrics:
        return "state"
    if _SINKS.match(name):
        return "sink"
    return "exchange" if name.endswith("Exchange") else "operator"


def _operator(plan: Any) -> int | None:
    info = plan.stateInfo()
    return int(info.get().operatorId()) if info.isDefined() else None


def _metrics(plan: Any) -> dict[str, int]:
    return {name: int(value) for name, value in _METRIC.findall(str(plan.metrics().toString()))}
