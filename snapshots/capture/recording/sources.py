"""The sources of a streaming plan: which keep their input, and putting other ones in their place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.capture.recording.source import FED, FORMAT, PATH
from streamstate.snapshots.checkpoint.bindings import FORMAT as BINDING
from streamstate.snapshots.spark.catalyst import each, kind_of, scala_list
from streamstate.snapshots.spark.plan_building import dataset_of, renamed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FORGETS = {"socket": "a socket", "MemoryStream": "memory"}
# Sources whose input can be read again for as long as somebody keeps it, or is computed.
_KEEPS = ("FileSource", "rate", "delta", FORMAT, BINDING)
_SOURCES = ("StreamingRelation", "StreamingRelationV2", "StreamingExecutionRelation")


def forgotten(leaf: Any) -> str | None:
    """Describe a source that forgets its input once it was read; None if it can be asked again."""
    text = description(leaf)
    return next((what for name, what in _FORGETS.items() if name in text), None)


def may_expire(leaf: Any) -> bool:
    """Return whether a source's input may be gone later: all but files, Delta tables, rate and recordings."""
    return kind_of(leaf) not in _SOURCES or not description(leaf).startswith(_KEEPS)


def distinct_sources(analyzed: Any) -> list[Any]:
    """Return the sources of a plan in Spark's order, each once."""
    found: list[Any] = []
    for leaf in each(analyzed.collectLeaves()):
        is_source = leaf.isStreaming() and kind_of(leaf) != "CTERelationRef"
        if is_source and not any(leaf.equals(known) for known in found):
            found.append(leaf)
    return found


def recordings_of(analyzed: Any, *, fed: bool = False) -> list[str]:
    """Return the paths of the recordings that a plan reads; if ``fed``, only if the recorder starts with the query."""
    return [
        str(leaf.extraOptions().get(PATH))
        for leaf in distinct_sources(analyzed)
        if kind_of(leaf) == "StreamingRelationV2"
        and str(leaf.sourceName()) == FORMAT
        and (not fed or leaf.extraOptions().containsKey(FED))
    ]


def frame_of(frame: DataFrame, plan: Any) -> DataFrame:
    """Return a DataFrame of an analysed plan, in the session of another."""
    from streamstate.snapshots.spark.pyspark_classes import ClassicDataFrame

    spark = frame.sparkSession
    return ClassicDataFrame(dataset_of(spark._jvm, spark._jsparkSession, plan), spark)


def with_sources(frame: DataFrame, instead: Sequence[tuple[Any, DataFrame]]) -> DataFrame:
    """Return a frame that reads other frames instead of some of its sources; they have the same columns."""
    jvm: Any = frame.sparkSession._jvm
    plans = [(leaf, _renamed(jvm, other._jdf.queryExecution().analyzed(), leaf)) for leaf, other in instead]

    def replaced(node: Any) -> Any:
        if node.children().isEmpty():
            return next((plan for leaf, plan in plans if leaf.equals(node)), node)
        old = list(each(node.children()))
        new = [replaced(child) for child in old]
        same = all(before is after for before, after in zip(old, new, strict=True))
        return node if same else node.withNewChildren(scala_list(jvm, new))

    return frame_of(frame, replaced(frame._jdf.queryExecution().analyzed()))


def _renamed(jvm: Any, plan: Any, leaf: Any) -> Any:
    """Return a plan with the numbers of a leaf's attributes, which the nodes above refer to."""
    pairs = list(zip(each(plan.output()), each(leaf.output()), strict=True))
    if all(made.exprId().equals(to.exprId()) for made, to in pairs):
        return plan
    return renamed(jvm, plan, each(leaf.output()), metadata_of="output")


def description(leaf: Any) -> str:
    """Return the kind of a source, such as ``socket``."""
    return str(leaf.sourceName() if kind_of(leaf).startswith("StreamingRelation") else leaf.toString())
