"""Classes and data sources that the worker's Spark lacks, because only the server was given their jars."""

from __future__ import annotations

import re
from collections.abc import Iterator

from streamstate.errors import SparkConnectError

_MISSING = (
    re.compile(r"Failed to find (?:the )?data source: (?P<name>[\w.$-]*\w)"),
    re.compile(r"Cannot find catalog plugin class for catalog '?\S+?'?: (?P<name>[\w.$-]*\w)"),
    re.compile(r"(?:ClassNotFoundException|NoClassDefFoundError): (?P<name>[\w.$/-]*\w)"),
)


def missing_jars(error: BaseException, *, ends: bool) -> SparkConnectError | None:
    """Return the error to raise instead of one about a class that the worker lacks; None for all others.

    Args:
        error: the call's error.
        ends: whether the worker ends with the call, so that the next one starts with other settings.
    """
    found = next((match["name"] for text in _texts(error) for at in _MISSING if (match := at.search(text))), None)
    if found is None:
        return None
    then = "and call again" if ends else "in a new process, before its first call"
    return SparkConnectError(
        f"The worker process, in which this call runs, cannot find {found}: it has only the jars that you name.\n"
        "Name the jars that the server has: set"
        " os.environ['PYSPARK_SUBMIT_ARGS'] = '--packages GROUP:ARTIFACT:VERSION pyspark-shell', or '--jars PATH"
        f" pyspark-shell', {then}."
    )


def _texts(error: BaseException | None) -> Iterator[str]:
    """Yield the texts of an error and its causes."""
    while error is not None:
        yield str(error)
        error = error.__cause__
