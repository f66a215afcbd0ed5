"""The streaming sources of a query's plan, and the watermarks that are computed from their rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streamstate.snapshots.checkpoint.bindings import binds
from streamstate.snapshots.spark.catalyst import each, kind_of, scala_object, walk
from streamstate.snapshots.store.query_plans.query_plan import EventTime


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


def source_name(leaf: Any) -> str | None:
    """Return the name that a query gave to a source; None if it has none."""
    name = leaf.sourceIdentifyingName().nameOpt()
    return str(name.get()) if name.isDefined() else None


def event_times(jvm: Any, analyzed: Any) -> tuple[EventTime, ...]:
    """Return the watermarks of a plan, each with the sources below it."""
    delays = scala_object(jvm, "org.apache.spark.sql.catalyst.plans.logical.EventTimeWatermark")
    sources = sources_of(analyzed)
    found = []
    for node in walk(analyzed):
        if kind_of(node) == "EventTimeWatermark" and node.isStreaming():
            leaves = list(each(node.collectLeaves()))
            below = (source.name for source in sources if any(map(source.leaf.equals, leaves)))
            delay = int(delays.getDelayMs(node.delay()))
            found.append(EventTime(str(node.eventTime().name()), delay, tuple(dict.fromkeys(below))))
    return tuple(found)
