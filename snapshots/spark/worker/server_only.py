"""Classes, data sources and tables that a call in the worker lacks, because only the Spark Connect server has them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from streamstate.errors import SparkConnectError

_CLASS = (
    re.compile(r"Failed to find (?:the )?data source: (?P<name>[\w.$-]*\w)"),
    re.compile(r"Cannot find catalog plugin class for catalog '?\S+?'?: (?P<name>[\w.$-]*\w)"),
    re.compile(r"(?:ClassNotFoundException|NoClassDefFoundError): (?P<name>[\w.$/-]*\w)"),
)
_TABLE = (re.compile(r"\[TABLE_OR_VIEW_NOT_FOUND\] The table or view (?P<name>\S+) cannot be found"),)


def lacks_class(error: BaseException) -> bool:
    """Return whether a call failed because the worker's Spark has no such class or data source."""
    return _found(_CLASS, error) is not None


def of_server_only(error: BaseException, *, ends: bool) -> BaseException:
    """Return the error to raise if the worker lacks what the server may have; any other error as it is.

    Args:
        error: the call's error.
        ends: whether the worker ends with the call, so that the next one starts with other settings.
    """
    if (name := _found(_CLASS, error)) is not None:
        then = "call again" if ends else "call it first in a new process"
        return SparkConnectError(
            f"The worker process, in which this call runs, cannot find {name}: it has only the jars that it is given.\n"
            "Give it those of the server: set os.environ['PYSPARK_SUBMIT_ARGS'] = '--packages GROUP:ARTIFACT:VERSION"
            f" pyspark-shell', or '--jars PATH pyspark-shell', and {then}."
        )
    if (name := _found(_TABLE, error)) is not None:
        return SparkConnectError(
            f"The worker process, in which this call runs, does not know {name} or any other table of the server.\n"
            "Read the table's data by path inside build_query."
        )
    return error


def _found(patterns: tuple[re.Pattern[str], ...], error: BaseException) -> str | None:
    matches = (pattern.search(text) for text in _texts(error) for pattern in patterns)
    return next((match["name"] for match in matches if match), None)


def _texts(error: BaseException | None) -> Iterator[str]:
    """Yield the texts of an error and its causes."""
    while error is not None:
        yield str(error)
        error = error.__cause__
