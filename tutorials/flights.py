"""Streaming queries over New York's departures of 2013.

Each function returns a streaming DataFrame over the files that :func:`prepare` wrote; start it like any other.
Together they use the common kinds of state: a keyed aggregate, a windowed one, the two sides of a join, and the value,
list, map and timer of ``transformWithState``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from streamstate.errors import InvalidArgumentError
from streamstate.tutorials.data import SCHEMAS, airlines, file_names, prepare

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming import StatefulProcessor

__all__ = ["airlines", "delays", "delays_daily", "flights", "prepare", "rotations", "weather", "weather_reports"]


def flights(
    spark: SparkSession, data: str | os.PathLike[str], *, files: int = 1, until: int | None = None
) -> DataFrame:
    """The departures as a stream.

    Args:
        spark: the session to read with.
        data: the directory that :func:`prepare` filled.
        files: how many files each epoch reads.
        until: how many files to read in all, in order of time; by default all.

    Raises:
        InvalidArgumentError: the directory was not filled by :func:`prepare`.
    """
    return _stream(spark, data, "flights", files, until)


def weather_reports(
    spark: SparkSession, data: str | os.PathLike[str], *, files: int = 1, until: int | None = None
) -> DataFrame:
    """The hourly weather of the three airports as a stream; the arguments are those of :func:`flights`."""
    return _stream(spark, data, "weather", files, until)


def delays(spark: SparkSession, data: str | os.PathLike[str], *, files: int = 1, until: int | None = None) -> DataFrame:
    """Departures, average delay and maximum delay per carrier and origin: a keyed aggregate, for update mode.

    The state keeps a sum and a count for the average.
    """
    return flights(spark, data, files=files, until=until).groupBy("carrier", "origin").agg(*_delay_figures())


def delays_daily(
    spark: SparkSession, data: str | os.PathLike[str], *, files: int = 1, until: int | None = None
) -> DataFrame:
    """The same figures per day: an aggregate over windows, which leave the state once the watermark has passed them.

    The watermark lets Spark drop days that have ended, whereas the totals of :func:`delays` never end. Days begin at
    midnight, New York's winter time (05:00 UTC); nothing departs in the hour after that.
    """
    from pyspark.sql import functions as F

    day = F.window("scheduled", "1 day", startTime="5 hours").alias("day")
    departures = flights(spark, data, files=files, until=until).withWatermark("scheduled", "1 day")
    return departures.groupBy(day, "carrier", "origin").agg(*_delay_figures())


def weather(
    spark: SparkSession, data: str | os.PathLike[str], *, files: int = 1, until: int | None = None
) -> DataFrame:
    """Each departure with the weather at its airport in that hour: a left outer join of two streams, for append mode.

    A departure waits in the state until the watermark rules out that its weather still arrives. Weather is missing for
    some hours, and for the whole last day of the year.
    """
    departures = (
        flights(spark, data, files=files, until=until)
        .select("time_hour", "origin", "scheduled", "carrier", "flight", "tailnum", "dest", "dep_delay")
        .withWatermark("time_hour", "6 hours")
    )
    reports = (
        weather_reports(spark, data, files=files, until=until)
        .select("time_hour", "origin", "temp", "wind_speed", "wind_gust", "precip", "visib")
        .withWatermark("time_hour", "6 hours")
    )
    return departures.join(reports, ["time_hour", "origin"], "leftOuter")


def rotations(
    spark: SparkSession,
    data: str | os.PathLike[str],
    *,
    files: int = 1,
    until: int | None = None,
    processor: StatefulProcessor | None = None,
) -> DataFrame:
    """Last airport, last five legs and visits per airport of each aircraft: ``transformWithState``, for update mode.

    Cancelled departures are left out; many of them had no aircraft yet, and so no tail number.
    :class:`streamstate.tutorials.rotations.Rotations` describes the state; pass another ``processor`` to try it.
    """
    from pyspark.sql import functions as F

    from streamstate.tutorials.rotations import INPUT, OUTPUT, Rotations

    departures = (
        flights(spark, data, files=files, until=until)
        .where("tailnum IS NOT NULL AND dep_delay IS NOT NULL")
        .withColumn("scheduled_ms", F.unix_millis("scheduled"))
        .withWatermark("scheduled", "6 hours")
        .select("scheduled", "tailnum", *INPUT)
    )
    return departures.groupBy("tailnum").transformWithState(
        processor or Rotations(), outputStructType=OUTPUT, outputMode="update", timeMode="eventTime"
    )


def _delay_figures() -> list[Column]:
    from pyspark.sql import functions as F

    return [
        F.count("*").alias("departures"),
        F.avg("dep_delay").alias("average_delay"),
        F.max("dep_delay").alias("maximum_delay"),
    ]


def _stream(spark: SparkSession, data: str | os.PathLike[str], name: str, files: int, until: int | None) -> DataFrame:
    folder = Path(data).resolve() / name
    names = file_names(data)
    if not names:
        raise InvalidArgumentError(
            f"{folder.parent} holds no prepared flights.\nWrite them with prepare({str(data)!r})."
        )
    reader = spark.readStream.schema(_ddl(SCHEMAS[name])).option("maxFilesPerTrigger", files)
    if until is not None:
        reader = reader.option("pathGlobFilter", f"{{{','.join(names[:until])}}}")
    return reader.parquet(str(folder))


def _ddl(schema: pa.Schema) -> str:
    """The schema as Spark writes it; a file source needs one."""
    types = {"timestamp[us, tz=UTC]": "timestamp", "int32": "int", "double": "double", "string": "string"}
    return ", ".join(f"{field.name} {types[str(field.type)]}" for field in schema)
