"""How an epoch can be named: by its number, by a moment, or counted back from the newest one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from streamstate.snapshots.errors import InvalidArgumentError
from streamstate.state_inspect.timestamps import aware

_LIVE = re.compile(r"live(?:\s*[-−]\s*(?P<back>\d+))?", re.IGNORECASE)


@dataclass(frozen=True)
class FromLive:
    """An epoch counted back from the newest captured one."""

    back: int
    """Epoch numbers to go back; 0 is the newest itself."""

    def epoch(self, newest: int) -> int:
        """The epoch's number where ``newest`` is the newest captured one; it need not be captured."""
        return newest - self.back


Moment = int | datetime | FromLive
"""An epoch's number, a moment at which it was in force, or its distance from the newest."""


def moment(given: object) -> Moment:
    """What somebody means who names an epoch.

    Args:
        given: a whole number; an aware datetime; a :class:`FromLive`; or text: ``"12"``, ``"live"``, ``"live - 10"``
            (ten epoch numbers before the newest captured one), or a timestamp in ISO 8601 with a zone.

    Raises:
        NaiveTimestampError: where a timestamp names no time zone.
        InvalidArgumentError: where it is none of these.

    Example:
        >>> moment("live - 10")
        FromLive(back=10)
        >>> moment("12")
        12
    """
    if isinstance(given, datetime):
        return aware(given)
    if isinstance(given, (int, FromLive)) and not isinstance(given, bool):
        return given
    if isinstance(given, str):
        found = epoch_named(given)
        return aware(given) if found is None and re.match(r"\s*\d{4}", given) else _known(found, given)
    raise _cannot_be_meant(given)


def epoch_named(text: str) -> int | FromLive | None:
    """The epoch that a text names by number, or by its distance from the newest; None where it does neither.

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
    """The number of the epoch that a text names.

    Args:
        text: ``"12"``, ``"live"`` or ``"live - 10"``.
        newest: the newest captured epoch.

    Raises:
        InvalidArgumentError: where the text is neither.

    Example:
        >>> relative_epoch("live - 10", 99)
        89
    """
    found = _known(epoch_named(text), text)
    return found.epoch(newest) if isinstance(found, FromLive) else found


def _known(found: int | FromLive | None, given: object) -> int | FromLive:
    if found is None:
        raise _cannot_be_meant(given)
    return found


def _cannot_be_meant(given: object) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{given!r} cannot be meant as an epoch: give a whole number such as 12, 'live - 10' for the tenth before the"
        " newest, or a moment with its zone, such as 2026-03-01T12:00:00+01:00."
    )
