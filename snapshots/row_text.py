"""A row of state as text: two rows have one text where, and only where, they hold the same values.

``to_json`` alone would not do: it keeps milliseconds of a timestamp, replaces bytes that are no UTF-8, turns the
keys of a map into one string each, and leaves out what is null.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, MapType, StructType

__all__ = ["row_text", "text_digest"]

_PIECE = 0xFFFFFFFF


def row_text(schema: StructType, names: Iterable[str] | None = None) -> Column:
    """Some columns of a frame, all without ``names``, as one text.

    A map is the same in any order of its entries, an array in its own order only. The two zeros of IEEE 754 differ,
    NaN is NaN. The session's time zone has to be UTC, so that no two moments print the same.

    Args:
        schema: of the frame, in the types of :func:`streamstate.snapshots.native_types.native`.
        names: of the columns.
    """
    from pyspark.sql import functions as F

    chosen = set(schema.names if names is None else names)
    fields = [
        _told(F.col(_quoted(one.name)), one.dataType).alias(one.name) for one in schema.fields if one.name in chosen
    ]
    return _json(F.struct(*fields))


def text_digest(text: Column) -> list[Column]:
    """Aggregates over rows that are equal where the rows are, in whatever order they come.

    The number of rows, and the sums of two 64-bit hashes of each row's text, in halves that cannot overflow. Rows
    that differ have the same digest with a chance of 1 in 2^128 for hashes that spread evenly.
    """
    from pyspark.sql import functions as F

    sums: list[Column] = []
    for hashed in (F.xxhash64(text), F.xxhash64(F.lit("streamstate"), text)):
        sums += [F.sum(hashed.bitwiseAND(F.lit(_PIECE))), F.sum(F.shiftrightunsigned(hashed, 32))]
    return [F.count("*").alias("rows"), *(one.alias(f"sum{at}") for at, one in enumerate(sums))]


def _json(column: Column) -> Column:
    from pyspark.sql import functions as F

    return F.to_json(column, {"ignoreNullFields": "false"})


def _told(column: Column, kind: DataType) -> Column:
    """A value in a form of which JSON loses nothing."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    if isinstance(kind, T.StringType):
        return F.when(F.is_valid_utf8(column), column).otherwise(F.concat(F.lit("\0"), F.hex(column)))
    if isinstance(kind, (T.TimestampType, T.TimestampNTZType, T.DateType)):
        return column.cast(T.StringType())
    if isinstance(kind, T.ArrayType):
        return F.transform(column, lambda one: _told(one, kind.elementType))
    if isinstance(kind, T.MapType):
        return _told_map(column, kind)
    if isinstance(kind, T.StructType):
        fields = [_told(column.getField(one.name), one.dataType).alias(one.name) for one in kind.fields]
        return F.when(column.isNotNull(), F.struct(*fields))
    return column


def _told_map(column: Column, kind: MapType) -> Column:
    from pyspark.sql import functions as F

    entries = F.transform(
        F.map_entries(column),
        lambda one: _json(
            F.struct(
                _told(one["key"], kind.keyType).alias("key"),
                _told(one["value"], kind.valueType).alias("value"),
            )
        ),
    )
    return F.array_sort(entries)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
