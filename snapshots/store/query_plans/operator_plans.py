"""Stateful operators of a query as Spark plans them, and the event times by which it removes rows of their state."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from streamstate.snapshots.spark.catalyst import each, kind_of, walk
from streamstate.snapshots.store.query_plans.query_plan import OperatorPlan

WATERMARK = 10**12
"""The watermark for which a query is planned, in milliseconds: what Spark compares with rows is relative to it."""
JOIN = "StreamingSymmetricHashJoinExec"
SESSION_SAVE = "SessionWindowStateStoreSaveExec"
SAVES = ("StateStoreSaveExec", SESSION_SAVE)
DEDUPLICATE, DEDUPLICATE_WITHIN = "StreamingDeduplicateExec", "StreamingDeduplicateWithinWatermarkExec"
# The others keep a user's own variables, or a count.
STATEFUL = (
    *SAVES,
    DEDUPLICATE,
    DEDUPLICATE_WITHIN,
    JOIN,
    "FlatMapGroupsInPandasWithStateExec",
    "FlatMapGroupsWithStateExec",
    "TransformWithStateExec",
    "TransformWithStateInPySparkExec",
    "StreamingGlobalLimitExec",
)
"""Physical operators with state."""
_DELAY = "spark.watermarkDelayMs"


@dataclass(frozen=True)
class Removal:
    """The condition on which the watermark removes a row of a state."""

    time: Any
    """The row's event time: an expression of Spark over the state's columns."""
    behind: int
    """By how many microseconds the watermark has to be past it."""


def stateful_operators(physical: Any) -> list[Any]:
    """Return the stateful operators of a physical plan in Spark's numbers: from the top down, left before right."""
    return [node for node in walk(physical) if kind_of(node) in STATEFUL]


def operator_plans(physical: Any) -> tuple[OperatorPlan, ...]:
    """Describe the stateful operators of a physical plan."""
    return tuple(_operator_plan(node) for node in stateful_operators(physical))


def _operator_plan(node: Any) -> OperatorPlan:
    keys = tuple(type_of(key) for key in _keys(node))
    event_times = tuple(tuple(_event_times(child)) for child in each(node.children()))
    return OperatorPlan(str(node.shortName()), keys, _kind(node), event_times)


def _keys(node: Any) -> list[Any]:
    kind = kind_of(node)
    if kind == SESSION_SAVE:
        return list(each(node.keyWithoutSessionExpressions()))
    if kind in (*SAVES, DEDUPLICATE, DEDUPLICATE_WITHIN):
        return list(each(node.keyExpressions()))
    if kind == JOIN:
        return list(each(node.leftKeys()))
    return [] if kind == "StreamingGlobalLimitExec" else list(each(node.groupingAttributes()))


def _kind(node: Any) -> str:
    kind = kind_of(node)
    if kind == JOIN:
        return str(node.joinType().sql())
    if kind.startswith("FlatMapGroups"):
        return str(node.timeoutConf().toString())
    return str(node.timeMode().toString()) if kind.startswith("TransformWithState") else ""


def _event_times(node: Any) -> Iterator[str]:
    """Return the columns of a node with a watermark."""
    for attribute in each(node.output()):
        if attribute.metadata().contains(_DELAY):
            yield str(attribute.name())


def removals(executed: Any, mode: str) -> Mapping[tuple[int, str], Removal]:
    """Return the removals by operator and, for a join, side; states that the watermark does not shrink are left out.

    Args:
        executed: the plan of an epoch with the watermark :data:`WATERMARK`, as Spark would run it.
        mode: the output mode.
    """
    return {
        (number, side): _removal(comparison)
        for number, node in enumerate(stateful_operators(executed))
        for side, comparison in _comparisons(node, mode)
    }


def _comparisons(node: Any, mode: str) -> Iterator[tuple[str, Any]]:
    """Spark's condition for removing a row, ``time <= bound``, by side."""
    kind = kind_of(node)
    if kind == JOIN:
        predicates = node.stateWatermarkPredicates()
        for side in ("left", "right"):
            found = getattr(predicates, side)()
            if found.isDefined():
                yield side, found.get().expr()
    elif kind == SESSION_SAVE:
        if mode == "append" and node.watermarkExpressionForEviction().isDefined():
            yield "", node.watermarkExpressionForEviction().get()
    # Spark finds such rows by their keys, which have to have the event time.
    elif (
        kind in (*SAVES, DEDUPLICATE) and mode != "complete" and node.watermarkPredicateForKeysForEviction().isDefined()
    ):
        yield "", node.watermarkExpressionForEviction().get()


def _removal(comparison: Any) -> Removal:
    return Removal(comparison.left(), WATERMARK * 1000 - int(comparison.right().value()))


def type_of(expression: Any) -> Any:
    """Return the type of an expression as Spark's schemas have it in JSON."""
    return json.loads(str(expression.dataType().json()))
