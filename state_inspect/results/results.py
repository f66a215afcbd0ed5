"""The result of a state table at an epoch, and the table of its versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import pyarrow as pa

from streamstate.errors import NoResultError, StoreError, UnknownTableError, choices
from streamstate.snapshots.checkpoint.bindings import binding_in_manifest, seen_by
from streamstate.snapshots.spark.worker.forwarding import classic_spark, worker_runs
from streamstate.snapshots.store.query_plans.plan_table import Plans, live_plan
from streamstate.snapshots.store.query_plans.query_plan import TablePlan
from streamstate.state_inspect.captured_query import CapturedQuery, QueryHistory
from streamstate.state_inspect.results.result_columns import SPARKS, ResultColumns, result_columns
from streamstate.state_inspect.results.result_table import FilledTable, ResultTable, stored_keys
from streamstate.state_inspect.temporal_index.interval_table import IntervalTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RESULT = "result"
"""The name of the rows that a query returns, as a table; those of a side of a join are ``op0_left.result``."""

_TOP = "op0"
# By table and the state's columns, for as long as the plans are read.
_known: WeakKeyDictionary[Plans, dict[tuple[str, str], tuple[TablePlan, ResultColumns]]] = WeakKeyDictionary()


def state_of(table: str | None) -> tuple[str | None, bool]:
    """Return the state table of a name (None: the query's), and whether the name is that of its result."""
    if table == RESULT:
        return None, True
    return (table.removesuffix(f".{RESULT}"), True) if table and table.endswith(f".{RESULT}") else (table, False)


def results_shown(query: CapturedQuery) -> list[str]:
    """Return the results that can be shown at all captured epochs in the same columns, by name.

    They have their key, and other columns than the state. There are none if the store's plans cannot be read.
    """
    if not query.entries().captured:
        return []
    newest = query.live_entry()
    try:
        planned = _planned(query, newest.epoch)
    except (NoResultError, StoreError):
        return []
    names = [name for name in planned if name in newest.tables and _is_shown(query, name, newest.epoch)]
    return [RESULT if name == _TOP else f"{name}.{RESULT}" for name in names]


def _is_shown(query: CapturedQuery, name: str, newest: int) -> bool:
    log = query.columns(name)
    shown = log.columns_at(newest)
    try:
        plan = plan_throughout(query, name, query.known_entries.captured[0], newest)
        columns = _computed(query, plan, _schema(log.schema, shown), log.key_columns, name)
    except NoResultError:
        return False
    names = columns.schema.names
    return {*columns.keys.values()} <= {*names} and names != shown


def state_name(query: CapturedQuery, table: str) -> str:
    """Return the state table that a table's rows come from: itself, or what a result is computed from."""
    state, is_result = state_of(table)
    return table_of_result(query, state, query.tables(), query.live_entry().epoch) if is_result else table


@dataclass(frozen=True)
class ShownColumns:
    """The columns of a state table or of a result, as of the newest epoch."""

    key_columns: list[str]
    """In the order on disk."""
    value_columns: list[str]
    """In the order on disk, or the query's."""
    schema: pa.Schema
    """The types of all columns."""
    state: str
    """The state table."""
    state_keys: Mapping[str, str]
    """The state's name of each key column."""

    @property
    def columns(self) -> list[str]:
        """Key columns, then value columns."""
        return [*self.key_columns, *self.value_columns]


def known_table(name: str, tables: Sequence[str], query: str) -> str:
    """Return the name, if a query has a state table of it."""
    if name not in tables:
        raise UnknownTableError.among("state table", name, tables, where=f"in {query}")
    return name


def shown_columns(query: CapturedQuery, table: str) -> ShownColumns:
    """Return the columns of a state table or a result, without reading any rows."""
    state, is_result = state_of(table)
    if not is_result:
        log = query.columns(known_table(table, query.tables(), query.name))
        own = dict(zip(log.key_columns, log.key_columns, strict=True))
        return ShownColumns(log.key_columns, log.value_columns, log.schema, table, own)
    epoch = query.live_entry().epoch
    name = table_of_result(query, state, query.tables(), epoch)
    log = query.columns(name)
    found = _computed(query, result_plan(query, name, [epoch]), _schema(log.schema, log.columns), log.key_columns, name)
    keys = list(found.keys.values())
    hidden = [
        log.schema.field(key).with_name(shown) for key, shown in found.keys.items() if shown not in found.schema.names
    ]
    values = [column for column in found.schema.names if column not in keys]
    own = {shown: key for key, shown in found.keys.items()}
    return ShownColumns(keys, values, pa.schema([*found.schema, *hidden]), name, own)


def table_of_result(query: CapturedQuery, table: str | None, tables: Sequence[str], epoch: int) -> str:
    """Return the state table that a result is computed from; by default that of the query's topmost operator.

    Raises:
        NoResultError: no plan is recorded, or that operator has several tables, or none whose columns differ.
        UnknownTableError: there is no such state table.
    """
    if table is not None:
        known_table(table, tables, query.name)
    planned = _planned(query, epoch)
    if table is None and _TOP in planned:
        return _TOP
    if table is not None and table in planned:
        return table
    known = [name for name in planned if name in tables]
    if table is not None:
        raise NoResultError(f"{table} of {query.name} has no result of its own: its columns are the query's already.")
    hint = f"Name one: {choices(known)}." if known else "Its state tables have the columns that the query gave them."
    raise NoResultError(
        f"The result of {query.name} is not in its state: each epoch's is made from that epoch.\n{hint}"
    )


def result_plan(query: CapturedQuery, table: str, epochs: Sequence[int]) -> TablePlan:
    """Return the plan of a state table's result, which has to be the same at all of some epochs.

    Raises:
        NoResultError: a plan is not known, or the result's columns changed between the epochs.
    """
    plans = {epoch: _planned(query, epoch).get(table) for epoch in epochs}
    found = plans[epochs[0]]
    if found is None:
        raise NoResultError(f"{table} of {query.name} has no result of its own: its columns are the query's already.")
    other = next((epoch for epoch, plan in plans.items() if plan != found), None)
    if other is not None:
        raise NoResultError(
            f"The query {query.name} computes its result in another way at epoch {other} than at epoch {epochs[0]}.\n"
            "Compare the state instead, or choose epochs with the same plan."
        )
    return found


def plan_throughout(query: CapturedQuery, table: str, first: int, last: int) -> TablePlan:
    """As :func:`result_plan`, for all epochs from one to another."""
    changes = [known.since for known in query.plans.recorded() if first < known.since <= last]
    return result_plan(query, table, [last, first, *changes])


def with_result(table: IntervalTable, plan: TablePlan, name: str, epoch: int) -> ResultTable:
    """Return the versions of a result's rows, computed from the state's at and around an epoch.

    Raises:
        NoResultError: it cannot be computed without Spark.
    """
    return ResultTable(table, columns_of_result(table, plan, name, epoch))


def filled_with_spark(
    query: CapturedQuery, table: IntervalTable, plan: TablePlan, name: str, epoch: int
) -> ResultTable | None:
    """Return a result at an epoch, if Spark has to compute part of it and can: the query was planned in this process.

    The rows come from the index, so that they are the snapshot's own. Beside Spark Connect, the worker process has the
    plan of a query that it described.
    """
    if plan.needs_spark or not may_compute(query, epoch):
        return None
    schema = _schema(table.schema, table.columns_at(epoch))
    columns = result_columns(plan, schema, table.key_columns, name, filled=True)
    wanted = [at for at, sql in enumerate(columns.sql) if sql == f"{SPARKS}{at}"]
    if not wanted and not columns.condition:
        return None
    state = query.index.query(table.at(epoch)).cast(schema)
    found = _computed_by_spark(query.related(query.name), epoch, name, state, wanted)
    return None if found is None else FilledTable(query.index, table, columns, found, epoch)


def may_compute(query: CapturedQuery, epoch: int) -> bool:
    """Return whether Spark may know the plan of an epoch: in this process, or in a worker process that runs."""
    return worker_runs() or live_plan(query.layout, query.name, query.plans.at(epoch)) is not None


@classic_spark()
def _computed_by_spark(
    history: QueryHistory, epoch: int, table: str, state: pa.Table, wanted: Sequence[int]
) -> pa.Table | None:
    """Return columns of a result at an epoch, beside the state's keys; None if Spark cannot compute them.

    ``state`` has the rows of the state table; ``wanted`` are the places of the columns in the result.
    """
    query = history.recorded
    query.entry(epoch)  # in the worker process, it has not been read yet
    planned = live_plan(query.layout, query.name, query.plans.at(epoch))
    if planned is None:
        return None
    # Only where Spark runs.
    from streamstate.snapshots.spark.fetching import to_arrow
    from streamstate.state_inspect.results.spark_result import SparkResult
    from streamstate.state_inspect.sql.spark_errors import spark_errors
    from streamstate.state_inspect.sql.user_data import spark_frame

    result = SparkResult(planned, result_plan(query, table, [epoch]), table)
    if result.why_not():
        return None
    keys = query.columns(table).key_columns
    values = [column for column in state.column_names if column not in keys]
    with spark_errors(), _as_then(query, planned.spark, epoch):
        rows = spark_frame(planned.spark, state)
        return to_arrow(result.beside_keys(rows, stored_keys(keys), values, wanted))


def _as_then(query: CapturedQuery, spark: SparkSession, epoch: int) -> AbstractContextManager[None]:
    """Within the block, what Spark runs sees the versions of shared variables that an epoch saw."""
    entry = query.known_entries.of(epoch)
    binding = None if entry is None else binding_in_manifest(entry.offsets)
    return seen_by(spark, epoch, binding)


def with_results(
    tables: tuple[IntervalTable, IntervalTable], plan: TablePlan, name: str, epoch: int
) -> tuple[IntervalTable, IntervalTable]:
    """As :func:`with_result`, of one table or two."""
    old, new = tables
    found = with_result(new, plan, name, epoch)
    return (found if old is new else with_result(old, plan, name, epoch)), found


def columns_of_result(table: IntervalTable, plan: TablePlan, name: str, epoch: int) -> ResultColumns:
    """Return the columns of a result as SQL over those of the state."""
    return result_columns(plan, _schema(table.schema, table.columns_at(epoch)), table.key_columns, name)


def _schema(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    return pa.schema([schema.field(column) for column in columns])


def _computed(query: CapturedQuery, plan: TablePlan, state: pa.Schema, keys: Sequence[str], name: str) -> ResultColumns:
    """As :func:`result_columns`; a view asks for the same ones at every drawing."""
    known = _known.setdefault(query.plans, {})
    found = known.get((name, str(state)))
    if found is None or found[0] is not plan:
        known[name, str(state)] = found = plan, result_columns(plan, state, keys, name)
    return found[1]


def _planned(query: CapturedQuery, epoch: int) -> dict[str, TablePlan]:
    plan = query.plans.at(epoch)
    if plan is None:
        first = query.plans.recorded()
        since = f" before epoch {first[0].since}" if first else ""
        raise NoResultError(
            f"The plan of {query.name} is not known{since}, so its result cannot be computed at epoch {epoch}.\n"
            f"Give it once: ss.open_store(store)[{query.name!r}].describe(build_query), where build_query() returns"
            f" the streaming "
            "DataFrame."
        )
    return dict(plan.tables)
