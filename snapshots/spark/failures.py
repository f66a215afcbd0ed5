"""Errors that can occur while a capture reads state that may be gone, with Spark or without it."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from streamstate.errors import CaptureError, DamagedCheckpointError, first_line, java_cause
from streamstate.snapshots.checkpoint.decoding.failures import DamagedChangelogError, MissingChangelogError
from streamstate.snapshots.spark.connect import errors_of_spark

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_MAX_RESULT = "maxResultSize"
_LATE_WORKER = "Python worker failed to connect back"
_IN_PYTHON = "org.apache.spark.api.python.PythonException"
_MISSING = re.compile(r"(?:ModuleNotFoundError|ImportError): (?:No module named '(?P<name>[^']+)'|(?P<text>.+))")


def failures() -> tuple[type[Exception], ...]:
    """Return the exceptions that reading an epoch can raise: a file is gone or damaged, or a job of Spark failed.

    What fails while Arrow is being fetched surfaces as Py4J's own error. Nothing of Spark's is among them as long as
    Spark has not been loaded, which takes a third of a second.
    """
    damaged = (MissingChangelogError, DamagedChangelogError, DamagedCheckpointError)
    if sys.modules.get("pyspark") is None:
        return damaged
    try:
        return (*damaged, *errors_of_spark())
    except ModuleNotFoundError:  # before Spark 3.4, which reads nothing here
        return damaged


def innermost(error: BaseException) -> str:
    """Return the first line of an error's innermost cause: Spark's own errors hide it behind several others."""
    if (java := java_cause(error)) is not None:
        return first_line(Exception(java))
    while error.__cause__ is not None:
        error = error.__cause__
    return first_line(error)


def worker_was_late(error: Exception) -> bool:
    """Return whether a query failed because Spark waited too long for a Python process that it had started.

    Spark waits ten seconds, which no setting changes, and a busy machine may need longer. What the query was about to
    do has not begun, so it can be started again.
    """
    return _LATE_WORKER in str(error)


class TooLargeError(Exception):
    """Spark refuses to let the driver fetch so much."""


def fetched(frame: DataFrame) -> pa.Table:
    """Return a frame's rows.

    Raises:
        TooLargeError: Spark refuses to let the driver fetch so much.
    """
    from streamstate.snapshots.spark.fetching import to_arrow

    try:
        return to_arrow(frame)
    except failures() as error:
        if _MAX_RESULT in str(error):
            raise TooLargeError from error
        raise


def executor_error(error: Exception) -> CaptureError | None:
    """Return the error to raise instead of Spark's; None if the cause is not on the executors."""
    if _MAX_RESULT in str(error):
        return CaptureError(
            "The executors report more about one epoch than the driver accepts: 8 bytes for each changed key.\n"
            "Start the capturing session with a larger spark.driver.maxResultSize, such as 4g."
        )
    from pyspark.errors import PythonException

    text = str(error)
    if not isinstance(error, PythonException) and _IN_PYTHON not in text:
        return None
    missing = _MISSING.search(text)
    if missing is not None:
        module = missing["name"] or missing["text"]
        return CaptureError(
            f"The executors' Python lacks {module!r}, so they cannot write a large capture.\n"
            "Install streamstate on the executors, in the driver's version, for the Python that PYSPARK_PYTHON names;"
            " or let the driver do all the work: spark.conf.set('spark.streamstate.rowsInDriver', 10**12)."
        )
    lines = [line.strip() for line in text.splitlines() if re.match(r"\s*[\w.]*(Error|Exception)\b.*:", line)]
    return CaptureError(f"A task of the capture failed on an executor: {lines[-1] if lines else text.splitlines()[0]}")
