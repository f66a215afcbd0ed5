"""Data sources and sinks that are written in Python: Spark looks for them in the active session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from streamstate.errors import SparkVersionError
from streamstate.snapshots.spark.private_classes import spark_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource


@contextmanager
def active_session(spark: SparkSession) -> Iterator[None]:
    """Let a session be this thread's active one in the JVM."""
    sessions = spark_class(spark._jvm, "org.apache.spark.sql.classic.SparkSession")
    active = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if active.isDefined():
            sessions.setActiveSession(active.get())
        else:
            sessions.clearActiveSession()


def register_source(spark: SparkSession, source: type[DataSource]) -> None:
    """Register a source in a session, which may be another than the active one.

    Spark refuses a name that the active session knows, and adds it to the session that was asked.

    Raises:
        SparkVersionError: this Spark has no sources that are written in Python.
    """
    if not hasattr(spark, "dataSource"):
        raise SparkVersionError.needs(
            "A source that is written in Python, which shared variables and recorded input use,",
            "4.0",
            spark.version,
            "Start the query without them.",
        )
    with active_session(spark):
        spark.dataSource.register(source)
