"""Spark sessions and what passes between them and Arrow."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa

from streamstate.snapshots.errors import SessionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_UNSIGNED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}


def session_in_use(spark: SparkSession | None) -> SparkSession:
    """The session that was given, or the one that runs.

    Raises:
        SessionError: where there is none.
    """
    if spark is not None:
        return spark
    try:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise SessionError("Spark is not installed: pip install pyspark") from error
    # getActiveSession() is per thread and says None in others than the one that started Spark.
    if SparkContext._active_spark_context is None:
        raise SessionError("No Spark session is running.\nStart one with streamstate.session(), or give spark=….")
    return SparkSession.builder.getOrCreate()


def frame_of(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Rows as a Spark frame; two columns of one name stay two."""
    plain = rows.rename_columns([f"c{at}" for at in range(rows.num_columns)])
    plain = plain.cast(pa.schema([field.with_type(_spark_type(field.type)) for field in plain.schema]))
    return spark.createDataFrame(plain).toDF(*rows.column_names)


def _spark_type(kind: pa.DataType) -> pa.DataType:
    """The type that Spark has for another's values."""
    if pa.types.is_dictionary(kind):
        return _spark_type(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    return _UNSIGNED.get(kind, kind)


def plain_path(path: str) -> str:
    """A path as Spark's readers take it, in which no character stands for others."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", path)
