"""Relations of a statement in Spark: state tables at an epoch, results, histories, changelogs and inputs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from pyspark.sql.window import Window

from streamstate.errors import NoResultError
from streamstate.snapshots.checkpoint.state_tables import CHANGE, EPOCH, NO_KEY, PARTITION
from streamstate.snapshots.spark.worker.forwarding import classic_spark
from streamstate.snapshots.store.canonical_rows import canonical_text, column_named
from streamstate.snapshots.store.changelog import DELETE, KEYFRAME, ChangeLog
from streamstate.snapshots.store.delta.data_files import refuse_links
from streamstate.state_inspect.captured_query import CapturedQuery, QueryHistory
from streamstate.state_inspect.inputs.inputs import batch_rows, inputs, kept_with, required_plan
from streamstate.state_inspect.results.result_columns import result_columns
from streamstate.state_inspect.results.results import RESULT, result_plan
from streamstate.state_inspect.results.spark_result import SparkResult
from streamstate.state_inspect.snapshot import Snapshot
from streamstate.state_inspect.sql.time_travel import CHANGES, HISTORY, INPUTS
from streamstate.state_inspect.sql.user_data import SparkSource, plain_path
from streamstate.state_inspect.temporal_index.epoch_runs import spans_until

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from streamstate.snapshots.store.delta.place import Place
    from streamstate.snapshots.store.query_plans.query_plan import TablePlan

_DELTA = "io.delta.sql.DeltaSparkSessionExtension"


def read_in_spark(query: CapturedQuery, snapshot: Snapshot, table: str, kind: str | None) -> SparkSource:
    """Return a state table of a snapshot, its result, its history or changes, or an input: Spark reads them itself."""
    if kind is not None and kind.startswith(INPUTS):
        return InputRelation(query, snapshot.epoch, kind.removeprefix(INPUTS).removeprefix("_") or None)
    if kind == RESULT:
        return ResultRelation(query, snapshot.epoch, table)
    return SparkRelation(query.changelog(table), snapshot.epoch, kind)


@dataclass(frozen=True)
class SparkRelation:
    """A state table, its history or its changes, rebuilt at an epoch from the changelog's files.

    As for any reader of the changelog, the newest row of each key since the keyframe counts, unless it is a delete.
    """

    log: ChangeLog
    epoch: int
    kind: str | None
    """``history``, ``changes``, or None for the rows at the epoch."""

    def in_spark(self, spark: SparkSession) -> DataFrame:
        """Return it as a Spark frame."""
        if self.kind == CHANGES:
            return _log(spark, self.log, None, self.epoch).select(*_columns(self.log.all_columns))
        return (_history if self.kind == HISTORY else _state)(spark, self.log, self.epoch)


@dataclass(frozen=True)
class ResultRelation:
    """The rows that a query returns, computed by its own plan from the state at an epoch."""

    query: CapturedQuery
    epoch: int
    table: str

    def in_spark(self, spark: SparkSession) -> DataFrame:
        """Return it as a Spark frame."""
        query, plan = self.query, result_plan(self.query, self.table, [self.epoch])
        log = query.changelog(self.table)
        values = [name for name in log.columns_at(self.epoch) if name not in log.key_columns]
        if plan.is_renamed_state:
            schema = pa.schema([log.schema.field(name) for name in log.columns_at(self.epoch)])
            found = result_columns(plan, schema, log.key_columns, self.table)  # raises if the plan is another table's
            for name, reason in found.missing.items():
                raise NoResultError(f"{name} of the result of {self.table} of {query.name} is not known: {reason}.")
            places = {column.name: column.expression for column in plan.columns}
            names = [(log.key_columns if at["part"] == "key" else values)[at["at"]] for at in places.values()]
            return _state(spark, log, self.epoch).select(*_columns(names)).toDF(*places)
        return _computed(spark, query.related(query.name), self.epoch, plan, self.table)


@classic_spark()
def _computed(spark: SparkSession, history: QueryHistory, epoch: int, plan: TablePlan, table: str) -> DataFrame:
    """Return the rows of a result, as Spark computes them from a state."""
    query = history.recorded
    query.entry(epoch)  # in the worker process, it has not been read yet
    log = query.changelog(table)
    where = f"of {table} of {query.name} at epoch {epoch}"
    planned = required_plan(query, epoch, f"The result {where} cannot be computed with Spark")
    result = SparkResult(planned, plan, table)
    if why := result.why_not():
        raise NoResultError(
            f"The result {where} cannot be computed with Spark: {why}.\nRead the state itself: {query.name}.{table}."
        )
    keys = [name for name in log.key_columns if name != NO_KEY]
    values = [name for name in log.columns_at(epoch) if name not in log.key_columns]
    return result.frame(_state(planned.spark, log, epoch), keys, values, spark)


@dataclass(frozen=True)
class InputRelation:
    """The rows that a source of a query delivered in an epoch."""

    query: CapturedQuery
    epoch: int
    source: str | None

    def in_spark(self, spark: SparkSession) -> DataFrame:
        """Return it as a Spark frame."""
        return _input(spark, self.query.related(self.query.name), self.epoch, self.source)


@classic_spark()
def _input(spark: SparkSession, history: QueryHistory, epoch: int, source: str | None) -> DataFrame:
    """Return the rows that a source delivered, read again."""
    history.recorded.entry(epoch)  # in the worker process, it has not been read yet
    rows = inputs(history.recorded, epoch, source)
    own: Any = spark._jsparkSession
    if own.equals(rows.sparkSession._jsparkSession):
        return rows
    frame: Any = rows
    return kept_with(batch_rows(spark, frame._jdf.queryExecution().analyzed()), rows)


def _state(spark: SparkSession, log: ChangeLog, epoch: int) -> DataFrame:
    """Return the rows at an epoch."""
    keyframe = log.keyframe(epoch)
    rows = _log(spark, log, keyframe, epoch).where(_since(keyframe))
    newest = Window.partitionBy(*_keys(rows, log)).orderBy(F.col(EPOCH).desc())
    ranked = rows.withColumn("_newest", F.row_number().over(newest))
    return ranked.where((F.col("_newest") == 1) & (F.col(CHANGE) != DELETE)).select(*_columns(log.columns_at(epoch)))


def _history(spark: SparkSession, log: ChangeLog, epoch: int) -> DataFrame:
    """Return all versions known at an epoch, with the epochs from and to which each was valid.

    A version that is valid before a gap ends at the gap; after it, the changelog starts again with a keyframe.
    """
    spans = spans_until(log.facts, epoch)
    known = spark.createDataFrame(spans, "_first LONG, _last LONG, _restarts BOOLEAN, _gap LONG")
    rows = _log(spark, log, None, epoch).join(F.broadcast(known), F.col(EPOCH).between(F.col("_first"), F.col("_last")))
    is_keyframe, restarts = F.col(CHANGE) == KEYFRAME, F.col("_restarts")
    rows = rows.where(
        (is_keyframe & restarts & (F.col(EPOCH) == F.col("_first")))
        | (~is_keyframe & (~restarts | (F.col(EPOCH) > F.col("_first"))))
    )
    following = Window.partitionBy(F.col("_first"), *_keys(rows, log)).orderBy(F.col(EPOCH))
    ended = rows.withColumn("_valid_to", F.coalesce(F.lead(EPOCH).over(following), F.col("_gap")))
    kept = ended.where(F.col(CHANGE) != DELETE).withColumnRenamed(EPOCH, "_valid_from")
    return kept.select("_valid_from", "_valid_to", PARTITION, *_columns(log.columns))


def _since(keyframe: int | None) -> Column:
    is_change = F.col(CHANGE) != KEYFRAME
    if keyframe is None:
        return is_change
    return (is_change & (F.col(EPOCH) > keyframe)) | (~is_change & (F.col(EPOCH) == keyframe))


def _log(spark: SparkSession, log: ChangeLog, first: int | None, last: int) -> DataFrame:
    """Return the changelog's rows between two epochs, through the session's Delta connector or else from the files."""
    place, table = log.version.place, log.version.table
    files = [file for file in log.version.files(EPOCH) if file.may_hold(first, last)]
    refuse_links(place, [file.path for file in files])
    if _DELTA in (spark.conf.get("spark.sql.extensions", "") or ""):
        rows = spark.read.format("delta").option("versionAsOf", table.version()).load(_uri(place))
    else:
        schema = StructType.fromJson(json.loads(table.schema().to_json()))
        paths = [plain_path(f"{_uri(place)}/{file.path}") for file in files]
        rows = spark.read.schema(schema).parquet(*paths) if paths else spark.createDataFrame([], schema)
    return rows.where(F.col(EPOCH).between(-1 if first is None else first, last))


def _uri(place: Place) -> str:
    """Return a table's location as Spark spells it: Hadoop's S3 client has another scheme."""
    if place.folder is not None:
        return f"file://{place.folder}"
    scheme, _, rest = place.uri.partition("://")
    return f"{'s3a' if scheme == 's3' else scheme}://{rest}"


def _keys(rows: DataFrame, log: ChangeLog) -> list[Column]:
    """Return the key columns; one that contains a map as text, because Spark cannot sort maps."""
    has_map = {name: "map<" in rows.schema[name].dataType.simpleString() for name in log.key_columns}
    return [canonical_text(rows.schema, [name]) if has_map[name] else column_named(name) for name in log.key_columns]


def _columns(names: list[str]) -> list[Column]:
    return [F.col(f"`{name.replace('`', '``')}`") for name in names]
