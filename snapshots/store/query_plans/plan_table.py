"""The plans of a query: which it had from which epoch on, in its store, and Spark's own objects in this process.

A store records what a result needs; Spark's objects, which reading the input of an epoch needs, belong to a session.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from streamstate.snapshots.store.consistent_read import read_once
from streamstate.snapshots.store.delta import append_once, open_or_create
from streamstate.snapshots.store.delta.commits import Handle
from streamstate.snapshots.store.delta.log_end import UNREADABLE, LogEnd
from streamstate.snapshots.store.delta.reading import TableVersion
from streamstate.snapshots.store.layout import PLANS, Layout
from streamstate.snapshots.store.manifest import Manifest
from streamstate.snapshots.store.query_plans.query_plan import QueryPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST = 8
_PLANS = "streamstate/plans"
"""The name under which a commit keeps the plans that the table has after it."""
_LONGEST = 200_000
"""Characters of plans that are kept."""


@dataclass(frozen=True)
class StoredPlan:
    """A plan, and the first epoch that it is known for."""

    since: int
    plan: QueryPlan


def store_plan(layout: Layout, query: str, plan: QueryPlan, since: int) -> bool:
    """Record the plan that a query has from an epoch on; False if the newest record says the same."""
    known = Plans(layout, query)
    recorded = known.recorded()
    text = plan.to_json()
    if recorded and recorded[-1].since <= since and recorded[-1].plan.to_json() == text:
        return False
    place = layout.plans(query)
    open_or_create(place, PLANS, f"streamstate: the plans of {query}")
    row = {"since": since, "recorded_at": datetime.now(UTC), "plan": text}
    made = pa.Table.from_pylist([row], schema=PLANS)
    metadata = _kept([*((stored.since, stored.plan.to_json()) for stored in recorded), (since, text)])
    append_once(place, f"plan/{query}", known.records + 1, lambda _: made, metadata=metadata)
    Plans.stored_here += 1
    return True


def kept_plans(end: LogEnd) -> tuple[StoredPlan, ...] | None:
    """Return all plans, as :meth:`Plans.recorded`, from what the newest commit of the table keeps.

    Returns:
        None if the commit keeps none: an older version wrote it, or it is damaged.
    """
    try:
        changed = next((entry for entry in end.entries() if entry.changes_rows), None)
        text = None if changed is None else changed.fact(_PLANS)
        return None if text is None else _in_order({int(since): plan for since, plan in json.loads(text)})
    except UNREADABLE:
        return None


def _kept(plans: Sequence[tuple[int, str]]) -> dict[str, str]:
    """Return the metadata of a commit after which the table has some plans; none if it would be long."""
    text = json.dumps(plans, separators=(",", ":"))
    return {_PLANS: text} if len(text) <= _LONGEST else {}


def _in_order(texts: Mapping[int, str]) -> tuple[StoredPlan, ...]:
    return tuple(StoredPlan(since, QueryPlan.from_json(texts[since])) for since in sorted(texts))


class Plans:
    """The recorded plans of a query; read again when there are new ones. Safe from any thread.

    Args:
        layout: the store.
        query: the query's name in the store.
        manifest: the query's manifest. In an object store, new plans are then looked for only when there are new
            epochs, or when this process has recorded a plan: each look is a request.
    """

    stored_here: ClassVar[int] = 0
    """The number of plans that this process has stored, of any query."""

    def __init__(self, layout: Layout, query: str, manifest: Manifest | None = None) -> None:
        self._place = layout.plans(query)
        self._handle = Handle(self._place)
        self._version = -1
        self._known: tuple[StoredPlan, ...] = ()
        self._lock = threading.Lock()
        self._manifest = manifest
        self._looked: tuple[object, object] | None = None
        self.records = 0
        """The number of rows that the table has."""

    def at(self, epoch: int) -> QueryPlan | None:
        """Return the plan that a query had at an epoch; None if it is not known."""
        return next((known.plan for known in reversed(self.recorded()) if known.since <= epoch), None)

    def recorded(self) -> tuple[StoredPlan, ...]:
        """Return all plans, ascending by their first epoch; of those with the same, the one recorded last."""
        return read_once(self, self._read)

    def _read(self) -> tuple[StoredPlan, ...]:
        with self._lock:
            if self._place.folder is None and self._manifest is not None:
                looked = self._manifest.entries, Plans.stored_here
                if self._looked is not None and self._looked[0] is looked[0] and self._looked[1] == looked[1]:
                    return self._known
                self._looked = looked
            table = self._handle.if_exists()
            if table is None or table.version() == self._version:
                return self._known
            rows = TableVersion(self._place, table).read("since").sort_by("recorded_at").to_pylist()
            self._known = _in_order({row["since"]: row["plan"] for row in rows})
            self._version, self.records = table.version(), len(rows)
            return self._known


@dataclass(frozen=True)
class LivePlan:
    """A query that Spark has planned here."""

    spark: SparkSession
    """The session that it was built in."""
    analyzed: Any
    """Its analysed logical plan."""
    plan: QueryPlan


_planned: dict[tuple[str, str], list[LivePlan]] = {}
_layouts: dict[str, Layout] = {}


def remember(layout: Layout, query: str, planned: LivePlan) -> None:
    """Keep the plan of a query of a store for as long as the process lives; of many, the newest."""
    known = _planned.setdefault((layout.root, query), [])
    known.append(planned)
    del known[:-_MOST]
    _layouts[layout.root] = layout


def stores_here() -> list[Layout]:
    """Return the stores whose queries were planned in this process, the newest first."""
    return [*reversed(_layouts.values())]


def live_plan(layout: Layout, query: str, plan: QueryPlan | None) -> LivePlan | None:
    """Return the newest plan of a query in a session that still runs: the recorded one, if a plan is given."""
    for planned in reversed(_planned.get((layout.root, query), [])):
        runs = planned.spark.sparkContext._jsc is not None
        if runs and (plan is None or planned.plan == plan):
            return planned
    return None
