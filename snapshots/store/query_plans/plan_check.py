"""A check that a plan is that of a captured query: the same operators, and the same state columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

import pyarrow as pa

from streamstate.errors import QueryError
from streamstate.snapshots.checkpoint.decoding.arrow_types import arrow_type
from streamstate.snapshots.checkpoint.decoding.table_format import SparkType
from streamstate.snapshots.checkpoint.operators import operator_number
from streamstate.snapshots.store.changelog import key_columns, operator_of, value_columns
from streamstate.snapshots.store.delta.commits import required
from streamstate.snapshots.store.delta.reading import TableVersion
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.manifest import Manifest
from streamstate.snapshots.store.query_plans.query_plan import OperatorPlan, QueryPlan

# Operators with two names: real-time mode has its own aggregation, and Spark before 4.0 recorded no names.
_SAME_STATE = {"StatefulStreamlineAggregate": "stateStoreSave", "flatMapGroupsWithState": "applyInPandasWithState"}


def check_describes(layout: Layout, name: str, plan: QueryPlan, since: int) -> None:
    """Raise a QueryError unless a plan has the stateful operators of a query, and the columns of their state."""
    schemas = _captured(layout, name, since)
    if not schemas:
        return
    operators = plan.operators or ()
    _check_operators(name, operators, schemas)
    for table, schema in schemas.items():
        planned = plan.tables.get(table)
        if planned is None:
            _check_columns(name, table, schema, operators[operator_number(table)].keys, key_columns(schema))
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
