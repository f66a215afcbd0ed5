"""Why a query failed, in one line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["failure_of", "in_one_line"]

_PYTHON = "Traceback (most recent call last):"
_TASK_LOST = re.compile(r"most recent failure: Lost task [^(]*\(TID \d+\) \([^)]*\): (.*)")


def failure_of(query: StreamingQuery) -> str | None:
    """Why the query failed; None where it did not."""
    error = query.exception()
    return None if error is None else in_one_line(str(error))


def in_one_line(message: str) -> str:
    """The line of Spark's message that says what went wrong.

    Spark wraps the error in its own words, the query's plan and stacks: a Python error's line is the last of its
    traceback, another one's stands behind the task that was lost.
    """
    text = message.partition("=== Streaming Query ===")[0].rpartition("terminated with exception: ")[2]
    if _PYTHON in text:
        lines = [line.rstrip() for line in text.partition(_PYTHON)[2].splitlines()]
        said = [line for line in lines if line and not line.startswith((" ", "\t", "SQLSTATE"))]
    else:
        lost = _TASK_LOST.search(text)
        said = [lost[1]] if lost else [line.strip() for line in text.splitlines() if line.strip()][:1]
    return said[-1].partition(" SQLSTATE:")[0].strip() if said else "no reason given"
