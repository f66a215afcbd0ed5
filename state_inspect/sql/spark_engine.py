"""Statements in Spark, and the relations that they read: state tables at an epoch, histories and changelogs."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from pyspark.sql.window import Window
from sqlglot import ErrorLevel
from sqlglot.errors import SqlglotError

from streamstate.errors import (
    InvalidSQLError,
    NoResultError,
    SessionError,
    StoreError,
    StreamStateError,
    UnknownColumnError,
)
from streamstate.snapshots.change_log import DELETE, KEYFRAME
from streamstate.snapshots.delta.data_files import refuse_links
from streamstate.snapshots.duckdb_sql import embedded
from streamstate.snapshots.operators import CHANGE, EPOCH, PARTITION
from streamstate.snapshots.spark.fetching import to_arrow
from streamstate.state_inspect.recorded_query import ChangeLog, RecordedQuery
from streamstate.state_inspect.results.results import RESULT
from streamstate.state_inspect.snapshot import Snapshot
from streamstate.state_inspect.sql.allowed_functions import DUCKDB_FUNCTIONS, SPARK_FUNCTIONS
from streamstate.state_inspect.sql.parse_tree import first_error
from streamstate.state_inspect.sql.statement_policy import check_for_duckdb, check_for_spark
from streamstate.state_inspect.sql.time_travel import CHANGES, HISTORY, Bound
from streamstate.state_inspect.sql.user_data import SparkSource, plain_path
from streamstate.state_inspect.temporal_index.epoch_runs import spans_until

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from streamstate.snapshots.delta.place import Place

_DELTA = "io.delta.sql.DeltaSparkSessionExtension"
_SUBSTITUTE = "spark.sql.variable.substitute"
# While one statement is analyzed with the setting off, another must not save that as the user's choice.
_substituting = threading.Lock()


class SparkEngine:
    """One statement as a Spark frame, analyzed and not yet run."""

    repeatable = True

    def __init__(self, spark: SparkSession, bound: Bound[SparkSource]) -> None:
        tree = bound.statement.tree
        with contextlib.closing(embedded()) as database:
            text = tree.sql(dialect="duckdb", comments=False)
            check_for_duckdb(database, text, bound.original_names, DUCKDB_FUNCTIONS | SPARK_FUNCTIONS)
        try:
            text = tree.sql(dialect="spark", comments=False, unsupported_level=ErrorLevel.RAISE)
        except SqlglotError as error:
            raise InvalidSQLError(f"The statement has no equivalent in Spark's SQL: {first_error(error)}") from error
        self.frame = _analyzed(spark, text, bound)
        self.columns: list[str] = list(self.frame.columns)

    def rows(self) -> pa.Table:
        """All rows, collected."""
        return self._collected(self.frame)

    def first(self, count: int) -> pa.Table:
        """The first rows, at most ``count``."""
        return self._collected(self.frame.limit(count))

    def count(self) -> int:
        """The number of rows."""
        with spark_errors():
            return self.frame.count()

    def _collected(self, frame: DataFrame) -> pa.Table:
        # toArrow() refuses columns that share a name.
        with spark_errors():
            found = to_arrow(frame.toDF(*(f"c{at}" for at in range(len(self.columns)))))
        return _in_utc(found.rename_columns(self.columns))


def _analyzed(spark: SparkSession, text: str, bound: Bound[SparkSource]) -> DataFrame:
    """The statement's frame. The views that name its relations are dropped again."""
    views: list[str] = []
    columns: list[str] = []
    try:
        with spark_errors(columns):
            for name, source in bound.sources.items():
                frame = source.in_spark(spark)
                columns += frame.columns
                frame.createOrReplaceTempView(name)
                views.append(name)
            check_for_spark(spark, text, bound.original_names, columns)
            with _without_substitution(spark):
                return spark.sql(text, args=bound.statement.used() or None)
    finally:
        for name in views:
            spark.catalog.dropTempView(name)


@contextlib.contextmanager
def _without_substitution(spark: SparkSession) -> Iterator[None]:
    """Have Spark take a statement literally; restores the session's setting."""
    with _substituting:
        before = spark.conf.get(_SUBSTITUTE, None)
        spark.conf.set(_SUBSTITUTE, "false")
        try:
            yield
        finally:
            if before is None:
                spark.conf.unset(_SUBSTITUTE)
            else:
                spark.conf.set(_SUBSTITUTE, before)


@contextlib.contextmanager
def spark_errors(columns: list[str] | None = None) -> Iterator[None]:
    """Translate Spark's errors."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise _failed(error, columns or []) from error


def _failed(error: Exception, columns: list[str]) -> StreamStateError:
    """The error for a condition of Spark's, which Java's exceptions carry somewhere in their text."""
    text = str(error).strip()
    found = re.search(r"\[([A-Z][A-Z_0-9.]+)\] [^\n]*", text)
    condition, line = (found[1], found[0]) if found else ("", (text.splitlines() or ["it failed"])[0])
    if condition.startswith("UNRESOLVED_COLUMN"):
        values = (error.getMessageParameters() or {}) if isinstance(error, PySparkException) else {}
        named = str(values.get("objectName", "")).rpartition(".")[2].strip("`")
        return UnknownColumnError.among("column", named, dict.fromkeys(columns))
    if condition.startswith(("FAILED_READ_FILE", "PATH_NOT_FOUND")):
        return StoreError(f"Files of the store could not be read: {line}\nRun the statement again.")
    if isinstance(error, Py4JError) and not condition:
        causes = [cause for cause in text.splitlines() if cause.startswith((": ", "Caused by: "))]
        return SessionError(
            f"Spark cannot run this: {(causes or [line])[-1].strip(': ')}\n"
            "For object stores, set Spark's own settings, such as spark.hadoop.fs.s3a.…: the store's storage_options"
            " do not apply to Spark."
        )
    return InvalidSQLError(line)


def _in_utc(rows: pa.Table) -> pa.Table:
    """Timestamps in UTC, as DuckDB returns them, instead of the session's time zone."""
    for at, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type) and field.type.tz is not None:
            rows = rows.set_column(at, field.name, rows.column(at).cast(pa.timestamp("us", "UTC")))
    return rows


def read_in_spark(query: RecordedQuery, snapshot: Snapshot, table: str, kind: str | None) -> SparkSource:
    """A state table of a snapshot, its history or its changes, which Spark reads from the changelog itself."""
    if kind == RESULT:
        raise NoResultError(
            "The result is computed by DuckDB, not by engine='spark'.\n"
            "Leave the engine out, or compute it from the state's own columns."
        )
    return SparkRelation(query.change_log(table), snapshot.epoch, kind)


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


def _state(spark: SparkSession, log: ChangeLog, epoch: int) -> DataFrame:
    """The rows at an epoch."""
    keyframe = log.keyframe(epoch)
    rows = _log(spark, log, keyframe, epoch).where(_since(keyframe))
    newest = Window.partitionBy(*_columns(log.key_columns)).orderBy(F.col(EPOCH).desc())
    ranked = rows.withColumn("_newest", F.row_number().over(newest))
    return ranked.where((F.col("_newest") == 1) & (F.col(CHANGE) != DELETE)).select(*_columns(log.columns_at(epoch)))


def _history(spark: SparkSession, log: ChangeLog, epoch: int) -> DataFrame:
    """All versions known at an epoch, with the epochs from and to which each was valid.

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
    following = Window.partitionBy(F.col("_first"), *_columns(log.key_columns)).orderBy(F.col(EPOCH))
    ended = rows.withColumn("_valid_to", F.coalesce(F.lead(EPOCH).over(following), F.col("_gap")))
    kept = ended.where(F.col(CHANGE) != DELETE).withColumnRenamed(EPOCH, "_valid_from")
    return kept.select("_valid_from", "_valid_to", PARTITION, *_columns(log.columns))


def _since(keyframe: int | None) -> Column:
    is_change = F.col(CHANGE) != KEYFRAME
    if keyframe is None:
        return is_change
    return (is_change & (F.col(EPOCH) > keyframe)) | (~is_change & (F.col(EPOCH) == keyframe))


def _log(spark: SparkSession, log: ChangeLog, first: int | None, last: int) -> DataFrame:
    """The changelog's rows between two epochs, through the session's Delta connector or else from the files."""
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
    """A table's location as Spark spells it: Hadoop's S3 client has another scheme."""
    if place.folder is not None:
        return f"file://{place.folder}"
    scheme, _, rest = place.uri.partition("://")
    return f"{'s3a' if scheme == 's3' else scheme}://{rest}"


def _columns(names: list[str]) -> list[Column]:
    return [F.col(f"`{name.replace('`', '``')}`") for name in names]
