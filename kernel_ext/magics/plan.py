"""What a query's plan tells before the query is started: whether it keeps state, and which output modes it takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.errors import NoStateError, QueryError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["MODES", "check_mode", "check_state"]

MODES = ("update", "append", "complete")

# The streaming operators that surely keep nothing. A query is refused only where it has no others: what a later Spark
# adds is let through, and its first epoch shows whether there is state.
_STATELESS = frozenset(
    {
        "AppendColumns",
        "ArrowEvalPython",
        "BatchEvalPython",
        "CTERelationDef",
        "CTERelationRef",
        "CollectMetrics",
        "DeserializeToObject",
        "EventTimeWatermark",
        "Expand",
        "Filter",
        "FlatMapGroupsInArrow",
        "FlatMapGroupsInPandas",
        "Generate",
        "LocalLimit",
        "MapElements",
        "MapInArrow",
        "MapInPandas",
        "MapPartitions",
        "Project",
        "PythonMapInArrow",
        "Repartition",
        "RepartitionByExpression",
        "ResolvedHint",
        "Sample",
        "SerializeFromObject",
        "StreamingExecutionRelation",
        "StreamingRelation",
        "StreamingRelationV2",
        "SubqueryAlias",
        "TypedFilter",
        "Union",
        "View",
        "WithCTE",
    }
)


def check_state(frame: DataFrame) -> None:
    """Refuse a query that keeps no state.

    Raises:
        NoStateError: every streaming operator in its plan is one that keeps nothing.
    """
    nodes = _streaming(_analyzed(frame))
    if all(_keeps_nothing(node) for node in nodes):
        raise NoStateError(
            "This query keeps no state, so there would be nothing to look into.\n"
            "Aggregations, joins of two streams, deduplication and transformWithState keep state; "
            "run a query without them with writeStream."
        )


def check_mode(frame: DataFrame, mode: str) -> None:
    """Refuse an output mode that Spark would refuse, or a query that it cannot run at all.

    Raises:
        QueryError: naming the modes that fit.
    """
    refused = {name: _refusal(frame, name) for name in MODES}
    if not refused[mode]:
        return
    fitting = [name for name in MODES if not refused[name]]
    if not fitting:
        raise QueryError(f"Spark cannot run this as a streaming query: {refused[mode]}")
    also = f" ({' or '.join(fitting[1:])} would work too)" if fitting[1:] else ""
    raise QueryError(f"Spark refuses --mode {mode} here: {refused[mode]}\nUse --mode {fitting[0]}{also}.")


def _analyzed(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def _streaming(node: Any) -> Iterator[Any]:
    """The nodes of a plan through which a stream flows."""
    if node.isStreaming():
        yield node
        children = node.children()
        for index in range(children.size()):
            yield from _streaming(children.apply(index))


def _keeps_nothing(node: Any) -> bool:
    name = str(node.nodeName())
    if name == "Join":
        # A stream joined with a table keeps nothing: the table is read again in each epoch.
        return not (node.left().isStreaming() and node.right().isStreaming())
    return name in _STATELESS


def _refusal(frame: DataFrame, mode: str) -> str:
    """Why Spark would refuse the mode; empty where it would not."""
    from pyspark.errors import AnalysisException

    jvm: Any = frame.sparkSession._jvm
    output_mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, mode.capitalize())()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        checker.checkForStreaming(_analyzed(frame), output_mode)
    except AnalysisException as error:
        return first_line(error)
    return ""


def first_line(error: BaseException) -> str:
    """What Spark says is wrong, without its class of error, its plan and its stack."""
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return line.partition(" SQLSTATE:")[0].rstrip(";")
