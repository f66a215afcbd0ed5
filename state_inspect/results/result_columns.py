"""The columns of a result as SQL over a state table's columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import duckdb
import pyarrow as pa

from streamstate.errors import NoResultError
from streamstate.snapshots.checkpoint.decoding.arrow_types import arrow_type
from streamstate.snapshots.checkpoint.decoding.failures import UnsupportedChangelogError
from streamstate.snapshots.checkpoint.decoding.state_table_format import SparkType
from streamstate.snapshots.checkpoint.state_tables import NO_KEY
from streamstate.snapshots.store.duckdb_sql import quoted
from streamstate.snapshots.store.names import distinct, unused
from streamstate.snapshots.store.query_plans.query_plan import Expression, PlannedColumn, TablePlan
from streamstate.state_inspect.results.duckdb_expressions import StateColumn, UntranslatableError, in_duckdb, named
from streamstate.state_inspect.sql.statement_policy import parser

_WITH_SPARK = (
    'Where the query was started or described and Spark runs, ask with SQL: store.sql("FROM query.result",'
    ' engine="spark").'
)

_DAMAGED = "its record is damaged"
_MOST_COLUMNS = 2_000
"""Columns and conditions of a result."""
_MOST_SQL = 60_000
"""Characters of all its expressions."""
_MOST_TEXTS, _TEXTS_OF_A_COLUMN = 100, 4
"""The most texts that a row of a result copies, and how many more for each column of the state."""


@dataclass(frozen=True)
class ResultColumns:
    """The columns and conditions of a result, in the query's order.

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
"""The name, before its number, of a column that Spark computes."""


def result_columns(
    plan: TablePlan, state: pa.Schema, keys: Sequence[str], table: str, *, filled: bool = False
) -> ResultColumns:
    """Return the result's columns for a state table with certain columns.

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
    needs_spark = plan.needs_spark
    if (parts := len(plan.columns) + len(plan.where)) > _MOST_COLUMNS:
        needs_spark = f"it has {parts:,} columns and conditions; at most {_MOST_COLUMNS:,} are computed here"
    if needs_spark:
        raise NoResultError(f"The result of {table} cannot be computed here: {needs_spark}.\n{_WITH_SPARK}")

    def column(tree: Expression) -> str:
        names = keys if tree["part"] == "key" else values
        at = int(tree["at"])
        if not 0 <= at < len(names) or not _is_type(tree["type"], state.field(names[at]).type):
            raise UntranslatableError(_DAMAGED)
        return quoted(names[at])

    translated = _Translated(state, column, ansi=plan.ansi)
    fields: list[pa.Field] = []
    sql: list[str] = []
    missing: dict[str, str] = {}
    for name, planned in zip(distinct(planned.name for planned in plan.columns), plan.columns, strict=True):
        try:
            fields.append(pa.field(name, _arrow_type(planned.type)))
            sql.append(translated.sql(planned.expression, fields[-1].type))
        except (UntranslatableError, UnsupportedChangelogError) as error:
            missing[name] = str(error)
            if filled and len(fields) > len(sql) and isinstance(error, UntranslatableError):
                sql.append(f"{SPARKS}{len(sql)}")
                continue
            fields[len(sql) :] = [pa.field(name, pa.string())]
            sql.append("'" + str(error).replace("'", "''") + "'")
    condition = ""
    try:
        where = tuple(translated.sql(condition, pa.bool_()) for condition in plan.where)
    except UntranslatableError as error:
        condition, where = str(error), ()
    if condition and not filled:
        raise NoResultError(
            f"The result of {table} cannot be computed here: {condition}, in a condition on it.\n{_WITH_SPARK}"
        )
    return ResultColumns(pa.schema(fields), tuple(sql), where, _keys(plan, keys, fields), missing, condition)


class _Translated:
    """Expressions of a result in DuckDB's SQL, which together have limits: a record may come from a stranger."""

    def __init__(self, state: pa.Schema, column: StateColumn, *, ansi: bool) -> None:
        self._state = state
        self._column = column
        self._ansi = ansi
        self._left = _MOST_SQL
        self._texts_left = _MOST_TEXTS + _TEXTS_OF_A_COLUMN * len(state)

    def sql(self, tree: Expression, kind: pa.DataType) -> str:
        """Return an expression of a type.

        Raises:
            UntranslatableError: it needs Spark, exceeds what is left of a limit, or is not of the type.
        """
        made, found = in_duckdb(tree, self._column, ansi=self._ansi)
        if _arrow_type(found) != kind:
            raise UntranslatableError(_DAMAGED)
        if tree.get("is") != "State":
            self._check_bound(made, kind)
        texts = 0 if pa.types.is_primitive(kind) else _texts(tree)
        if len(made) > self._left or texts > self._texts_left:
            raise UntranslatableError("the result's expressions are too long together")
        self._left -= len(made)
        self._texts_left -= texts
        return made

    def _check_bound(self, sql: str, kind: pa.DataType) -> None:
        """Raise unless DuckDB accepts an expression, and gives it the type that the record says."""
        found = _bound_type(sql, self._state)
        if found is None or (found != kind and not (pa.types.is_nested(kind) and pa.types.is_nested(found))):
            raise UntranslatableError(_DAMAGED)


@lru_cache(maxsize=1_000)
def _bound_type(sql: str, state: pa.Schema) -> pa.DataType | None:
    """Return the type that DuckDB gives an expression over columns; None if it does not accept it."""
    with parser().cursor() as cursor:
        cursor.register("state", state.empty_table())
        try:
            return cursor.sql(f"SELECT {sql} AS made FROM state").to_arrow_table().schema.field("made").type
        except duckdb.Error:
            return None


def _texts(tree: Expression) -> int:
    """Return how many texts and nested values an expression may copy."""
    arguments = tree.get("of", ())
    if arguments:
        return sum(map(_texts, arguments))
    return int(not isinstance(tree.get("type"), str) or tree["type"] in ("string", "binary"))


def _arrow_type(kind: SparkType) -> pa.DataType:
    try:
        return arrow_type(kind)
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError):
        raise UntranslatableError(_DAMAGED) from None


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
    types = zip(planned, names, strict=False)
    if not fits or any(not _is_type(column.type, state.field(name).type) for column, name in types):
        wanted = ", ".join(f"{column.name} {named(column.type)}" for column in planned)
        raise NoResultError(
            f"The recorded plan does not fit {table}: it has {', '.join(names)}; the plan expects {wanted}.\n"
            "Record the query's plan again: history.describe(build_query)."
        )


def _is_type(planned: SparkType, stored: pa.DataType) -> bool:
    try:
        expected = _arrow_type(planned)
    except (UnsupportedChangelogError, UntranslatableError):
        return True
    return str(expected) == str(stored) or (pa.types.is_nested(expected) and pa.types.is_nested(stored))
