"""Spark's types as the column types that Delta, Arrow and every reader of them know.

| Spark | kept as |
|---|---|
| a string of any collation, char, varchar | string |
| day-time interval | bigint, microseconds |
| year-month interval | int, months |
| calendar interval, time of day | string, as Spark prints it |
| variant | string, its JSON |
| void inside a struct, array or map | boolean, always null |
| a struct that names two fields the same (case aside) | a struct whose later ones are ``name_2``, ``name_3``, … |

Everything else keeps its type. All of them are one to one, except that JSON does not tell a variant's number types
apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamstate.snapshots.errors import UnsupportedStateError
from streamstate.snapshots.names import unused

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

# Spark's names of the types that Delta and Arrow know as they are.
_KEPT = {
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "float",
    "double",
    "boolean",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
}


def native(column: Column, kind: DataType) -> Column:
    """The column in the type that the log keeps it in.

    Raises:
        UnsupportedStateError: where there is none for it.
    """
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    if is_kept(kind):
        return column
    if isinstance(kind, T.StructType):
        return _native_struct(column, kind)
    if isinstance(kind, T.ArrayType):
        return F.transform(column, lambda one: native(one, kind.elementType))
    if isinstance(kind, T.MapType):
        entry = F.transform(
            F.map_entries(column),
            lambda one: F.struct(native(one["key"], kind.keyType), native(one["value"], kind.valueType)),
        )
        return F.map_from_entries(entry)
    return _native_leaf(column, kind)


def _native_leaf(column: Column, kind: DataType) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    if isinstance(kind, (T.StringType, T.CharType, T.VarcharType, T.CalendarIntervalType, T.TimeType)):
        return column.cast(T.StringType())
    if isinstance(kind, T.DayTimeIntervalType):
        # Spark turns an interval of one field alone into a number; seconds keep the microseconds.
        seconds = column.cast(T.DayTimeIntervalType(3, 3)).cast(T.DecimalType(38, 6))
        return (seconds * F.lit(1_000_000)).cast("bigint")
    if isinstance(kind, T.YearMonthIntervalType):
        return column.cast(T.YearMonthIntervalType(1, 1)).cast("int")
    if isinstance(kind, T.VariantType):
        return F.to_json(column)
    if isinstance(kind, T.NullType):
        return column.cast("boolean")
    raise UnsupportedStateError(
        f"The state holds the type {kind.simpleString()}, for which the store has no column type.\n"
        "Cast it to a string, a number, a binary or a struct of these before the stateful operator."
    )


def _native_struct(column: Column, kind: StructType) -> Column:
    from pyspark.sql import functions as F

    names: list[str] = []
    fields = []
    for one, field in zip(kind.fields, by_position(column, kind), strict=True):
        names.append(unused(one.name, names))
        fields.append(native(field, one.dataType).alias(names[-1]))
    return F.when(column.isNotNull(), F.struct(*fields))


def by_position(column: Column, kind: StructType) -> list[Column]:
    """A struct's fields by their place, because Spark's own structs may name two fields the same."""
    from pyspark.sql.types import StructField, StructType

    names = [one.name for one in kind.fields]
    if len({name.casefold() for name in names}) == len(names):
        return [column.getField(name) for name in names]
    # Only where it must be: Spark plans a cast of structs for long.
    numbered = StructType([StructField(f"f{at}", one.dataType, one.nullable) for at, one in enumerate(kind.fields)])
    return [column.cast(numbered).getField(f"f{at}") for at in range(len(kind.fields))]


def is_kept(kind: DataType) -> bool:
    """Whether a type stays as it is, all that is nested in it included."""
    from pyspark.sql import types as T

    if isinstance(kind, T.StructType):
        names = [one.name.casefold() for one in kind.fields]
        return len(set(names)) == len(names) and all(is_kept(one.dataType) for one in kind.fields)
    if isinstance(kind, T.ArrayType):
        return is_kept(kind.elementType)
    if isinstance(kind, T.MapType):
        return is_kept(kind.keyType) and is_kept(kind.valueType)
    if isinstance(kind, T.DecimalType):
        return True
    return kind.simpleString() == "string" or kind.simpleString() in _KEPT
