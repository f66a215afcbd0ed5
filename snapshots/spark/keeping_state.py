"""Return whether a streaming query keeps state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Streaming operators that keep no state. A query is refused only if it has no others: an operator that a later Spark
# adds is let through, and the first epoch shows whether it keeps state.
_STATELESS_NAMES = """
    AppendColumns ArrowEvalPython BatchEvalPython CTERelationDef CTERelationRef CollectMetrics DeserializeToObject
    EventTimeWatermark Expand Filter FlatMapGroupsInArrow FlatMapGroupsInPandas Generate LocalLimit MapElements
    MapInArrow MapInPandas MapPartitions Project PythonMapInArrow Repartition RepartitionByExpression ResolvedHint
    Sample SerializeFromObject StreamingExecutionRelation StreamingRelation StreamingRelationV2 SubqueryAlias
    TypedFilter Union View WithCTE
"""
_STATELESS = frozenset(_STATELESS_NAMES.split())


def keeps_state(frame: DataFrame) -> bool:
    """Return whether a streaming operator in the plan of a frame keeps state."""
    return not all(_is_stateless(node) for node in _streaming(frame._jdf.queryExecution().analyzed()))


def _streaming(node: Any) -> Iterator[Any]:
    """Return the streaming nodes of a plan."""
    if node.isStreaming():
        yield node
        children = node.children()
        for index in range(children.size()):
            yield from _streaming(children.apply(index))


def _is_stateless(node: Any) -> bool:
    name = str(node.nodeName())
    if name == "Join":
        # A stream-static join keeps no state: the static side is read again in each epoch.
        return not (node.left().isStreaming() and node.right().isStreaming())
    return name in _STATELESS
