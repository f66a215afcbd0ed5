"""Messages between a drill and its processes: the query, the task, and events that report progress."""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamstate.errors import InvalidArgumentError, first_line
from streamstate.snapshots.calls.checks import check_function

_MAKE_ALL = "Let it create everything that it needs, starting with spark = streamstate.session()"


@dataclass(frozen=True)
class Task:
    """The task of a process: run the query from a checkpoint to the end, and compare the states if requested."""

    build_query: str
    """The file with the pickled function."""
    checkpoint: str
    settings: dict[str, str]
    """Spark's settings."""
    mode: str
    """The output mode."""
    epochs: int | None
    """Stop after this many epochs; None: at the end of the input."""
    compare_with: str | None = None
    """The checkpoint of the undisturbed run."""
    compare_later: str | None = None
    """Of the undisturbed run: the other checkpoint, compared once the file ``compare`` stands beside it."""
    drilled: Mapping[str, Any] | None = None
    """The fields of the :class:`DrilledQuery` that notes results and commits; None: the results are discarded."""
    store: str | None = None
    """The store to capture into."""
    storage_options: Mapping[str, str] | None = None
    lease: float | None = None
    """The time to live of the lease, in seconds."""


@dataclass(frozen=True)
class Event:
    """Something that happened in a process."""

    what: str
    """``began`` (Python runs and has the function), ``spark`` (the session exists), ``started`` (the query too),
    ``epoch``, ``ended``, ``compared`` or ``failed``."""
    at: float
    """The time, in seconds since 1970."""
    facts: dict[str, Any]


def report(path: Path, what: str, **facts: Any) -> None:
    """Append an event to a process's file."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"what": what, "at": time.time(), "facts": facts}) + "\n")


def events_of(path: Path) -> list[Event]:
    """Return the events in a process's file so far; a line that is still being written is left for the next call."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except FileNotFoundError:
        return []
    return [Event(**json.loads(line)) for line in lines if line.endswith("\n")]


def pickled(build_query: Callable[..., Any]) -> bytes:
    """Return the function as bytes, for another process.

    A function of an importable module is sent by name; one of a notebook or a script by value, with what it refers to.
    """
    check_function(build_query, "drill(lambda: …) or drill(name)")
    if tied := sorted(_spark_objects(build_query)):
        raise InvalidArgumentError(
            f"build_query runs in other processes, and {', '.join(tied)} cannot be sent there.\n{_MAKE_ALL}."
        )
    from pyspark import cloudpickle

    try:
        return bytes(cloudpickle.dumps(build_query))  # type: ignore[no-untyped-call]
    except Exception as error:  # an object may refuse to be pickled with any exception
        raise InvalidArgumentError(
            f"build_query runs in other processes and cannot be sent there: {first_line(error)}\n"
            f"{_MAKE_ALL}. It may refer to plain values, functions and classes."
        ) from error


def _spark_objects(build_query: Callable[..., Any]) -> Iterator[str]:
    """Yield the names by which the function refers to objects of this process's Spark."""
    if not inspect.isfunction(build_query) or not _sent_by_value(build_query):
        return
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

    variables = inspect.getclosurevars(build_query)
    for name, value in {**variables.globals, **variables.nonlocals}.items():
        if isinstance(value, (SparkSession, SparkContext, DataFrame)):
            yield f"{name} (a {type(value).__name__})"


def _sent_by_value(function: Any) -> bool:
    return function.__module__ == "__main__" or "<locals>" in function.__qualname__ or function.__name__ == "<lambda>"
