"""Types and checks of arguments that many calls share."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias

from streamstate.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BuildQuery: TypeAlias = "Callable[[], DataFrame]"
"""A function without arguments that returns the query's streaming DataFrame, not started."""


def check_function(build_query: object, example: str) -> None:
    """Raise unless the code of a query is a function; the message ends with an example of one."""
    if not callable(build_query):
        raise InvalidArgumentError(
            f"Invalid build_query of type {type(build_query).__name__}: expected a function.\n"
            f"Pass a function without arguments that returns the streaming DataFrame: {example}."
        )


_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "min": "minutes", "h": "hours", "d": "days"}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d)")

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b", re.IGNORECASE)


def whole_number(value: object, name: str, *, least: int = 1, most: int | None = None) -> int:
    """Return the value; raise unless it is an integer within bounds. A bool is not one.

    Example:
        >>> whole_number(8, "partitions")
        8
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise InvalidArgumentError(f"Invalid {name}={value!r}: expected an integer {bounds}.")
    return value


def duration(text: str) -> timedelta | None:
    """Return a duration such as 500ms, 10s, 2m, 3h or 2d; None if the text is not one.

    Example:
        >>> duration("2m")
        datetime.timedelta(seconds=120)
    """
    match = _DURATION.fullmatch(text.strip())
    with contextlib.suppress(OverflowError):  # of more days than Python counts
        return timedelta(**{_UNITS[match[2]]: float(match[1])}) if match else None
    return None


def time_span(value: object, name: str, *, numbers: bool = True, zero: bool = False) -> float:
    """Return the seconds of a span of time: a text such as 500ms or 30d, a timedelta, or a number of seconds.

    Args:
        value: the value of an argument.
        name: the argument's name, for the message.
        numbers: take numbers as seconds; otherwise they are refused, because they could mean days.
        zero: take a span of no time, too.

    Raises:
        InvalidArgumentError: it is none of these, or not above zero.

    Example:
        >>> time_span("2m", "latency"), time_span(2.5, "latency")
        (120.0, 2.5)
    """
    span = duration(value) if isinstance(value, str) else value
    if isinstance(span, timedelta):
        if not (zero and span == timedelta(0)):
            positive_duration(span, f"{name}={value!r}")
        return span.total_seconds()
    if numbers and isinstance(span, (int, float)) and not isinstance(span, bool) and 0 < span < math.inf:
        return float(span)
    expected = "seconds above zero, or a duration" if numbers else "a duration"
    raise InvalidArgumentError(
        f"Invalid {name}={value!r}: expected {expected} such as 500ms, 5m, 24h, 30d or a timedelta."
    )


def byte_size(text: str) -> int | None:
    """Return a size such as 800MB, 10GB (10⁹ bytes each) or 2GiB (2³⁰) in bytes; None if the text is not one.

    Example:
        >>> byte_size("1.5 GB"), byte_size("2KiB"), byte_size("much")
        (1500000000, 2048, None)
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    power = " kmgt".index(match[2].lower() or " ")
    return int(float(match[1]) * (1024 if match[3] else 1000) ** power)


def positive_duration(value: timedelta, argument: str) -> timedelta:
    """Return the duration; raise unless it is above zero. ``argument``, such as ``every='0s'``, is for the message."""
    if value <= timedelta(0):
        raise InvalidArgumentError(f"Invalid {argument}: expected a duration longer than zero.")
    return value
