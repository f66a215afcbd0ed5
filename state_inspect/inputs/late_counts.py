"""Counts of the rows that the watermark dropped at each of many epochs, with their lateness."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pandas as pd

from streamstate.errors import StreamStateError, first_line
from streamstate.snapshots.calls.epoch_range import epoch_list
from streamstate.snapshots.calls.progress_callback import ProgressCallback, silent
from streamstate.state_inspect.captured_query import CapturedQuery
from streamstate.state_inspect.inputs.late import delay_past, operator_of_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamstate.state_inspect.inputs.epoch_input import EpochInput

NEWEST = 50
"""The number of newest epochs that are read by default."""
_TOGETHER = 8
"""Epochs that one job of Spark reads: starting a job takes longer than reading an epoch."""
_EPOCH, _LATE_BY, _GROUP = "_epoch", "_late_by", "_group"

_TYPES = {
    "epoch": "int64",
    "watermark": "datetime64[us, UTC]",
    "came": "Int64",
    "dropped": "Int64",
    "groups": "Int64",
    "longest": "timedelta64[us]",
    "longer_delay": "timedelta64[us]",
    "missing": "object",
}


@dataclass(frozen=True)
class _Counted:
    """A row of the frame."""

    epoch: int
    watermark: datetime | None = None
    came: int | None = None
    dropped: int | None = None
    groups: int | None = None
    longest: timedelta | None = None
    longer_delay: timedelta | None = None
    missing: str | None = None


@dataclass(frozen=True)
class _Came:
    """The rows that came into an operator in an epoch: how late each is in microseconds, or null, and its group."""

    source: EpochInput
    rows: DataFrame
    watermark: datetime | None
    in_groups: bool


def late_counts(
    query: CapturedQuery, epochs: Iterable[int] | str | None, table: str | None, progress: ProgressCallback | None
) -> pd.DataFrame:
    """Return the dropped rows of many epochs, counted, as :meth:`streamstate.History.late_counts`."""
    progress = progress or silent
    entries = query.entries()
    number = None if table is None else operator_of_table(query, table)
    chosen = (
        [int(epoch) for epoch in entries.epochs[-NEWEST:]] if epochs is None else epoch_list(epochs, entries.captured)
    )
    for epoch in chosen:
        if entries.of(epoch) is None:
            query.entry(epoch)  # raises, and names the nearest
    counted: dict[int, _Counted] = {}
    problem: StreamStateError | None = None
    for start in range(0, len(chosen), _TOGETHER):
        progress(f"Reading the input of epochs {chosen[start]} to {chosen[-1]} again", start / len(chosen))
        came: dict[int, _Came] = {}
        for epoch in chosen[start : start + _TOGETHER]:
            try:
                query.entry(epoch)
                came[epoch] = _came(query, epoch, number)
            except StreamStateError as error:
                problem, counted[epoch] = error, _Counted(epoch, missing=first_line(error))
        counted |= _each_counted(came)
    if problem is not None and all(row.missing for row in counted.values()):
        raise problem
    return _frame([counted[epoch] for epoch in chosen])


def _came(query: CapturedQuery, epoch: int, number: int | None) -> _Came:
    from pyspark.sql import functions as F

    from streamstate.state_inspect.inputs.epoch_input import EpochInput

    source = EpochInput(query, epoch)
    sides = source.of(source.lowest if number is None else number)
    frames = []
    for side in sides:
        late_by, group = F.lit(None).cast("long"), F.lit(None).cast("int")
        if side.came.late is not None and side.came.late_by is not None:
            micros = F.unix_micros(F.timestamp_micros(F.lit(0)) + side.came.late_by)
            late_by = F.when(side.came.late, micros)
        if side.came.is_aggregation:
            group = F.struct(*source.key_columns(side), F.lit(epoch))
        frames.append(side.rows.select(F.lit(epoch).alias(_EPOCH), late_by.alias(_LATE_BY), group.alias(_GROUP)))
    drops = [side.came for side in sides if side.came.late is not None]
    watermark = drops[0].watermark if drops else None
    return _Came(source, _union(frames), watermark, any(came.is_aggregation for came in drops))


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    from pyspark.sql import DataFrame

    return functools.reduce(DataFrame.union, frames)


def _each_counted(came: Mapping[int, _Came]) -> dict[int, _Counted]:
    """Return the counts of some epochs; if reading them fails, those of each epoch by itself."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    if not came:
        return {}
    try:
        return _counts(came)
    except (PySparkException, Py4JJavaError) as error:
        if len(came) == 1:
            return {epoch: _Counted(epoch, missing=first_line(error)) for epoch in came}
    return functools.reduce(operator.or_, (_each_counted({epoch: rows}) for epoch, rows in came.items()))


def _counts(came: Mapping[int, _Came]) -> dict[int, _Counted]:
    # Epochs that saw other versions of shared variables are counted one by one.
    bound = next(iter(came.values())).source.bound() if len(came) == 1 else nullcontext()
    with bound:
        rows = _totals(_union([part.rows for part in came.values()])).collect()
    found = {row[_EPOCH]: row.asDict() for row in rows}
    counted = {}
    for epoch, part in came.items():
        row = found.get(epoch, {"came": 0, "dropped": 0, "groups": 0, "longest": None, "too_late": None})
        counted[epoch] = _Counted(
            epoch,
            part.watermark,
            row["came"],
            row["dropped"],
            row["groups"] if part.in_groups else None,
            None if row["longest"] is None else timedelta(microseconds=row["longest"]),
            timedelta(0) if row["too_late"] is None else delay_past(row["too_late"]),
        )
    return counted


def _totals(rows: DataFrame) -> DataFrame:
    """Return a row per epoch: rows that came, rows dropped, and the lateness that too many reach."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    # A group of an aggregation is late as a whole, so that each is counted at one lateness.
    late = F.col(_LATE_BY).isNotNull()
    each = rows.groupBy(_EPOCH, _LATE_BY).agg(
        F.count("*").alias("rows"), F.countDistinct(F.when(late, F.col(_GROUP))).alias("groups")
    )
    of_epoch = Window.partitionBy(_EPOCH)
    ranked = each.select(
        "*",
        F.sum("rows").over(of_epoch).alias("came"),
        F.sum("rows").over(of_epoch.orderBy(F.desc_nulls_last(_LATE_BY))).alias("rank"),
    )
    dropped = F.when(late, F.col("rows"))
    # A hundredth may be dropped; the rest is for what a double rounds.
    is_too_late = late & (F.col("rank") > F.col("came") * 0.01 + 1e-9)
    return ranked.groupBy(_EPOCH).agg(
        F.sum("rows").alias("came"),
        F.coalesce(F.sum(dropped), F.lit(0)).alias("dropped"),
        F.sum("groups").alias("groups"),
        F.max(_LATE_BY).alias("longest"),
        F.max(F.when(is_too_late, F.col(_LATE_BY))).alias("too_late"),
    )


def _frame(rows: Sequence[_Counted]) -> pd.DataFrame:
    return pd.DataFrame(
        {name: pd.Series([getattr(row, name) for row in rows], dtype=kind) for name, kind in _TYPES.items()}
    )
