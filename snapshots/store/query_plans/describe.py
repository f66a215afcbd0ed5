"""Recording the plan of a query: of one that starts or runs here, or afterwards with :func:`describe`."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pyarrow as pa

from streamstate.errors import QueryError
from streamstate.snapshots.calls.checks import whole_number
from streamstate.snapshots.checkpoint.decoding.arrow_types import arrow_type
from streamstate.snapshots.checkpoint.decoding.state_table_format import SparkType
from streamstate.snapshots.checkpoint.state_tables import operator_number
from streamstate.snapshots.spark.connect import require_classic
from streamstate.snapshots.spark.kafka_broker import SilentBrokerError, kafka_sources, topic_ids
from streamstate.snapshots.spark.output_modes import known_mode, output_mode
from streamstate.snapshots.store.changelog import key_columns, operator_of, value_columns
from streamstate.snapshots.store.delta.commits import required
from streamstate.snapshots.store.delta.reading import TableVersion
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.manifest import Manifest
from streamstate.snapshots.store.query_plans.plan_table import LivePlan, Plans, remember, store_plan
from streamstate.snapshots.store.query_plans.query_plan import OperatorPlan, QueryPlan
from streamstate.snapshots.store.registry import required_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Operators with two names: real-time mode has its own aggregation, and Spark before 4.0 recorded no names.
_SAME_STATE = {"StatefulStreamlineAggregate": "stateStoreSave", "flatMapGroupsWithState": "applyInPandasWithState"}


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
        plan_with_topics = replace(planned.plan, topics=_topics_now(planned))
        remember(layout, name, planned)
        store_plan(layout, name, plan_with_topics, since)
    except Exception as error:  # noqa: BLE001 (whatever Spark's planner raises, the query itself has been planned)
        _say(name, error)


def _topics_now(planned: LivePlan) -> dict[str, str]:
    """Return the ids of the topics that a query reads, as far as its brokers say them."""
    found: dict[str, str] = {}
    for leaf in kafka_sources(planned.analyzed):
        with contextlib.suppress(SilentBrokerError):
            found |= {name: known for name, known in topic_ids(planned.spark._jvm, leaf).items() if known is not None}
    return found


def _say(name: str, error: Exception) -> None:
    first = (str(error).splitlines() or [type(error).__name__])[0]
    logging.getLogger("streamstate").warning(
        "The plan of %s was not recorded, so its result is not shown: %s", name, first
    )


def check_describes(layout: Layout, name: str, plan: QueryPlan, since: int) -> None:
    """Raise a QueryError unless a plan has the stateful operators of a query, and the columns of their state."""
    schemas = _captured(layout, name, since)
    if not schemas:
        return
    _check_operators(name, plan.operators, schemas)
    for table, schema in schemas.items():
        planned = plan.tables.get(table)
        if planned is None:
            _check_columns(name, table, schema, plan.operators[operator_number(table)].keys, key_columns(schema))
            continue
        for expected, columns in ((planned.keys, key_columns(schema)), (planned.values, value_columns(schema))):
            _check_columns(name, table, schema, [column.type for column in expected or ()], columns)


def _captured(layout: Layout, name: str, since: int) -> dict[str, pa.Schema]:
    """Return the schemas of the state tables' change logs at the newest epoch; empty if none is captured since."""
    manifest = Manifest(layout, name)
    manifest.refresh()
    newest = manifest.newest
    if newest is None or newest.epoch < since:
        return {}
    places = {table: layout.changelog(name, table) for table in newest.tables}
    return {table: TableVersion(place, required(place)).schema for table, place in places.items()}


def _check_operators(query: str, planned: Sequence[OperatorPlan], schemas: Mapping[str, pa.Schema]) -> None:
    captured = dict.fromkeys(sorted(map(operator_number, schemas)), "")
    for table, schema in schemas.items():
        if (operator := operator_of(schema)) is not None:
            captured[operator_number(table)] = operator.name
    named = {number: operator.name for number, operator in enumerate(planned)}
    same = [*named] == [*captured] and all(
        not name or _SAME_STATE.get(name, name) == _SAME_STATE.get(named[number], named[number])
        for number, name in captured.items()
    )
    if not same:
        _refuse(query, f"it has {_listed(named)}, but the state of {_listed(captured)} was captured")


def _listed(operators: Mapping[int, str]) -> str:
    named = (f"op{number} ({name})" if name else f"op{number}" for number, name in operators.items())
    return f"the stateful operators {', '.join(named)}" if operators else "no stateful operator"


def _check_columns(
    query: str, table: str, schema: pa.Schema, types: Sequence[SparkType], columns: Sequence[str]
) -> None:
    """Check the types of the first of some columns."""
    stored = [str(schema.field(column).type) for column in columns]
    wanted = [str(arrow_type(kind)) if isinstance(kind, str) else None for kind in types]
    fits = all(kind in (None, found) for kind, found in zip(wanted, stored, strict=False))
    if not fits or len(wanted) > len(stored):
        _refuse(
            query,
            f"{table} has the columns {', '.join(columns)}, of the types {', '.join(stored)}; the DataFrame has"
            f" {', '.join(map(str, wanted))}",
        )


def _refuse(query: str, why: str) -> NoReturn:
    raise QueryError(
        f"build_query is not the query {query}: {why}.\nReturn the DataFrame that the query was started from."
    )
