"""A row of state as canonical text: two rows have the same text exactly if they hold the same values.

``to_json`` alone is not enough: it truncates timestamps to milliseconds, replaces invalid UTF-8, turns a map's keys
into strings and leaves out nulls.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, MapType, StructField, StructType

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


def row_hashes(schema: StructType, names: Iterable[str]) -> list[Column]:
    """Return two 64-bit hashes of a row's columns, equal for rows with the same canonical text.

    Numbers, times, strings and bytes are hashed as they are, which takes a fraction of the time that text takes.
    """
    from pyspark.sql import functions as F

    chosen = set(names)
    values = [part for field in schema.fields if field.name in chosen for part in _hashable(field)]
    return [F.xxhash64(F.lit(seed), *values) for seed in ("", "streamstate")]


def digest(hashes: Iterable[Column]) -> list[Column]:
    """Aggregates of rows' hashes that are equal for equal sets of rows, in whatever order the rows come.

    They are the number of rows and the sum of each hash, in halves that cannot overflow. With two 64-bit hashes,
    different sets have the same digest with a chance of 1 in 2^128, if the hashes are uniform.
    """
    from pyspark.sql import functions as F

    sums = [half for hashed in hashes for half in (hashed.bitwiseAND(F.lit(_PIECE)), F.shiftrightunsigned(hashed, 32))]
    return [F.count("*").alias("rows"), *(F.sum(half).alias(f"sum{at}") for at, half in enumerate(sums))]


def _hashable(field: StructField) -> list[Column]:
    """Return what Spark's hash has to take in of a column: it passes over nulls, and does not tell the two zeros."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    column, kind = column_named(field.name), field.dataType
    if isinstance(kind, T.StringType):
        return [column.cast("binary"), column.isNull()]  # some collations would hash different strings alike
    if isinstance(kind, (T.FloatType, T.DoubleType)):
        return [column, column.isNull(), (column == F.lit(0)) & column.cast("string").startswith("-")]
    if isinstance(kind, (T.IntegralType, T.BooleanType, T.BinaryType, T.DateType, T.TimestampType, T.TimestampNTZType)):
        return [column, column.isNull()]
    return [_json(F.struct(_lossless(column, kind).alias("value")))]


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
