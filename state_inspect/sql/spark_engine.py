"""Statements in Spark, over the change logs of the store."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from sqlglot import ErrorLevel
from sqlglot.errors import SqlglotError

from streamstate.snapshots.change_log import embedded
from streamstate.snapshots.errors import InvalidSQLError, SessionError, StoreError, StreamStateError, UnknownColumnError
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
            safety.check(database, tree.sql(dialect="duckdb", comments=False), bound.said)
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
        with spark_errors():
            return self._frame.count()

    def spark_frame(self, spark: SparkSession | None, rows: pa.Table | None) -> DataFrame:
        """The frame itself, of which nothing was run."""
        return self._frame

    def _collected(self, frame: DataFrame) -> pa.Table:
        # Arrow refuses two columns of one name on their way out of Spark.
        with spark_errors():
            found = frame.toDF(*(f"c{at}" for at in range(len(self.columns)))).toArrow()
        return _in_utc(found.rename_columns(self.columns))


def _analysed(spark: SparkSession, text: str, bound: Bound[SparkSource]) -> DataFrame:
    """The statement's frame; the views that lend its relations their names are gone when it is there."""
    made: list[str] = []
    columns: list[str] = []
    try:
        with spark_errors(columns):
            for name, source in bound.sources.items():
                columns += source.columns
                source.in_spark(spark).createOrReplaceTempView(name)
                made.append(name)
            return spark.sql(text, args=bound.statement.used() or None)
    finally:
        for name in made:
            spark.catalog.dropTempView(name)


@contextlib.contextmanager
def spark_errors(columns: list[str] | None = None) -> Iterator[None]:
    """Spark's errors in our words."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise _failed(error, columns or []) from error


def _failed(error: Exception, columns: list[str]) -> StreamStateError:
    """By the error's condition, which Java's own exceptions carry somewhere in their text."""
    text = str(error).strip()
    found = re.search(r"\[([A-Z][A-Z_0-9.]+)\] [^\n]*", text)
    condition, line = (found[1], found[0]) if found else ("", (text.splitlines() or ["it failed"])[0])
    if condition.startswith("UNRESOLVED_COLUMN"):
        values = (error.getMessageParameters() or {}) if isinstance(error, PySparkException) else {}
        named = str(values.get("objectName", "")).rpartition(".")[2].strip("`")
        return UnknownColumnError.among("column", named, dict.fromkeys(columns))
    if condition.startswith(("FAILED_READ_FILE", "PATH_NOT_FOUND")):
        return StoreError(f"Files of the store could not be read: {line}\nGive the statement again.")
    if isinstance(error, Py4JError) and not condition:
        causes = [one for one in text.splitlines() if one.startswith((": ", "Caused by: "))]
        return SessionError(
            f"Spark cannot run this: {(causes or [line])[-1].strip(': ')}\n"
            "For object stores Spark has settings of its own, such as spark.hadoop.fs.s3a.…: the store's"
            " storage_options are not passed on to it."
        )
    return InvalidSQLError(line)


def _in_utc(rows: pa.Table) -> pa.Table:
    """Moments in UTC, as the embedded engine has them, and not in the session's zone."""
    for at, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type) and field.type.tz is not None:
            rows = rows.set_column(at, field.name, rows.column(at).cast(pa.timestamp("us", "UTC")))
    return rows
