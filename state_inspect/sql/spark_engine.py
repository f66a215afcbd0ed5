"""Statements in Spark."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from sqlglot import ErrorLevel
from sqlglot.errors import SqlglotError

from streamstate.errors import InvalidSQLError, SparkVersionError, StoreError, first_line
from streamstate.snapshots.calls.progress_callback import long_call
from streamstate.snapshots.spark.connect import is_of_connect
from streamstate.snapshots.spark.connect_server import require_server
from streamstate.snapshots.spark.fetching import fetched
from streamstate.snapshots.store.duckdb_sql import embedded
from streamstate.state_inspect.inputs.inputs import kept_with
from streamstate.state_inspect.sql.allowed_functions import DUCKDB_FUNCTIONS, SPARK_FUNCTIONS
from streamstate.state_inspect.sql.spark_errors import spark_errors
from streamstate.state_inspect.sql.spark_policy import check_for_spark
from streamstate.state_inspect.sql.statement_policy import check_for_duckdb, first_error
from streamstate.state_inspect.sql.time_travel import Bound
from streamstate.state_inspect.sql.user_data import SparkSource

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

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
        """Return all rows, collected."""
        return self._collected(self.frame)

    def first(self, count: int) -> pa.Table:
        """Return the first rows, at most ``count``."""
        return self._collected(self.frame.limit(count))

    def count(self) -> int:
        """Return the number of rows."""
        with spark_errors():
            return self.frame.count()

    @long_call("The statement's Spark jobs were cancelled.", name="The statement")
    def _collected(self, frame: DataFrame) -> pa.Table:
        with spark_errors():
            return fetched(frame)


def _analyzed(spark: SparkSession, text: str, bound: Bound[SparkSource]) -> DataFrame:
    return (_analyzed_by_server if is_of_connect(spark) else _analyzed_here)(spark, text, bound)


def _analyzed_by_server(spark: Any, text: str, bound: Bound[SparkSource]) -> DataFrame:
    """Return the statement's frame, whose plan contains its relations.

    The server analyzes it anew whenever the frame is used, when views would be gone.

    Raises:
        SparkConnectError: the server does not answer.
        SparkVersionError: it, or its client, is older than Spark 4.0.
        StoreError: it does not reach the store.
    """
    require_server(spark)
    _require_plans_of_frames(spark)
    columns: list[str] = []
    try:
        with spark_errors(columns):
            frames = {name: source.in_spark(spark) for name, source in bound.sources.items()}
            columns += [column for frame in frames.values() for column in frame.columns]
            check_for_spark(spark, text, list(bound.original_names), columns)
            frame: DataFrame = spark.sql(_formatted(text, frames), args=bound.statement.used() or None, **frames)
            columns += frame.columns  # the server analyzes it
            return frame
    except StoreError as error:
        raise StoreError(
            f"{first_line(error)}\nThe Spark Connect server has to reach the store by the same path as this process."
            " engine='duckdb' reads it here."
        ) from error


def _formatted(text: str, names: Collection[str]) -> str:
    """Return a statement as PySpark formats it: with each name in braces, and braces doubled."""
    if not names:
        return text  # PySpark takes it as it is
    return re.sub("|".join(names), r"{\g<0>}", text.replace("{", "{{").replace("}", "}}"))


def _require_plans_of_frames(spark: Any) -> None:
    from pyspark import __version__

    for version in (__version__, spark.version):
        if version.startswith("3."):
            raise SparkVersionError.needs(
                "SQL in Spark through Spark Connect", "4.0", version, "engine='duckdb' needs no Spark."
            )


def _analyzed_here(spark: SparkSession, text: str, bound: Bound[SparkSource]) -> DataFrame:
    """Return the statement's frame. The views that name its relations are dropped again."""
    views: list[str] = []
    columns: list[str] = []
    frames: list[DataFrame] = []
    try:
        with spark_errors(columns):
            for name, source in bound.sources.items():
                frame = source.in_spark(spark)
                frames.append(frame)
                columns += frame.columns
                frame.createOrReplaceTempView(name)
                views.append(name)
            check_for_spark(spark, text, bound.original_names, columns)
            with _without_substitution(spark):
                # What a query read can be read for as long as its frame lives.
                return kept_with(spark.sql(text, args=bound.statement.used() or None), frames)
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
