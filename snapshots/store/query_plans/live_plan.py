"""The plans of the queries that were started, stepped or described in this process, as Spark's own objects.

A store records what a result needs; Spark's objects, which reading the input of an epoch needs, belong to a session.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.query_plans.query_plan import QueryPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST = 8


@dataclass(frozen=True)
class LivePlan:
    """A query that Spark has planned here."""

    spark: SparkSession
    """The session that it was built in."""
    analyzed: Any
    """Its analysed logical plan."""
    plan: QueryPlan


_planned: dict[tuple[str, str], list[LivePlan]] = {}


def remember(layout: Layout, query: str, planned: LivePlan) -> None:
    """Keep the plan of a query of a store for as long as the process lives; of many, the newest."""
    known = _planned.setdefault((layout.root, query), [])
    known.append(planned)
    del known[:-_MOST]


def live_plan(layout: Layout, query: str, plan: QueryPlan | None) -> LivePlan | None:
    """Return the newest plan of a query in a session that still runs: the recorded one, if a plan is given."""
    for planned in reversed(_planned.get((layout.root, query), [])):
        runs = planned.spark.sparkContext._jsc is not None
        if runs and (plan is None or planned.plan.is_like(plan)):
            return planned
    return None
