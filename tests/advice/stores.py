"""Synthetic stores of queries that are advised on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from synthetic import State, write

import streamstate as ss
from streamstate.reports import History
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.query_plans.plan_table import store_plan
from streamstate.snapshots.store.query_plans.query_plan import (
    EventTime,
    Expression,
    OperatorPlan,
    PlannedColumn,
    QueryPlan,
    TablePlan,
)

KEYS = (PlannedColumn("key", "string"),)
EXPIRES: Expression = {"is": "State", "part": "value", "at": 0, "type": "long"}
DEDUPLICATION = QueryPlan(
    "append", "4.3.0", {}, {"op0": TablePlan(KEYS, ())}, operators=(OperatorPlan("dedupe", ("string",)),)
)
WINDOWS = QueryPlan(
    "append",
    "4.3.0",
    {},
    {"op0": TablePlan(KEYS, (), time=EXPIRES)},
    operators=(OperatorPlan("stateStoreSave", ("timestamp",)),),
    event_times=(EventTime("t", 60_000, ("0",)),),
)
"""An aggregation in append mode by event time, which the value of a synthetic row gives."""


def growing(epochs: int, *, new: Callable[[int], int] = lambda _: 10) -> list[State | None]:
    """The states of a query of which each epoch adds so many keys."""
    states: list[State | None] = []
    keys: State = {}
    for epoch in range(epochs):
        keys = keys | {f"k{epoch}.{at}": 0 for at in range(new(epoch))}
        states.append(keys)
    return states


def stored(
    folder: Path, states: list[State | None], plan: QueryPlan | None = None, *, since: int = 0, **options: Any
) -> History:
    """A query, with its plan if there is one; each epoch has read rows."""
    facts = options.pop("facts", [{"offsets": f"[{epoch}]"} for epoch in range(len(states))])
    write(folder, states, facts=facts, **options)
    if plan is not None:
        store_plan(Layout.at(folder), "q", plan, since)
    return ss.open_store(folder)["q"]
