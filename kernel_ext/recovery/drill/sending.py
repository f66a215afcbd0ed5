"""Sending the function that builds a query to another process."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from streamstate.snapshots.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["BuildQuery", "pickled"]

BuildQuery: TypeAlias = "Callable[[], DataFrame]"
"""A function without arguments that returns the streaming DataFrame, not started."""


def pickled(build_query: BuildQuery) -> bytes:
    """The function as bytes that a process of its own makes a function of again.

    A function of a module is sent by name, one of a notebook or a script by value, with whatever it refers to.

    Raises:
        InvalidArgumentError: it is no such function, or it depends on what cannot leave this process.
    """
    if not callable(build_query):
        raise InvalidArgumentError(
            f"build_query is a {type(build_query).__name__}, not a function.\n"
            "Give a function without arguments that returns the streaming DataFrame: drill(lambda: …) or drill(name)."
        )
    if tied := sorted(_tied_to_this_process(build_query)):
        raise InvalidArgumentError(
            f"build_query runs in processes of its own, and {', '.join(tied)} cannot go there.\n"
            "Let it make all it needs itself, beginning with spark = streamstate.session()."
        )
    from pyspark import cloudpickle

    try:
        return bytes(cloudpickle.dumps(build_query))  # type: ignore[no-untyped-call]
    except Exception as error:  # an object may refuse to be pickled with any exception
        raise InvalidArgumentError(
            f"build_query runs in processes of its own and cannot be sent there: {_first_line(error)}\n"
            "Let it make all it needs itself, beginning with spark = streamstate.session(); what it refers to must be "
            "plain values, functions and classes."
        ) from error


def _tied_to_this_process(build_query: BuildQuery) -> Iterator[str]:
    """The names that the function refers to whose values belong to this process's Spark."""
    if not inspect.isfunction(build_query) or not _sent_by_value(build_query):
        return
    known = inspect.getclosurevars(build_query)
    for name, value in {**known.globals, **known.nonlocals}.items():
        if _of_spark(value):
            yield f"{name} (a {type(value).__name__})"


def _sent_by_value(function: Any) -> bool:
    return function.__module__ == "__main__" or "<locals>" in function.__qualname__ or function.__name__ == "<lambda>"


def _of_spark(value: object) -> bool:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

    return isinstance(value, (SparkSession, SparkContext, DataFrame))


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
