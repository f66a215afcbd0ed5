"""Spans of time as people write them: 500ms, 10s, 2m, 3h, 2d."""

from __future__ import annotations

import re
from datetime import timedelta

from streamstate.snapshots.errors import InvalidArgumentError

_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "min": "minutes", "h": "hours", "d": "days"}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d)")


def duration(text: str) -> timedelta | None:
    """The span that a text means; None where it is none.

    Example:
        >>> duration("2m")
        datetime.timedelta(seconds=120)
    """
    found = _DURATION.fullmatch(text.strip())
    return timedelta(**{_UNITS[found[2]]: float(found[1])}) if found else None


def positive(span: timedelta, what: str) -> timedelta:
    """The span, where it is longer than nothing.

    Raises:
        InvalidArgumentError: where it is not.
    """
    if span <= timedelta(0):
        raise InvalidArgumentError(f"{what} cannot be meant: give a span of time that is longer than nothing.")
    return span
