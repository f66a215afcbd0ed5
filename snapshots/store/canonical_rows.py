"""A row of state as canonical text: two rows have the same text exactly if they hold the same values.

``to_json`` alone is not enough: it truncates timestamps to milliseconds, replaces invalid UTF-8, turns a map's keys
into strings and leaves out nulls.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, MapType, StructType

_PIECE = 0xFFFFFFFF


def canonical_text(schema: StructType, names: Iterable[str] | None = None) -> Column:
    """Return some columns of a frame (all, without ``names``) in the types of ``native_types`` as one canonical text.

    The order of a map's entries does not matter, that of an array's elements does. The two zeros of IEEE 754 differ,
    and NaN equals NaN. The session's time zone has to be UTC, so that no two timestamps print the same.
    """
    from pyspark.sql import functions as F

    chosen = set(schema.names if names is None else names)
    fields = [
        _lossless(column_named(field.name), field.dataType).alias(field.name)
        for field in schema.fields
        if field.name in chosen
    ]
    return _json(F.struct(*fields))


def text_digest(text: Column) -> list[Column]:
    """Aggregates that are equal for equal sets of rows, in whatever order the rows come.

    They are the number of rows and the sums of two 64-bit hashes of each row's text, in halves that cannot overflow.
    Different sets have the same digest with a chance of 1 in 2^128, if the hashes are uniform.
    """
    from pyspark.sql import functions as F

    sums: list[Column] = []
    for hashed in (F.xxhash64(text), F.xxhash64(F.lit("streamstate"), text)):
        sums += [F.sum(hashed.bitwiseAND(F.lit(_PIECE))), F.sum(F.shiftrightunsigned(hashed, 32))]
    return [F.count("*").alias("rows"), *(column.alias(f"sum{at}") for at, column in enumerate(sums))]


def _json(column: Column) -> Column:
    from pyspark.sql import functions as F

    return F.to_json(column, {"ignoreNullFields": "false"})


def _lossless(column: Column, kind: DataType) -> Column:
    """Return a value in a form that JSON keeps exactly."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    if isinstance(kind, T.StringType):
        return F.when(F.is_valid_utf8(column), column).otherwise(F.concat(F.lit("\0"), F.hex(column)))
    if isinstance(kind, (T.TimestampType, T.TimestampNTZType, T.DateType)):
        return column.cast(T.StringType())
    if isinstance(kind, T.ArrayType):
        return F.transform(column, lambda element: _lossless(element, kind.elementType))
    if isinstance(kind, T.MapType):
        return _lossless_map(column, kind)
    if isinstance(kind, T.StructType):
        fields = [_lossless(column.getField(field.name), field.dataType).alias(field.name) for field in kind.fields]
        return F.when(column.isNotNull(), F.struct(*fields))
    return column


def _lossless_map(column: Column, kind: MapType) -> Column:
    from pyspark.sql import functions as F

    entries = F.transform(
        F.map_entries(column),
        lambda entry: _json(
            F.struct(
                _lossless(entry["key"], kind.keyType).alias("key"),
                _lossless(entry["value"], kind.valueType).alias("value"),
            )
        ),
    )
    return F.array_sort(entries)


def column_named(name: str) -> Column:
    """Return a column by its exact name, whatever characters it has."""
    from pyspark.sql import functions as F

    return F.col("`" + name.replace("`", "``") + "`")
