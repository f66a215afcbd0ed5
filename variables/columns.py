"""A shared variable in native expressions and in SQL: a scalar subquery, which Spark computes once per epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from streamstate.errors import InvalidArgumentError, InvalidSQLError
from streamstate.snapshots.spark.session import session_in_use
from streamstate.variables.declaring import declared_variable
from streamstate.variables.shared_variable import SharedVariable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, SparkSession

_FUNCTION = "shared"


def shared_column(variable: str | SharedVariable, store: str | None = None) -> Column:
    """Return a shared variable as a column: ``flights.where(F.col("delay") > ss.shared_column(limit))``.

    Spark computes it once per epoch, as a scalar subquery, and compiles the expression that uses it as with a literal.

    Args:
        variable: the variable, or its name.
        store: the store, if a name is given.

    Raises:
        InvalidArgumentError: a name without a store.
        UnknownVariableError: the store has no such variable.
    """
    if isinstance(variable, SharedVariable):
        return _scalar(variable)
    if store is None:
        raise InvalidArgumentError(
            f"In which store is {variable!r}?\nPass the variable itself, ss.shared_column({variable}), or store=…."
        )
    return _scalar(declared_variable(store, variable))


def _scalar(variable: SharedVariable) -> Column:
    column: Column = _one_row(session_in_use(None), variable).scalar()
    return column


def _one_row(spark: SparkSession, variable: SharedVariable) -> Any:
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_type

    arrow = variable.declaration.type.arrow
    # One small task, without the cost of Arrow for one value.
    read = F.udf(lambda: _as_spark(variable.get()), from_arrow_type(arrow), useArrow=False)
    return spark.range(0, 1, 1, 1).select(read().alias("value"))


def _as_spark(value: Any) -> Any:
    """Return a value as a Python UDF returns it."""
    from types import MappingProxyType

    if isinstance(value, MappingProxyType):
        return dict(value)
    return list(value) if isinstance(value, frozenset) else value


def with_variables_in_sql(sql: str, spark: SparkSession, variables: Mapping[str, SharedVariable]) -> str:
    """Spark SQL in which each ``shared('limit')`` is a scalar subquery over a temporary view.

    Raises:
        InvalidSQLError: it names a variable that the query is not started with.
    """
    import sqlglot
    from sqlglot.errors import SqlglotError

    if _FUNCTION not in sql.casefold():
        return sql
    try:
        tree = sqlglot.parse_one(sql, read="spark")
    except SqlglotError:
        return sql  # Spark says what is wrong with it
    calls = [call for call in tree.find_all(exp.Anonymous) if call.name.casefold() == _FUNCTION]
    for call in calls:
        name = call.expressions[0].name if len(call.expressions) == 1 else ""
        if name not in variables:
            known = ", ".join(variables) or "none"
            raise InvalidSQLError(
                f"shared({name!r}) is not bound to this query, whose variables are: {known}.\nAdd it to --shared."
            )
        view = f"streamstate_shared_{name}"
        _one_row(spark, variables[name]).createOrReplaceTempView(view)
        call.replace(exp.select("value").from_(exp.to_identifier(view)).subquery())
    return tree.sql(dialect="spark") if calls else sql
