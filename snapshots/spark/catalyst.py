"""Spark's own plans from Python: Scala's collections and objects, and trees of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.spark.private_classes import has_method, java_class, scala_object

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


def each(sequence: Any) -> Iterator[Any]:
    """Return the items of a Scala collection."""
    items = sequence.iterator()
    while items.hasNext():
        yield items.next()


def scala_list(jvm: Any, items: Iterable[Any]) -> Any:
    """Return a Scala list."""
    made = jvm.java.util.ArrayList()
    for item in items:
        made.add(item)
    return jvm.org.apache.spark.api.python.PythonUtils.toSeq(made).toList()


def kind_of(node: Any) -> str:
    """Return the class of a node, without its package."""
    return str(node.getClass().getSimpleName())


def number_of(attribute: Any) -> int:
    """Return the number that tells an attribute from others of the same name."""
    return int(attribute.exprId().id())


def source_name(leaf: Any) -> str | None:
    """Return the name that a query gave to a source; None if it has none."""
    if not has_method(leaf, "sourceIdentifyingName"):  # before Spark 4.2, sources have no names
        return None
    name = leaf.sourceIdentifyingName().nameOpt()
    return str(name.get()) if name.isDefined() else None


def delay_of(jvm: Any, watermark: Any) -> int:
    """Return the delay of a watermark's node in milliseconds."""
    delays = scala_object(jvm, "org.apache.spark.sql.catalyst.plans.logical.EventTimeWatermark")
    return int(delays.getDelayMs(watermark.delay()))


def alias_replacement(jvm: Any) -> Any:
    """Return Spark's own object that replaces names of a projection by their definitions."""
    return scala_object(jvm, "org.apache.spark.sql.catalyst.optimizer.CollapseProject")


def zoned_class(jvm: Any) -> Any:
    """Return Java's object for the class of expressions that depend on the session's time zone."""
    return java_class(jvm, "org.apache.spark.sql.catalyst.expressions.TimeZoneAwareExpression")


def walk(plan: Any) -> Iterator[Any]:
    """Return a plan's nodes, from the top down, left before right."""
    yield plan
    for child in each(plan.children()):
        yield from walk(child)


def keeps_state(frame: DataFrame) -> bool:
    """Return whether a streaming operator in the plan of a frame keeps state."""
    return not all(_is_stateless(node) for node in _streaming(frame._jdf.queryExecution().analyzed()))


def _streaming(node: Any) -> Iterator[Any]:
    """Return the streaming nodes of a plan."""
    if node.isStreaming():
        yield node
        for child in each(node.children()):
            yield from _streaming(child)


def _is_stateless(node: Any) -> bool:
    name = str(node.nodeName())
    if name == "Join":
        # A stream-static join keeps no state: the static side is read again in each epoch.
        return not (node.left().isStreaming() and node.right().isStreaming())
    return name in _STATELESS
