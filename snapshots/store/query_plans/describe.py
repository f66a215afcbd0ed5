"""Recording the plan of a query: of one that starts or runs here, or afterwards with :func:`describe`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from streamstate.errors import QueryError
from streamstate.snapshots.calls.checks import whole_number
from streamstate.snapshots.spark.connect import require_classic
from streamstate.snapshots.spark.output_modes import known_mode, output_mode
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.query_plans.live_plan import LivePlan, remember
from streamstate.snapshots.store.query_plans.plan_check import check_describes
from streamstate.snapshots.store.query_plans.plan_table import Plans, store_plan
from streamstate.snapshots.store.registry import required_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def describe(
    store: str | Path,
    name: str,
    build_query: Callable[[], DataFrame],
    *,
    mode: str | None = None,
    since: int = 0,
    storage_options: Mapping[str, str] | None = None,
) -> None:
    """Record the plan of a query that was captured without it, so that the store can show the query's result.

    :meth:`streamstate.History.describe` describes the arguments and errors.
    """
    layout = Layout.at(store, storage_options)
    required_query(layout, name)
    whole_number(since, "since", least=0)
    planned = plan_here(layout, name, build_query, mode=mode, epoch=since)
    store_plan(layout, name, planned.plan, since)


def plan_here(
    layout: Layout, name: str, build_query: Callable[[], DataFrame], *, mode: str | None, epoch: int
) -> LivePlan:
    """Plan a query of a store from its code, so that its input can be read in this process; nothing is recorded.

    Args:
        layout: the store.
        name: the query's name in it.
        build_query: as for :func:`describe`, as are the errors.
        mode: the output mode; None to find it.
        epoch: an epoch that ran with this plan.
    """
    from streamstate.snapshots.store.query_plans.spark_plan import plan_of_frame

    if mode is not None:
        known_mode(mode)
    frame = streaming_frame(build_query)
    earlier = Plans(layout, name).at(epoch)
    planned = plan_of_frame(frame, output_mode(frame, mode, None if earlier is None else earlier.mode))
    check_describes(layout, name, planned.plan, epoch)
    remember(layout, name, planned)
    return planned


def streaming_frame(build_query: Callable[[], DataFrame]) -> DataFrame:
    """Return what a user's function builds, which has to be a streaming DataFrame."""
    frame = build_query()
    require_classic(frame)
    if not getattr(frame, "isStreaming", False) or not hasattr(frame, "_jdf"):
        raise QueryError(
            f"build_query returned a value of type {type(frame).__name__}, not a streaming DataFrame.\n"
            "Return the DataFrame that the query was started from, without writeStream."
        )
    return frame


def store_running_plan(layout: Layout, name: str, plan: Callable[[], LivePlan], since: int) -> None:
    """Store the plan of a query that starts or runs here. A failure is logged: the query and its capture continue."""
    try:
        planned = plan()
        remember(layout, name, planned)
        store_plan(layout, name, planned.plan, since)
    except Exception as error:  # noqa: BLE001 (whatever Spark's planner raises, the query itself has been planned)
        _say(name, error)


def _say(name: str, error: Exception) -> None:
    first = (str(error).splitlines() or [type(error).__name__])[0]
    logging.getLogger("streamstate").warning(
        "The plan of %s was not recorded, so its result is not shown: %s", name, first
    )
