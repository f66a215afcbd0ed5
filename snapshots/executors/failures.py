"""What Spark raises when executors cannot do their part, in words that help."""

from __future__ import annotations

import re

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, PythonException

from streamstate.snapshots.errors import CaptureError

FAILURES = (PySparkException, Py4JError)
"""What a job can raise: what fails while Arrow is being fetched comes as Py4J's own error."""

_IN_PYTHON = "org.apache.spark.api.python.PythonException"
_MISSING = re.compile(r"(?:ModuleNotFoundError|ImportError): (?:No module named '(?P<name>[^']+)'|(?P<text>.+))")


def refused(error: Exception) -> bool:
    """Whether the driver was about to fetch more than ``spark.driver.maxResultSize`` allows."""
    return "maxResultSize" in str(error)


def told(error: Exception) -> CaptureError | None:
    """The error to raise instead; None where it says nothing about the executors."""
    if refused(error):
        return CaptureError(
            "What the executors report of one epoch is more than the driver accepts: 8 bytes for each changed key.\n"
            "Start the capturing session with a larger spark.driver.maxResultSize (now reached), such as 4g."
        )
    text = str(error)
    if not isinstance(error, PythonException) and _IN_PYTHON not in text:
        return None
    missing = _MISSING.search(text)
    if missing is not None:
        lacks = missing["name"] or missing["text"]
        return CaptureError(
            f"The Python of the executors lacks {lacks!r}, so they cannot write a large capture.\n"
            "Install streamstate there, in the driver's version, for the Python that PYSPARK_PYTHON names; or have the"
            " driver do it all: spark.conf.set('spark.streamstate.rowsInDriver', 10**12)."
        )
    lines = [line.strip() for line in text.splitlines() if re.match(r"\s*[\w.]*(Error|Exception)\b.*:", line)]
    return CaptureError(f"A task of the capture failed on an executor: {lines[-1] if lines else text.splitlines()[0]}")
