"""The stateful nodes of a query's logical plan."""

from __future__ import annotations

from typing import Any

from streamstate.snapshots.spark.catalyst import each, kind_of, walk

JOIN = "Join"
LIMIT = "GlobalLimit"
_STATEFUL = (
    "Aggregate", "Distinct", "Deduplicate", "DeduplicateWithinWatermark", JOIN, "FlatMapGroupsInPandasWithState",
    "FlatMapGroupsWithState", "TransformWithState", "TransformWithStateInPySpark", LIMIT,
)  # fmt: skip


def stateful_nodes(plan: Any, mode: str) -> list[Any]:
    """Return the stateful nodes of a plan in Spark's numbers: from the top down, left before right."""
    return [node for node in walk(plan) if is_stateful(node, mode)]


def is_stateful(node: Any, mode: str) -> bool:
    """Return True if Spark keeps state for a node, in a query with an output mode."""
    kind = kind_of(node)
    if kind not in _STATEFUL or not node.isStreaming():
        return False
    if kind == JOIN:
        return bool(node.left().isStreaming() and node.right().isStreaming())
    # Spark limits what an aggregation returns anew in each epoch, except in append mode.
    return kind != LIMIT or mode == "append" or not any(map(_aggregates, each(node.children())))


def _aggregates(plan: Any) -> bool:
    return any(kind_of(node) == "Aggregate" and node.isStreaming() for node in walk(plan))
