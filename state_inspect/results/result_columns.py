"""The columns of a result as SQL over a state table's columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from streamstate.errors import NoResultError
from streamstate.snapshots.changelog.arrow_types import arrow_type
from streamstate.snapshots.changelog.failures import UnsupportedChangelogError
from streamstate.snapshots.duckdb_sql import quoted
from streamstate.snapshots.names import unused
from streamstate.snapshots.operators import NO_KEY
from streamstate.snapshots.query_plans.plan_record import Expression, PlannedColumn, TablePlan
from streamstate.state_inspect.results.duckdb_expressions import UntranslatableError, in_duckdb, type_of

_WITH_SPARK = (
    'Where the query was started or described and Spark runs, ask with SQL: store.sql("FROM query.result",'
    ' engine="spark").'
)


@dataclass(frozen=True)
class ResultColumns:
    """What a result consists of, in the query's order.

    Attributes:
        schema: names and types of the columns.
        sql: for each column, SQL over the state's columns.
        where: conditions over the state's columns that a row has to meet.
        condition: why a condition cannot be computed here; empty if all can.
        keys: for each of the state's key columns, the column of the result that equals it, or a name that the result
            does not have.
        missing: for the columns that cannot be computed here, why.
    """

    schema: pa.Schema
    sql: tuple[str, ...]
    where: tuple[str, ...]
    keys: Mapping[str, str]
    missing: Mapping[str, str]
    condition: str = ""


SPARKS = "_spark"
"""What a column that Spark computes is called, before its number."""


def result_columns(
    plan: TablePlan, state: pa.Schema, keys: Sequence[str], table: str, *, filled: bool = False
) -> ResultColumns:
    """The result's columns for a state table with certain columns.

    A column that only Spark can compute is text that says so.

    Args:
        plan: the recorded plan.
        state: the columns that the table has at an epoch, with their types.
        keys: those of them that are key columns; they come first.
        table: the table's name, for errors.
        filled: whether a column that only Spark can compute is the column ``_spark<number>`` of a relation beside the
            state, which then has only rows that meet the conditions.

    Raises:
        NoResultError: the result cannot be computed here, or the plan is not one of this table.
    """
    values = [name for name in state.names if name not in keys]
    own_keys = [key for key in keys if key != NO_KEY]
    _check(plan.keys or (), own_keys, state, table, exactly=plan.keys is not None)
    _check(plan.values, values, state, table, exactly=False)
    if plan.needs_spark:
        raise NoResultError(f"The result of {table} cannot be computed here: {plan.needs_spark}.\n{_WITH_SPARK}")

    def column(tree: Expression) -> str:
        names = keys if tree["part"] == "key" else values
        at = int(tree["at"])
        if not 0 <= at < len(names):
            raise UntranslatableError("its record is damaged")
        return quoted(names[at])

    fields: list[pa.Field] = []
    sql: list[str] = []
    missing: dict[str, str] = {}
    for planned in plan.columns:
        name = unused(planned.name, [field.name for field in fields])
        try:
            fields.append(pa.field(name, arrow_type(planned.type)))
            computed = in_duckdb(planned.expression, column, ansi=plan.ansi)
            if arrow_type(type_of(planned.expression)) != fields[-1].type:
                raise UntranslatableError("its record is damaged")
            sql.append(computed)
        except (UntranslatableError, UnsupportedChangelogError) as error:
            missing[name] = str(error)
            if filled and len(fields) > len(sql) and isinstance(error, UntranslatableError):
                sql.append(f"{SPARKS}{len(sql)}")
                continue
            fields[len(sql) :] = [pa.field(name, pa.string())]
            sql.append("'" + str(error).replace("'", "''") + "'")
    condition = ""
    try:
        where = tuple(in_duckdb(condition, column, ansi=plan.ansi) for condition in plan.where)
    except UntranslatableError as error:
        condition, where = str(error), ()
    if condition and not filled:
        raise NoResultError(
            f"The result of {table} cannot be computed here: {condition}, in a condition on it.\n{_WITH_SPARK}"
        )
    return ResultColumns(pa.schema(fields), tuple(sql), where, _keys(plan, keys, fields), missing, condition)


def _keys(plan: TablePlan, keys: Sequence[str], fields: Sequence[pa.Field]) -> dict[str, str]:
    places: dict[tuple[str, str], str] = {}
    for planned, field in zip(plan.columns, fields, strict=True):
        tree = planned.expression
        if tree.get("is") == "State":
            places.setdefault((str(tree.get("part")), str(tree.get("at"))), field.name)
    taken = [field.name for field in fields]
    found: dict[str, str] = {}
    for at, key in enumerate(keys):
        same = plan.same[at] if at < len(plan.same) else None
        name = places.get(("key", str(at))) or places.get(("value", str(same)))
        if name is None or name in found.values():
            name = unused(key, [*taken, *found.values()])
        found[key] = name
    return found


def _check(
    planned: Sequence[PlannedColumn], names: Sequence[str], state: pa.Schema, table: str, *, exactly: bool
) -> None:
    """Raise unless a table has the columns that the plan says."""
    fits = len(names) == len(planned) if exactly else len(names) >= len(planned)
    if not fits or any(not _is_type(one, state.field(name).type) for one, name in zip(planned, names, strict=False)):
        wanted = ", ".join(
            f"{one.name} {one.type if isinstance(one.type, str) else one.type['type']}" for one in planned
        )
        raise NoResultError(
            f"The recorded plan does not fit {table}: it has {', '.join(names)}; the plan expects {wanted}.\n"
            "Give the plan of this query with streamstate.describe."
        )


def _is_type(planned: PlannedColumn, stored: pa.DataType) -> bool:
    try:
        expected = arrow_type(planned.type)
    except UnsupportedChangelogError:
        return True
    return str(expected) == str(stored) or (pa.types.is_nested(expected) and pa.types.is_nested(stored))
