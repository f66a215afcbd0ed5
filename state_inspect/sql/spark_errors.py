"""Spark's errors as those of the library."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from pyspark.errors import PySparkException

from streamstate.errors import InvalidSQLError, SessionError, StoreError, StreamStateError, UnknownColumnError
from streamstate.snapshots.spark.connect import errors_of_spark


@contextlib.contextmanager
def spark_errors(columns: list[str] | None = None) -> Iterator[None]:
    """Translate Spark's errors."""
    try:
        yield
    except errors_of_spark() as error:
        raise _failed(error, columns or []) from error


def _failed(error: Exception, columns: list[str]) -> StreamStateError:
    """Return the error for a condition of Spark's, which Java's exceptions carry somewhere in their text."""
    text = str(error).strip()
    found = re.search(r"\[([A-Z][A-Z_0-9.]+)\] [^\n]*", text)
    condition, line = (found[1], found[0]) if found else ("", (text.splitlines() or ["it failed"])[0])
    if condition.startswith("UNRESOLVED_COLUMN"):
        values = (error.getMessageParameters() or {}) if isinstance(error, PySparkException) else {}
        named = str(values.get("objectName", "")).rpartition(".")[2].strip("`")
        return UnknownColumnError.among("column", named, dict.fromkeys(columns))
    if condition.startswith(("FAILED_READ_FILE", "PATH_NOT_FOUND")):
        return StoreError(f"Files of the store could not be read: {line}\nRun the statement again.")
    if not isinstance(error, PySparkException) and not condition:
        causes = [cause for cause in text.splitlines() if cause.startswith((": ", "Caused by: "))]
        return SessionError(
            f"Spark cannot run this: {(causes or [line])[-1].strip(': ')}\n"
            "For object stores, set Spark's own settings, such as spark.hadoop.fs.s3a.…: the store's storage_options"
            " do not apply to Spark."
        )
    return InvalidSQLError(line)
