"""Statements in Spark."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sqlglot import ErrorLevel
from sqlglot.errors import SqlglotError

from streamstate.errors import InvalidSQLError
from streamstate.snapshots.calls.progress_callback import long_call
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
