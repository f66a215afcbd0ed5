"""Times as numbers since 1970, as Spark and DuckDB have them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_START = datetime(1970, 1, 1, tzinfo=UTC)


def milliseconds(moment: datetime) -> int:
    """Return the whole milliseconds since 1970 of a time; one without a zone is UTC."""
    return microseconds(moment) // 1000


def microseconds(moment: datetime) -> int:
    """Return the microseconds since 1970 of a time; one without a zone is UTC."""
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _START) // timedelta(microseconds=1)


def from_microseconds(number: float) -> datetime:
    """Return the time of a number of microseconds since 1970."""
    return _START + timedelta(microseconds=number)
