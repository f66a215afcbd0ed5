"""Column types for Spark's types, which Delta, Arrow and all their readers know.

| Spark | stored as |
|---|---|
| a string of any collation, char, varchar | string |
| day-time interval | bigint, microseconds |
| year-month interval | int, months |
| calendar interval, time of day | string, as Spark prints it |
| variant | string, its JSON |
| void inside a struct, array or map | boolean, always null |
| a struct that names two fields the same (case aside) | a struct whose later ones are ``name_2``, ``name_3``, … |

Other types stay the same. The mapping loses nothing, except that JSON does not distinguish a variant's number types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamstate.errors import UnsupportedStateError
from streamstate.snapshots.store.names import unused

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType


def native(column: Column, kind: DataType) -> Column:
    """Return the column in the type that the log stores."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    if is_kept(kind):
        return column
    if isinstance(kind, T.StructType):
        return _native_struct(column, kind)
    if isinstance(kind, T.ArrayType):
        return F.transform(column, lambda element: native(element, kind.elementType))
    if isinstance(kind, T.MapType):
        entries = F.transform(
            F.map_entries(column),
            lambda entry: F.struct(native(entry["key"], kind.keyType), native(entry["value"], kind.valueType)),
        )
        return F.map_from_entries(entries)
    return _native_leaf(column, kind)


def _native_leaf(column: Column, kind: DataType) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    if isinstance(kind, (T.StringType, T.CharType, T.VarcharType, T.CalendarIntervalType, T.TimeType)):
        return column.cast(T.StringType())
    if isinstance(kind, T.DayTimeIntervalType):
        # Spark only casts an interval of a single field to a number; seconds keep the microseconds.
        seconds = column.cast(T.DayTimeIntervalType(3, 3)).cast(T.DecimalType(38, 6))
        return (seconds * F.lit(1_000_000)).cast("bigint")
    if isinstance(kind, T.YearMonthIntervalType):
        return column.cast(T.YearMonthIntervalType(1, 1)).cast("int")
    if isinstance(kind, T.VariantType):
        return F.to_json(column)
    if isinstance(kind, T.NullType):
        return column.cast("boolean")
    raise UnsupportedStateError(
        f"The state has a column of type {kind.simpleString()}, which the store cannot represent.\n"
        "Before the stateful operator, cast it to a string, a number, a binary or a struct of these."
    )


def _native_struct(column: Column, kind: StructType) -> Column:
    from pyspark.sql import functions as F

    names: list[str] = []
    fields = []
    for field, value in zip(kind.fields, by_position(column, kind), strict=True):
        names.append(unused(field.name, names))
        fields.append(native(value, field.dataType).alias(names[-1]))
    return F.when(column.isNotNull(), F.struct(*fields))


def by_position(column: Column, kind: StructType) -> list[Column]:
    """Return a struct's fields by position: Spark's own structs may have two fields of the same name."""
    from pyspark.sql.types import StructField, StructType

    names = [field.name for field in kind.fields]
    if len({name.casefold() for name in names}) == len(names):
        return [column.getField(name) for name in names]
    # Only if necessary: Spark takes long to plan a cast of structs.
    fields = [StructField(f"f{at}", field.dataType, field.nullable) for at, field in enumerate(kind.fields)]
    return [column.cast(StructType(fields)).getField(f"f{at}") for at in range(len(kind.fields))]


def is_kept(kind: DataType) -> bool:
    """Return whether a type, with everything nested in it, stays the same."""
    from pyspark.sql import types as T

    if isinstance(kind, T.StructType):
        names = [field.name.casefold() for field in kind.fields]
        return len(set(names)) == len(names) and all(is_kept(field.dataType) for field in kind.fields)
    if isinstance(kind, T.ArrayType):
        return is_kept(kind.elementType)
    if isinstance(kind, T.MapType):
        return is_kept(kind.keyType) and is_kept(kind.valueType)
    shared = (T.NumericType, T.BooleanType, T.BinaryType, T.DateType, T.TimestampType, T.TimestampNTZType)
    return isinstance(kind, shared) or kind.simpleString() == "string"  # other collations have longer names
