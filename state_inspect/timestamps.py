"""Points in time: aware of their zone, or refused."""

from __future__ import annotations

from datetime import datetime

from streamstate.snapshots.errors import InvalidArgumentError, NaiveTimestampError


def aware(timestamp: datetime | str) -> datetime:
    """The timestamp, which has to name its zone.

    Raises:
        NaiveTimestampError: where it names none.
        InvalidArgumentError: where the text is no timestamp.
    """
    if isinstance(timestamp, str):
        timestamp = _parsed(timestamp)
    if timestamp.tzinfo is None or timestamp.utcoffset() is None:
        raise NaiveTimestampError(
            f"The timestamp {timestamp.isoformat(' ')} has no time zone, so it could mean several moments.\n"
            f"Add an offset, such as '{timestamp.isoformat(' ')}+00:00', or in Python tzinfo=datetime.UTC."
        )
    return timestamp


def _parsed(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise InvalidArgumentError(
            f"{text!r} is no timestamp.\nWrite it in ISO 8601 with a zone, such as 2026-03-01T12:00:00+01:00."
        ) from error
