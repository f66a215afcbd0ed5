"""The physical plan of a query's newest micro-batch as plain data: its operators, what feeds what, and their figures.

Spark plans each micro-batch separately and counts rows, bytes and time in every operator while it runs. The plan is in
the JVM; it is read through Spark's own objects, once per batch, and the result refers to nothing in the JVM.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

Kind = Literal["source", "operator", "exchange", "state", "sink"]

# How Spark runs operators, not what they do: codegen stages, adaptive execution and its stages.
_WRAPPERS = re.compile(
    r"(AdaptiveSparkPlan|WholeStageCodegen|\w+QueryStage|AQEShuffleRead|ReusedExchange)Exec|InputAdapter"
)
# These nodes of adaptive execution have their plan in a method other than children().
_HIDDEN_CHILD = {"AdaptiveSparkPlanExec": "executedPlan", "ReusedExchangeExec": "child"}
_SINKS = re.compile(r"^(WriteToDataSourceV2|AppendData|OverwriteByExpression|WriteFiles|DataWritingCommand|Execute)")
_NEVER_PLANNED = "PlanLater"  # the initial state of a processor that has none
_STATE_METRIC = "numTotalStateRows"
_FUSED = "pipelineTime"
# A metric as Spark prints it: this reads all metrics of an operator in one call instead of four per metric.
_METRIC = re.compile(r"(\w+) -> SQLMetric\(id: \d+, name: .*?, value: (-?\d+)\)")
_EXPRESSION_ID = re.compile(r"#\d+L?")
_TEXT = 300


@dataclass(frozen=True)
class PlanNode:
    """One operator of a plan."""

    id: int
    """Its number in the plan; its inputs have smaller numbers."""
    name: str
    """Spark's name, such as ``Exchange``."""
    kind: Kind
    """Its role: it reads a source, moves rows between partitions, keeps state, writes, or computes."""
    text: str
    """Spark's description in one line, truncated if it is long."""
    metrics: Mapping[str, int] = field(hash=False)
    """Spark's SQL metrics by name, in Spark's units: rows, bytes and milliseconds (``shuffleWriteTime``: nanoseconds),
    summed over the tasks. ``pipelineTime`` covers all operators that were compiled into one function, of which this is
    the last."""
    operator: int | None
    """The number of the stateful operator that it is, or whose state it reads: 0 for the tables ``op0…``."""
    inputs: tuple[int, ...]
    """The numbers of its inputs, in Spark's order."""


@dataclass(frozen=True)
class PlanGraph:
    """The plan of one micro-batch: a tree, whose root is the last node and writes."""

    epoch: int
    """The batch's number."""
    nodes: tuple[PlanNode, ...]


def last_execution(query: StreamingQuery) -> Any:
    """Spark's own object for the newest planned batch of a query of this process; None before the first.

    It can be read after the batch has ended, and only then are its metrics complete.
    """
    running = query._jsq.streamingQuery()
    return running.lastExecution() if hasattr(running, "lastExecution") else None


def graph_of(execution: Any) -> PlanGraph:
    """Return the plan of a batch, which :func:`last_execution` returned, with its current metrics."""
    nodes: list[PlanNode] = []
    _walk(execution.executedPlan(), nodes)
    return PlanGraph(int(execution.currentBatchId()), tuple(nodes))


def _walk(plan: Any, nodes: list[PlanNode]) -> int:
    """Append the operators at and below ``plan``; returns the number of the node that represents it."""
    kind = str(plan.getClass().getSimpleName())
    children = _children(plan, kind)
    if _WRAPPERS.fullmatch(kind) and len(children) == 1:
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
