"""The inputs of a plan: its streaming sources with their watermarks, and the inputs of each operator's state.

The inputs of a state are its keys, values and conditions, as SQL over the sources' columns. They are read from the
optimised plan, in which projections are merged and columns that nobody uses are gone. The names that a query gives to
columns on the way are replaced by their definitions, so that a renamed column makes no difference.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from streamstate.snapshots.checkpoint.bindings import binds
from streamstate.snapshots.spark.catalyst import alias_replacement, delay_of, each, kind_of, source_name, walk
from streamstate.snapshots.store.query_plans.query_plan import EventTime, StateInput

JOIN = "Join"
LIMIT = "GlobalLimit"
_STATEFUL = (
    "Aggregate", "Distinct", "Deduplicate", "DeduplicateWithinWatermark", JOIN, "FlatMapGroupsInPandasWithState",
    "FlatMapGroupsWithState", "TransformWithState", "TransformWithStateInPySpark", LIMIT,
)  # fmt: skip
# Nodes that hand on the rows and columns of their child.
_PASSES = (
    "CollectMetrics", "EventTimeWatermark", "LocalLimit", "RebalancePartitions", "Repartition",
    "RepartitionByExpression", "SubqueryAlias", "UpdateEventTimeWatermarkColumn",
)  # fmt: skip
_LONGEST = 2_000
_MOST_FIELDS = 100
_CHANGING = re.compile(r"#\d+L?|(?<=lambda [a-z])_\d+|@[0-9a-f]+")


@dataclass(frozen=True)
class StreamSource:
    """A source of a query."""

    name: str
    """Its name or, if it has none, its place in the query from 0."""
    leaf: Any
    """The leaf of the analysed plan."""


def sources_of(analyzed: Any) -> list[StreamSource]:
    """Return the streaming sources of a plan in Spark's order.

    A stream that is read twice is one source, and listed twice.
    """
    found: list[StreamSource] = []
    distinct: list[Any] = []
    for leaf in each(analyzed.collectLeaves()):
        if not leaf.isStreaming() or binds(leaf):
            continue
        at = next((at for at, other in enumerate(distinct) if leaf.equals(other)), len(distinct))
        distinct += [leaf] * (at == len(distinct))
        found.append(StreamSource(source_name(leaf) or str(at), leaf))
    return found


def event_times(jvm: Any, analyzed: Any) -> tuple[EventTime, ...]:
    """Return the watermarks of a plan, each with the sources below it."""
    sources = sources_of(analyzed)
    found = []
    for node in walk(analyzed):
        if kind_of(node) == "EventTimeWatermark" and node.isStreaming():
            leaves = list(each(node.collectLeaves()))
            below = (source.name for source in sources if any(map(source.leaf.equals, leaves)))
            delay = delay_of(jvm, node)
            found.append(EventTime(str(node.eventTime().name()), delay, tuple(dict.fromkeys(below))))
    return tuple(found)


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


def state_inputs(jvm: Any, optimized: Any, mode: str) -> tuple[StateInput, ...]:
    """Return the input of each stateful operator's state in Spark's order: from the top down, left before right."""
    tracing = _Tracing(alias_replacement(jvm), mode)
    return tuple(tracing.state_input(node) for node in stateful_nodes(optimized, mode))


def watermarks(optimized: Any) -> tuple[str, ...]:
    """Return the event-time column and the delay of each watermark."""
    nodes = [node for node in walk(optimized) if kind_of(node) == "EventTimeWatermark"]
    return tuple(f"{_sql(node.eventTime())}, {node.delay().toString()}" for node in nodes)


class _Tracing:
    """A tracer of expressions down a plan, to the sources' columns."""

    def __init__(self, aliases: Any, mode: str) -> None:
        self._aliases = aliases
        self._mode = mode

    def state_input(self, node: Any) -> StateInput:
        kind = kind_of(node)
        if kind == JOIN:
            sides = [self._traced(side, each(side.output())) for side in (node.left(), node.right())]
            condition = [_sql(node.condition().get())] if node.condition().isDefined() else []
            columns = [column for texts, _ in sides for column in texts]
            conditions = [condition for _, conditions in sides for condition in conditions]
            return StateInput(kind, (), (str(node.joinType().sql()), *condition, *columns), tuple(sorted(conditions)))
        keys, values = _expressions(node, kind)
        texts, conditions = self._traced(node.child(), [*keys, *values])
        distinct = tuple(dict.fromkeys(texts[len(keys) :]))  # equal functions share a buffer
        return StateInput(kind, tuple(texts[: len(keys)]), distinct, tuple(sorted(conditions)))

    def _traced(self, node: Any, expressions: Iterable[Any]) -> tuple[list[str], list[str]]:
        """Expressions over a node's columns as texts over the sources', and the conditions below."""
        traced = list(expressions)
        where: list[Any] = []
        while not is_stateful(node, self._mode) and not node.children().isEmpty():
            kind = kind_of(node)
            if kind == "Project":
                names = self._aliases.getAliasMap(node)
                traced = [self._aliases.replaceAlias(expression, names) for expression in traced]
                where = [self._aliases.replaceAlias(condition, names) for condition in where]
            elif kind == "Filter":
                where.append(node.condition())
            elif kind not in _PASSES:
                return _texts(traced), [*_texts(where), *self._opaque(node)]
            node = node.child()
        return _texts(traced), _texts(where)

    def _opaque(self, node: Any) -> list[str]:
        """Return a node that expressions are not followed through: its own text, and what reaches it."""
        below = [self._traced(child, each(child.output())) for child in each(node.children())]
        columns = "; ".join(", ".join(texts) for texts, _ in below)
        own = f"{_CHANGING.sub('', str(node.simpleString(_MOST_FIELDS)))} over {columns}"
        return [_shortened(own), *(condition for _, conditions in below for condition in conditions)]


def _expressions(node: Any, kind: str) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return the expressions of a node's keys, and of what its state holds."""
    if kind == "Aggregate":
        functions = [
            part
            for expression in each(node.aggregateExpressions())
            for part in walk(expression)
            if kind_of(part) == "AggregateExpression"
        ]
        return list(each(node.groupingExpressions())), functions
    if kind.startswith("Deduplicate"):
        return list(each(node.keys())), ()
    if kind.startswith("FlatMapGroups"):
        return list(each(node.groupingAttributes())), ()
    if kind == "TransformWithStateInPySpark":
        return list(each(node.child().output()))[: int(node.groupingAttributesLen())], ()
    return (), [node.limitExpr()] if kind == LIMIT else ()


def _texts(expressions: Iterable[Any]) -> list[str]:
    return [_sql(expression) for expression in expressions]


def _sql(expression: Any) -> str:
    return _shortened(_CHANGING.sub("", str(expression.sql())))


def _shortened(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]}… {hashlib.sha256(text.encode()).hexdigest()}"
