"""New values for columns of a state: from Python or SQL, in the type of the column, and back into Spark's own types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.errors import InvalidArgumentError, NaiveTimestampError
from streamstate.snapshots.native_types import is_kept

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

__all__ = ["back", "fitted", "literal"]

_MICROSECONDS = 1_000_000


def literal(value: Any, kind: DataType) -> Column:
    """A Python value as Spark's, for a column of a type; a struct is a dict, a list an array.

    Raises:
        InvalidArgumentError: where the value is nothing of the sort.
    """
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    if value is None:
        return F.lit(None).cast(kind)
    if isinstance(kind, T.StructType) and isinstance(value, Mapping):
        if {*value} != {*kind.names}:
            raise InvalidArgumentError(f"{value!r} needs the fields {', '.join(kind.names)}, and no others.")
        return F.struct(*(literal(value[one.name], one.dataType).alias(one.name) for one in kind.fields))
    if isinstance(kind, T.ArrayType) and isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return F.array(*(literal(one, kind.elementType) for one in value)).cast(kind)
    if isinstance(kind, T.MapType) and isinstance(value, Mapping):
        pairs = [(literal(key, kind.keyType), literal(one, kind.valueType)) for key, one in value.items()]
        return F.create_map(*(part for pair in pairs for part in pair)).cast(kind)
    if isinstance(kind, T.TimestampType) and isinstance(value, datetime) and value.tzinfo is None:
        raise NaiveTimestampError(f"{value!r} has no time zone.\nGive one, as in datetime(2026, 7, 1, tzinfo=UTC).")
    if isinstance(value, (Mapping, list, tuple, set)):
        raise InvalidArgumentError(f"{value!r} is no {kind.simpleString()}.")
    return F.lit(value)


def fitted(value: Column, name: str, kind: DataType, frame: DataFrame) -> Column:
    """A value in the type of a column, or an error in Spark where it does not fit: 1.5 is no bigint.

    Args:
        value: an expression over the frame.
        name: the column's.
        kind: the column's type.
        frame: what the expression is evaluated over.
    """
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    given = frame.select(value.alias("value")).schema["value"].dataType
    if given.simpleString() == kind.simpleString() or isinstance(given, T.NullType):
        return value.cast(kind)
    if isinstance(given, T.NumericType) != isinstance(kind, T.NumericType) and not isinstance(given, T.StringType):
        raise InvalidArgumentError(f"A {given.simpleString()} is no value for {name}, which is {kind.simpleString()}.")
    cast = value.cast(kind)
    if not isinstance(kind, T.NumericType):
        return cast
    same = cast.cast(T.DoubleType()).eqNullSafe(value.cast(T.DoubleType()))
    message = F.concat(value.cast("string"), F.lit(f" does not fit {name}, which is {kind.simpleString()}"))
    return F.when(same, cast).otherwise(F.raise_error(message))


def back(column: Column, kind: DataType) -> Column | None:
    """A column of a state table as the type that Spark's state has there; None where that is not known."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    if isinstance(kind, T.NullType):
        return F.lit(None)
    if isinstance(kind, (T.StringType, T.CharType, T.VarcharType)):
        return column.cast(kind)
    if isinstance(kind, T.DayTimeIntervalType):
        seconds = (column.cast(T.DecimalType(38, 6)) / F.lit(_MICROSECONDS)).cast(T.DecimalType(18, 6))
        return F.make_dt_interval(F.lit(0), F.lit(0), F.lit(0), seconds).cast(kind)
    if isinstance(kind, T.YearMonthIntervalType):
        return F.make_ym_interval(F.lit(0), column).cast(kind)
    return column.cast(kind) if is_kept(kind) else None
