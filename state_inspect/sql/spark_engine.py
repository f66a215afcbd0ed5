"""Statements in Spark, over the change logs of the store."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import PySparkException
from sqlglot import ErrorLevel
from sqlglot.errors import SqlglotError

from streamstate.snapshots.change_log import embedded
from streamstate.snapshots.errors import InvalidSQLError, SessionError, StreamStateError, UnknownColumnError
from streamstate.state_inspect.expressions import first_error
from streamstate.state_inspect.sql import safety

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from streamstate.state_inspect.sql.names import Bound
    from streamstate.state_inspect.sql.user_data import SparkSource


class SparkEngine:
    """One statement as a Spark frame, analysed and not yet run.

    Args:
        spark: the session.
        bound: the statement and what its relations stand for.

    Raises:
        InvalidSQLError: where it does more than read, or Spark cannot make sense of it.
        UnknownColumnError: where it names a column that there is not.
        SessionError: where Spark cannot reach the store's files.
    """

    repeatable = True

    def __init__(self, spark: SparkSession, bound: Bound[SparkSource]) -> None:
        tree = bound.statement.tree
        with contextlib.closing(embedded()) as database:
            safety.check(database, tree.sql(dialect="duckdb", comments=False), bound.sources)
        try:
            text = tree.sql(dialect="spark", comments=False, unsupported_level=ErrorLevel.RAISE)
        except SqlglotError as error:
            raise InvalidSQLError(f"Spark's SQL has no words for this: {first_error(error)}") from error
        self._frame = _analysed(spark, text, bound)
        self.columns: list[str] = list(self._frame.columns)

    def rows(self) -> pa.Table:
        """All rows, collected."""
        return self._collected(self._frame)

    def first(self, count: int) -> pa.Table:
        """At most so many rows, the first."""
        return self._collected(self._frame.limit(count))

    def count(self) -> int:
        """How many rows there are."""
        with _spark_errors():
            return self._frame.count()

    def spark_frame(self, spark: SparkSession | None, rows: pa.Table | None) -> DataFrame:
        """The frame itself, of which nothing was run."""
        return self._frame

    def _collected(self, frame: DataFrame) -> pa.Table:
        # Arrow refuses two columns of one name on their way out of Spark.
        with _spark_errors():
            found = frame.toDF(*(f"c{at}" for at in range(len(self.columns)))).toArrow()
        return _in_utc(found.rename_columns(self.columns))


def _analysed(spark: SparkSession, text: str, bound: Bound[SparkSource]) -> DataFrame:
    """The statement's frame; the views that lend its relations their names are gone when it is there."""
    made: list[str] = []
    columns: list[str] = []
    try:
        with _spark_errors(columns):
            for name, source in bound.sources.items():
                columns += source.columns
                source.in_spark(spark).createOrReplaceTempView(name)
                made.append(name)
            return spark.sql(text, args=bound.statement.used() or None)
    finally:
        for name in made:
            spark.catalog.dropTempView(name)


@contextlib.contextmanager
def _spark_errors(columns: list[str] | None = None) -> Iterator[None]:
    """Spark's errors in our words."""
    try:
        yield
    except PySparkException as error:
        raise _failed(error, columns or []) from error


def _failed(error: PySparkException, columns: list[str]) -> StreamStateError:
    condition = error.getCondition() or ""
    values = error.getMessageParameters() or {}
    if condition.startswith("UNRESOLVED_COLUMN"):
        named = str(values.get("objectName", "")).rpartition(".")[2].strip("`")
        return UnknownColumnError.among("column", named, dict.fromkeys(columns))
    text = str(error)
    if "No FileSystem for scheme" in text or "ClassNotFoundException" in text or "AccessDenied" in text:
        return SessionError(
            f"Spark cannot reach the store's files: {text.splitlines()[0]}\n"
            "Spark has settings of its own for object stores, such as spark.hadoop.fs.s3a.…; the store's"
            " storage_options are not passed on to it."
        )
    return InvalidSQLError(text.splitlines()[0] if text else condition)


def _in_utc(rows: pa.Table) -> pa.Table:
    """Moments in UTC, as the embedded engine has them, and not in the session's zone."""
    for at, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type) and field.type.tz is not None:
            rows = rows.set_column(at, field.name, rows.column(at).cast(pa.timestamp("us", "UTC")))
    return rows
