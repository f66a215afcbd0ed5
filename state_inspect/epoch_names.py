"""Names of epochs: a number, a point in time, or a distance from the newest epoch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from streamstate.errors import InvalidArgumentError, NaiveTimestampError, worded

_LIVE = re.compile(r"live(?:\s*[-−]\s*(?P<back>\d+))?", re.IGNORECASE)


@dataclass(frozen=True)
class FromLive:
    """An epoch counted back from the newest captured epoch."""

    back: int
    """The number of epochs to go back; 0 is the newest epoch itself."""

    def epoch(self, newest: int) -> int:
        """Return the epoch's number, given the newest captured epoch. The result need not be captured."""
        return newest - self.back


Moment = int | datetime | FromLive
"""An epoch's number, a point in time, or a distance from the newest epoch."""


def moment(value: object) -> Moment:
    """Return the epoch or time that a value names.

    An integer; an aware datetime; a :class:`FromLive`; or text: ``"12"``, ``"live"``, ``"live - 10"`` (ten epoch
    numbers before the newest captured epoch), or an ISO 8601 timestamp with a time zone.
    """
    if isinstance(value, datetime):
        return aware(value)
    if isinstance(value, (int, FromLive)) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        epoch = epoch_named(value)
        return aware(value) if epoch is None and re.match(r"\s*\d{4}", value) else _required(epoch, value)
    raise _invalid(value)


def epoch_named(text: str) -> int | FromLive | None:
    """Return the epoch that a text names by number or by its distance from the newest; None if it names neither.

    Example:
        >>> epoch_named("live - 10"), epoch_named("12"), epoch_named("noon")
        (FromLive(back=10), 12, None)
    """
    live = _LIVE.fullmatch(text.strip())
    if live is not None:
        return FromLive(int(live["back"] or 0))
    try:
        return int(text)
    except ValueError:
        return None


def relative_epoch(text: str, newest: int) -> int:
    """Return the number of the epoch that a text names, given the newest captured epoch."""
    epoch = _required(epoch_named(text), text)
    return epoch.epoch(newest) if isinstance(epoch, FromLive) else epoch


def aware(timestamp: datetime | str) -> datetime:
    """Return the timestamp; raise if it has no time zone."""
    if isinstance(timestamp, str):
        try:
            timestamp = datetime.fromisoformat(timestamp.strip())
        except ValueError as error:
            raise InvalidArgumentError(
                f"Invalid timestamp {timestamp!r}: expected ISO 8601 with a time zone, such as"
                " 2026-03-01T12:00:00+01:00."
            ) from error
    if timestamp.tzinfo is None or timestamp.utcoffset() is None:
        raise NaiveTimestampError(
            f"The timestamp {timestamp.isoformat(' ')} has no time zone, so it is ambiguous.\n"
            f"Add an offset, such as '{timestamp.isoformat(' ')}+00:00'"
            f"{worded(', or tzinfo=datetime.UTC', line='')}."
        )
    return timestamp


def _required(epoch: int | FromLive | None, value: object) -> int | FromLive:
    if epoch is None:
        raise _invalid(value)
    return epoch


def _invalid(value: object) -> InvalidArgumentError:
    """Return the error for a value that names no epoch."""
    return InvalidArgumentError(
        f"Invalid epoch {value!r}: expected an integer such as 12, 'live - 10' for the tenth epoch before the newest,"
        " or a timestamp with a time zone, such as 2026-03-01T12:00:00+01:00."
    )
