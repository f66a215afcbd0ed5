"""Shedding rows of a stream: :func:`shed`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from streamstate.errors import InvalidArgumentError, QueryError, SparkVersionError, UnknownColumnError
from streamstate.snapshots.spark.catalyst import keeps_state
from streamstate.snapshots.spark.connect import require_classic
from streamstate.snapshots.store.epoch_load import SHED
from streamstate.variables.shedding.bound_level import sheds_in
from streamstate.variables.shedding.level import ALL, MOST
from streamstate.variables.shedding.level_in_tasks import NATIVE, LevelReader

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_SHARE, _INTERVAL, _KEPT = (f"_streamstate_shed_{name}" for name in ("share", "interval", "kept"))
_WHOLE = -1
"""The interval of rows whose id is null."""
_NAME = re.compile(r"[A-Za-z0-9_]+")


def shed(
    frame: DataFrame,
    id: str | Sequence[str] = "event_id",  # noqa: A002 (the field's word)
    value: str | None = None,
    weight: str | None = None,
    *,
    name: str | None = None,
) -> DataFrame:
    """Drop rows of a stream, by a level that is fixed within each epoch; at first every row is kept.

    The level is a shared variable of the query's store, ``<query>_shed``, which :func:`start` and ``%%stream`` declare
    and bind: ``ss.shared(store, "delays_shed").set(level_for("delay > 60", 0.25))``. A replay, a fork and an audit drop
    the rows that the original dropped. A query that Spark starts (``writeStream``) keeps everything.

    A row is kept if ``pmod(xxhash64(id), 10000)`` is below the share of its interval of values. Rows with one id are
    kept or dropped together, and what a level keeps, each higher level keeps too. A row whose id is null is kept.

    Each epoch's progress counts the rows, as the observed metrics ``streamstate_shed``. Call this before anything that
    keeps state, and after ``withWatermark``, so that the rows that are dropped move the watermark too.

    Args:
        frame: the streaming DataFrame.
        id: the column, or columns, whose values are different for each event. A row with a null in one of them is kept.
        value: a column of numbers whose intervals are kept by different shares. Null and not-a-number are in no
            interval. Spark compares it as a double-precision number.
        weight: the name of a column for the weight of each kept row: 10000 / share, and 1 for rows that are always
            kept. If the column exists, its values are multiplied.
        name: tells the counts of several sheds in a query apart, such as of the two sides of a join; they are then
            ``streamstate_shed_<name>``. All have the same level.

    Returns:
        The frame without the rows that are dropped.

    Raises:
        QueryError: the frame is a batch, keeps state already, or sheds already.
        UnknownColumnError: a column does not exist.
        InvalidArgumentError: a column has an unfit type, or the name is invalid.
        SparkVersionError: Spark is older than 4.0.
        SparkConnectError: the frame is of Spark Connect.

    Example:
        >>> kept = ss.shed(flights, id=["user", "scheduled"], value="delay", weight="w")
        >>> kept.columns[-1]
        'w'
    """
    _check_frame(frame)
    ids = [id] if isinstance(id, str) else list(id)
    if not ids:
        raise InvalidArgumentError("Invalid id=[]: expected a column, or several, whose values tell events apart.")
    if name is not None and not _NAME.fullmatch(name):
        raise InvalidArgumentError(f"Invalid name {name!r}: expected letters, digits and '_', such as 'left'.")
    _check_columns(frame, ids, value, weight)
    level = _level(frame)
    shares = _with_shares(frame, level, ids, value)
    kept = shares.observe(SHED if name is None else f"{SHED}_{name}", *_counts(level, value)).where(_KEPT)
    if weight is not None:
        kept = _weighted(kept, weight, exists=_has(frame, weight))
    return kept.drop(_SHARE, _INTERVAL, _KEPT)


def _check_frame(frame: DataFrame) -> None:
    from pyspark.sql import DataFrame

    require_classic(frame)
    given: Any = frame
    if not (isinstance(given, DataFrame) and given.isStreaming):
        what = "a batch DataFrame" if isinstance(given, DataFrame) else f"a value of type {type(given).__name__}"
        raise QueryError(
            f"ss.shed drops rows of a stream, and this is {what}.\nStart from spark.readStream; in a batch, use"
            " frame.sample(fraction)."
        )
    if not hasattr(frame, "scalar"):
        from pyspark import __version__

        raise SparkVersionError.needs("ss.shed", "4.0", __version__, "Run the query with a later version of Spark.")
    if keeps_state(frame):
        raise QueryError(
            "ss.shed is above an operator that keeps state (an aggregation, a join of streams, a deduplication, …):\n"
            "dropping its output would change what the state means, and would not make the operator cheaper. Shed its"
            " input instead: ss.shed(source, …).groupBy(…)."
        )
    if sheds_in(frame):
        raise QueryError(
            "This frame sheds already, and a second ss.shed would keep and drop the same rows by the same hash.\nUse"
            " one ss.shed for each source; those of several sources get names: ss.shed(right, …, name='right')."
        )


def _check_columns(frame: DataFrame, ids: Sequence[str], value: str | None, weight: str | None) -> None:
    """Raise unless all columns exist and have fitting types."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    for column in (*ids, *(() if value is None else (value,))):
        if not _has(frame, column):
            raise UnknownColumnError.among("column", column, frame.columns)
    for column in filter(None, (value, weight)):
        _check_number(frame, column)
    try:
        frame.select(F.xxhash64(*map(_column, ids)))
    except AnalysisException as error:
        raise InvalidArgumentError(
            f"Invalid id={list(ids)!r}: Spark cannot hash these columns, such as maps, or two have the same name.\nUse"
            " columns of numbers, text, times, or structs and arrays of them."
        ) from error


def _check_number(frame: DataFrame, column: str) -> None:
    from pyspark.sql.types import NumericType

    for field in frame.schema.fields:
        if field.name.casefold() == column.casefold() and not isinstance(field.dataType, NumericType):
            raise InvalidArgumentError(
                f"{column} is a {field.dataType.simpleString()}, and ss.shed needs numbers as value and weight."
            )


def _has(frame: DataFrame, column: str) -> bool:
    return column.casefold() in map(str.casefold, frame.columns)


def _column(name: str) -> Column:
    from pyspark.sql import functions as F

    return F.col("`" + name.replace("`", "``") + "`")


def _with_shares(frame: DataFrame, level: Column, ids: Sequence[str], value: str | None) -> DataFrame:
    """Return a frame with each row's interval, the share that it keeps, and whether the row is kept."""
    from pyspark.sql import functions as F

    interval = F.lit(0)
    if value is not None:
        number = _column(value).cast("double")
        # From above: an interval that the level does not have begins at null, which no value reaches.
        for at in range(2, MOST + 1):
            interval = F.when(number >= level[f"from{at}"], at).otherwise(interval if at > 2 else 1)
        interval = F.when(number.isNull() | F.isnan(number), 0).otherwise(interval)
    whole = F.lit(False)
    for column in ids:
        whole = whole | _column(column).isNull()
    found = frame.withColumn(_INTERVAL, F.when(whole, _WHOLE).otherwise(interval))
    share = level["keep0"]
    if value is not None:
        for at in range(1, MOST + 1):
            share = F.when(F.col(_INTERVAL) == at, level[f"keep{at}"]).otherwise(share)
    found = found.withColumn(_SHARE, F.when(F.col(_INTERVAL) == _WHOLE, ALL).otherwise(share))
    return found.withColumn(_KEPT, F.pmod(F.xxhash64(*map(_column, ids)), F.lit(ALL)) < F.col(_SHARE))


def _level(frame: DataFrame) -> Column:
    """Return the level of the epoch, which Spark reads once per epoch."""
    from pyspark.sql import functions as F

    # One small task, without the cost of Arrow for one value.
    read = F.udf(LevelReader(), f"struct<{NATIVE}>", useArrow=False)
    level: Column = frame.sparkSession.range(0, 1, 1, 1).select(read().alias("level")).scalar()
    return level


def _counts(level: Column, value: str | None) -> list[Column]:
    """Return what is observed of an epoch; :meth:`ShedCounts.observed` reads it."""
    from pyspark.sql import functions as F

    def rows(of: Column, as_: str) -> Column:
        return F.count(F.when(of, 1)).alias(as_)

    kept, interval = F.col(_KEPT), F.col(_INTERVAL)
    counts = [F.count(F.lit(1)).alias("rows"), rows(kept, "kept"), rows(interval == _WHOLE, "kept_null_id")]
    if value is None:
        counts.append(rows(~kept, "dropped_level"))
    else:
        counts.append(rows(~kept & (interval == 0), "dropped_no_value"))
        for at in range(1, MOST + 1):
            counts += [rows(interval == at, f"rows_{at}"), rows(~kept & (interval == at), f"dropped_{at}")]
    return [*counts, F.max(level["version"]).alias("level")]


def _weighted(kept: DataFrame, weight: str, *, exists: bool) -> DataFrame:
    """Return the rows that are kept, with their weight."""
    from pyspark.sql import functions as F

    made = F.lit(float(ALL)) / F.greatest(F.col(_SHARE), F.lit(1))
    return kept.withColumn(weight, _column(weight).cast("double") * made if exists else made)
