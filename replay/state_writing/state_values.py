"""Values for edited columns of a state table: in the column's type, and back in the structs of Spark's state."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.types import DataType, NullType, StructType

from streamstate.errors import InvalidArgumentError, NaiveTimestampError, UnsupportedStateError
from streamstate.snapshots.checkpoint.state_tables import KEY_PARTS, NO_KEY, VALUE_PARTS, Columns
from streamstate.snapshots.store.canonical_rows import column_named
from streamstate.snapshots.store.native_types import by_position, is_kept

_MICROSECONDS = 1_000_000


def literal(value: Any, kind: DataType) -> Column:
    """Return a Python value as a Spark literal for a column of a type; a struct is a dict, an array a list."""
    if value is None:
        return F.lit(None).cast(kind)
    if isinstance(kind, T.StructType) and isinstance(value, Mapping):
        if {*value} != {*kind.names}:
            raise InvalidArgumentError(f"Invalid value {value!r}: expected exactly the fields {', '.join(kind.names)}.")
        return F.struct(*(literal(value[field.name], field.dataType).alias(field.name) for field in kind.fields))
    if isinstance(kind, T.ArrayType) and isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return F.array(*(literal(element, kind.elementType) for element in value)).cast(kind)
    if isinstance(kind, T.MapType) and isinstance(value, Mapping):
        pairs = [(literal(key, kind.keyType), literal(item, kind.valueType)) for key, item in value.items()]
        return F.create_map(*(part for pair in pairs for part in pair)).cast(kind)
    if isinstance(kind, T.TimestampType) and isinstance(value, datetime) and value.tzinfo is None:
        raise NaiveTimestampError(
            f"{value!r} has no time zone.\nPass an aware datetime, such as datetime(2026, 7, 1, tzinfo=UTC)."
        )
    if isinstance(value, (Mapping, list, tuple, set)):
        raise InvalidArgumentError(f"Invalid value {value!r}: expected {kind.simpleString()}.")
    return F.lit(value)


def fitted(value: Column, name: str, kind: DataType, frame: DataFrame) -> Column:
    """Return a value over a frame in a column's type; evaluating it fails if it does not fit, as 1.5 in a bigint."""
    given = frame.select(value.alias("value")).schema["value"].dataType
    if given.simpleString() == kind.simpleString() or isinstance(given, T.NullType):
        return value.cast(kind)
    if isinstance(given, T.NumericType) != isinstance(kind, T.NumericType) and not isinstance(given, T.StringType):
        raise InvalidArgumentError(
            f"Invalid value for {name}: expected {kind.simpleString()}, not {given.simpleString()}."
        )
    cast = value.cast(kind)
    if not isinstance(kind, T.NumericType):
        return cast
    same = cast.cast(T.DoubleType()).eqNullSafe(value.cast(T.DoubleType()))
    message = F.concat(value.cast("string"), F.lit(f" does not fit {name}, which is {kind.simpleString()}"))
    return F.when(same, cast).otherwise(F.raise_error(message))


def to_state_type(column: Column, kind: DataType) -> Column | None:
    """Return a column of a state table in the type that Spark's state uses; None if there is no way back to it."""
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


@dataclass(frozen=True)
class StateField:
    """A field of the state's structs, and the table's column that it becomes."""

    part: str
    kind: DataType
    name: str | None
    """None: of type void, which the table leaves out."""


def state_fields(schema: StructType, columns: Columns) -> Iterator[StateField]:
    """Yield the fields of the key and value structs, with their columns in the table."""
    names = iter([*(name for name in columns.spark_keys if name != NO_KEY), *columns.values])
    for part in (*KEY_PARTS, *VALUE_PARTS):
        if part not in schema.names:
            continue
        whole = schema[part].dataType
        for kind in [field.dataType for field in whole.fields] if isinstance(whole, StructType) else [whole]:
            yield StateField(part, kind, None if isinstance(kind, NullType) else next(names))


def struct_type(schema: StructType, name: str) -> StructType:
    """Return the type of a struct column."""
    kind = schema[name].dataType
    if not isinstance(kind, StructType):
        raise UnsupportedStateError(
            f"The state's {name} is a {kind.simpleString()}, not a struct: it cannot be written."
        )
    return kind


def rebuilt(
    whole: Column, kind: DataType, fields: Sequence[StateField], changed: Collection[str], existed: Column
) -> Column:
    """Return a column of the state reader from the table's columns; an existing row keeps unchanged fields.

    Args:
        whole: the original column, null in an added row.
        kind: its type.
        fields: its fields; one, if it is not a struct.
        changed: the columns of the table that have new values.
        existed: whether the original has the row.
    """
    if not isinstance(kind, StructType):
        return _rebuilt_field(whole, fields[0], changed, existed)
    members = zip(fields, kind.fields, by_position(whole, kind), strict=True)
    return F.struct(
        *(_rebuilt_field(before, field, changed, existed).alias(member.name) for field, member, before in members)
    )


def _rebuilt_field(before: Column, field: StateField, changed: Collection[str], existed: Column) -> Column:
    now = to_state_type(F.lit(None) if field.name is None else column_named(field.name), field.kind)
    if now is None:
        return before
    return now if field.name in changed else F.when(existed, before).otherwise(now)
