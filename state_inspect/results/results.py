"""Which result a state table has at an epoch, and the table of its versions."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from streamstate.errors import NoResultError, choices
from streamstate.snapshots.query_plans.plan_record import TablePlan
from streamstate.state_inspect.recorded_query import RecordedQuery
from streamstate.state_inspect.results.result_columns import ResultColumns, result_columns
from streamstate.state_inspect.results.result_table import ResultTable
from streamstate.state_inspect.temporal_index.interval_table import IntervalTable

_TOP = "op0"


def table_of_result(query: RecordedQuery, table: str | None, tables: Sequence[str], epoch: int) -> str:
    """The state table that a result is computed from; by default that of the query's topmost operator.

    Raises:
        NoResultError: no plan is recorded, or that operator has several tables, or none whose columns differ.
    """
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


def result_plan(query: RecordedQuery, table: str, epochs: Sequence[int]) -> TablePlan:
    """The plan of a state table's result, which has to be the same at all of some epochs.

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


def with_result(table: IntervalTable, plan: TablePlan, name: str, epoch: int) -> ResultTable:
    """The versions of a result's rows, computed from the state's at and around an epoch.

    Raises:
        NoResultError: it cannot be computed without Spark.
    """
    return ResultTable(table, columns_of_result(table, plan, name, epoch))


def with_results(
    tables: tuple[IntervalTable, IntervalTable], plan: TablePlan, name: str, epoch: int
) -> tuple[IntervalTable, IntervalTable]:
    """As :func:`with_result`, of one table or two."""
    old, new = tables
    found = with_result(new, plan, name, epoch)
    return (found if old is new else with_result(old, plan, name, epoch)), found


def columns_of_result(table: IntervalTable, plan: TablePlan, name: str, epoch: int) -> ResultColumns:
    """The columns of a result as SQL over those of the state."""
    schema = pa.schema([table.schema.field(column) for column in table.columns_at(epoch)])
    return result_columns(plan, schema, table.key_columns, name)


def _planned(query: RecordedQuery, epoch: int) -> dict[str, TablePlan]:
    plan = query.plans.at(epoch)
    if plan is None:
        first = query.plans.recorded()
        since = f" before epoch {first[0].since}" if first else ""
        raise NoResultError(
            f"The plan of {query.name} is not known{since}, so its result cannot be computed at epoch {epoch}.\n"
            f"Give it once: ss.describe(store, {query.name!r}, build_query), where build_query() returns the streaming "
            "DataFrame."
        )
    return dict(plan.tables)
