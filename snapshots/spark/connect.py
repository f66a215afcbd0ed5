"""Calls that need Spark in this process: installed, and not Spark Connect, which has its JVM elsewhere."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from streamstate.errors import SparkConnectError, SparkVersionError, require_extra

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def uses_connect() -> bool:
    """Return whether PySpark makes Spark Connect sessions in this process."""
    try:
        from pyspark.sql.utils import is_remote
    except ImportError:  # Spark before 3.4 has no Connect
        return False
    return is_remote() or "SPARK_REMOTE" in os.environ or os.environ.get("SPARK_API_MODE", "").lower() == "connect"


def leave_connect() -> None:
    """Have PySpark make classic sessions in this process, whatever its environment says."""
    for name in ("SPARK_REMOTE", "SPARK_API_MODE"):
        os.environ.pop(name, None)


def connect_session() -> Any:
    """Return the Spark Connect session that this thread, or else this process, uses; None if there is none."""
    if not uses_connect():
        return None
    from pyspark.sql.connect.session import SparkSession

    # The active session is per thread; the default one is that of the process. Its class has the methods of the other.
    connected: Any = SparkSession
    return connected.getActiveSession() or connected._default_session  # noqa: SLF001 (no public way)


def is_of_connect(value: Any) -> bool:
    """Return whether a session, frame or query of PySpark belongs to Spark Connect."""
    kinds = type(value).__mro__
    return any(kind.__module__.startswith("pyspark.sql.connect.") or hasattr(kind, "of_connect") for kind in kinds)


def classic_of(spark: SparkSession | None) -> SparkSession | None:
    """Return a session if it has a JVM in this process; None instead of one of Spark Connect."""
    return None if is_of_connect(spark) else spark


def errors_of_spark() -> tuple[type[Exception], ...]:
    """Return PySpark's and Py4J's errors. Where only the client of Spark Connect is installed, there is no Py4J."""
    from pyspark.errors import PySparkException

    try:
        from py4j.protocol import Py4JError
    except ModuleNotFoundError:
        return (PySparkException,)
    return PySparkException, Py4JError


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
    if is_of_connect(value):
        raise SparkConnectError.needs_classic()


@contextmanager
def needing_spark() -> Iterator[None]:
    """Turn a missing module into an error that names the extra to install; also a decorator.

    Raises:
        MissingDependencyError: PySpark is not installed.
        SparkVersionError: it is too old.
        SparkConnectError: only the client of Spark Connect is installed.
    """
    try:
        yield
    except ModuleNotFoundError:
        require_spark()  # what needs an extra when it is imported needs this one
        refuse_connect()  # the package pyspark-client has no classic session
        raise


def require_spark() -> None:
    """Raise unless a PySpark that can run queries is installed.

    Raises:
        MissingDependencyError: none is.
        SparkVersionError: it is too old.
    """
    require_extra("spark")
    from pyspark import __version__

    if version_numbers(__version__) < (3, 4):
        raise SparkVersionError.needs(
            "This call", "3.5", __version__, "Install a newer one: pip install 'pyspark>=3.5'. Reading needs none."
        )


def version_numbers(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version of Spark, such as ``(4, 2)``."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
