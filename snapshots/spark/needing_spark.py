"""The error of a call that needs Spark where it is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from streamstate.errors import require_extra
from streamstate.snapshots.spark.connect import refuse_connect


@contextmanager
def needing_spark() -> Iterator[None]:
    """Turn a missing module into an error that names the extra to install; also a decorator.

    Raises:
        MissingDependencyError: PySpark is not installed.
        SparkConnectError: only the client of Spark Connect is.
    """
    try:
        yield
    except ModuleNotFoundError:
        require_extra("spark")  # what needs an extra when it is imported needs this one
        refuse_connect()  # the package pyspark-client has no classic session
        raise
