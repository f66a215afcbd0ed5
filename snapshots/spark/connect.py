"""Calls that need Spark in this process: installed, and not Spark Connect, which has its JVM elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from streamstate.errors import SparkConnectError, require_extra

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def uses_connect() -> bool:
    """Return whether PySpark makes Spark Connect sessions in this process."""
    from pyspark.sql.utils import is_remote

    return is_remote() or "SPARK_REMOTE" in os.environ or os.environ.get("SPARK_API_MODE", "").lower() == "connect"


def connect_session() -> SparkSession | None:
    """Return the Spark Connect session that this thread uses; None if there is none."""
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() if uses_connect() else None


def refuse_connect() -> None:
    """Raise if this process uses Spark Connect.

    Raises:
        SparkConnectError: it does.
    """
    if uses_connect():
        raise SparkConnectError.needs_classic()


def require_classic(value: Any) -> None:
    """Raise if a session, frame or query of PySpark belongs to Spark Connect.

    Raises:
        SparkConnectError: it does.
    """
    if any(kind.__module__.startswith("pyspark.sql.connect.") for kind in type(value).__mro__):
        raise SparkConnectError.needs_classic()


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
