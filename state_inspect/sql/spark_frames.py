"""State tables as Spark frames, rebuilt from the change log's files at an epoch.

The rule is the one that any reader of the log follows: the newest row of each key since the keyframe counts, unless it
is a delete.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from pyspark.sql.window import Window

from streamstate.snapshots.change_log import DELETE, KEYFRAME
from streamstate.snapshots.operators import CHANGE, EPOCH, PARTITION
from streamstate.state_inspect.sql.sessions import plain_path
from streamstate.state_inspect.temporal_index.runs import runs_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from streamstate.snapshots.delta.place import Place
    from streamstate.state_inspect.change_logs import ChangeLog

_DELTA = "io.delta.sql.DeltaSparkSessionExtension"


def state(spark: SparkSession, log: ChangeLog, epoch: int) -> DataFrame:
    """The rows that held at an epoch."""
    keyframe = log.keyframe(epoch)
    rows = _log(spark, log, keyframe, epoch).where(_since(keyframe))
    newest = Window.partitionBy(*_columns(log.keys)).orderBy(F.col(EPOCH).desc())
    ranked = rows.withColumn("_newest", F.row_number().over(newest))
    return ranked.where((F.col("_newest") == 1) & (F.col(CHANGE) != DELETE)).select(*_columns(log.columns_at(epoch)))


def changes(spark: SparkSession, log: ChangeLog, epoch: int) -> DataFrame:
    """The change log up to an epoch."""
    return _log(spark, log, None, epoch).select(*_columns(log.all_columns))


def history(spark: SparkSession, log: ChangeLog, epoch: int) -> DataFrame:
    """All versions that are known at an epoch, with the epochs from and to which each held.

    What held before a gap held until the gap; after it, the log starts anew with a keyframe.
    """
    runs = [one for one in runs_of(log.entries, log.table) if one.first <= epoch]
    spans = [
        (one.first, min(one.last, epoch), one.starts_anew, None if one is runs[-1] else one.last + 1) for one in runs
    ]
    known = spark.createDataFrame(spans, "_first LONG, _last LONG, _anew BOOLEAN, _gap LONG")
    rows = _log(spark, log, None, epoch).join(F.broadcast(known), F.col(EPOCH).between(F.col("_first"), F.col("_last")))
    is_keyframe, anew = F.col(CHANGE) == KEYFRAME, F.col("_anew")
    rows = rows.where(
        (is_keyframe & anew & (F.col(EPOCH) == F.col("_first")))
        | (~is_keyframe & (~anew | (F.col(EPOCH) > F.col("_first"))))
    )
    following = Window.partitionBy(F.col("_first"), *_columns(log.keys)).orderBy(F.col(EPOCH))
    ended = rows.withColumn("_valid_to", F.coalesce(F.lead(EPOCH).over(following), F.col("_gap")))
    kept = ended.where(F.col(CHANGE) != DELETE).withColumnRenamed(EPOCH, "_valid_from")
    return kept.select("_valid_from", "_valid_to", PARTITION, *_columns(log.columns))


def _since(keyframe: int | None) -> Column:
    is_change = F.col(CHANGE) != KEYFRAME
    if keyframe is None:
        return is_change
    return (is_change & (F.col(EPOCH) > keyframe)) | (~is_change & (F.col(EPOCH) == keyframe))


def _log(spark: SparkSession, log: ChangeLog, first: int | None, last: int) -> DataFrame:
    """The log's rows between two epochs: through the Delta connector where the session has it, else its files."""
    place, table = log.version.place, log.version.table
    if _DELTA in (spark.conf.get("spark.sql.extensions", "") or ""):
        rows = spark.read.format("delta").option("versionAsOf", table.version()).load(_uri(place))
    else:
        schema = StructType.fromJson(json.loads(table.schema().to_json()))
        files = [one for one in log.version.files(EPOCH) if one.may_hold(first, last)]
        paths = [plain_path(f"{_uri(place)}/{one.path}") for one in files]
        rows = spark.read.schema(schema).parquet(*paths) if paths else spark.createDataFrame([], schema)
    return rows.where(F.col(EPOCH).between(-1 if first is None else first, last))


def _uri(place: Place) -> str:
    """Where a table is, as Spark spells it: Hadoop's client of S3 goes by another scheme."""
    if place.folder is not None:
        return f"file://{place.folder}"
    scheme, _, rest = place.uri.partition("://")
    return f"{'s3a' if scheme == 's3' else scheme}://{rest}"


def _columns(names: list[str]) -> list[Column]:
    return [F.col(f"`{name.replace('`', '``')}`") for name in names]
