"""Epochs of several queries that belong to the same moment, of event time or of the clock."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise

from streamstate.snapshots.manifest import Entry

_EVER = datetime.min.replace(tzinfo=UTC)


class EventTime:
    """A query's epochs by the watermark that was in force during each; before the first there is none yet.

    Args:
        entries: the query's manifest, ascending.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.times = {one.epoch: one.watermark for one in entries if one.captured}
        """Each captured epoch's moment; None where it has none."""
        self._epochs = [*self.times]
        # Watermarks never go back.
        self._moments = [moment or _EVER for moment in self.times.values()]

    def at(self, moment: datetime) -> int | None:
        """The newest epoch whose watermark had not passed the moment; None where the first had."""
        after = bisect_right(self._moments, moment)
        return self._epochs[after - 1] if after else None


class CommitTime:
    """A query's epochs by when Spark committed each.

    Args:
        entries: the query's manifest, ascending.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.times = {one.epoch: one.committed_at for one in entries if one.captured}
        """Each captured epoch's moment; None where Spark had purged it."""
        known = [(one.epoch, one.committed_at) for one in entries if one.captured and one.committed_at]
        self._epochs = [epoch for epoch, _ in known]
        self._moments = [moment for _, moment in known]
        self._unsure = {
            one.epoch for one, after in pairwise(entries) if not after.captured or after.epoch != one.epoch + 1
        }

    def at(self, moment: datetime) -> int | None:
        """The epoch in force at the moment; None where there was none, or one that is not captured may have been."""
        after = bisect_right(self._moments, moment)
        return None if not after or self._epochs[after - 1] in self._unsure else self._epochs[after - 1]


Clocks = Mapping[str, EventTime] | Mapping[str, CommitTime]
"""How each query's epochs lie in time."""


def newest_moment(clocks: Clocks) -> datetime | None:
    """The newest moment that all queries have come to; None where one has no time at all."""
    newest = [max(filter(None, clock.times.values()), default=None) for clock in clocks.values()]
    return None if None in newest else min(one for one in newest if one is not None)


def epochs_at(clocks: Clocks, moment: datetime, fixed: Mapping[str, int]) -> dict[str, int] | None:
    """Each query's epoch at a moment, but for those that are fixed; None where one is not known."""
    found = {name: fixed[name] if name in fixed else clock.at(moment) for name, clock in clocks.items()}
    known = {name: epoch for name, epoch in found.items() if epoch is not None}
    return known if len(known) == len(found) else None


def nearest_in_time(clocks: Clocks, moment: datetime) -> list[dict[str, int]]:
    """The epochs at the last moment before one, and at the first after it, at which all are known."""
    times = sorted({time for clock in clocks.values() for time in clock.times.values() if time is not None})
    before = _first(clocks, (one for one in reversed(times) if one < moment))
    after = _first(clocks, (one for one in times if one > moment))
    return [found for found in (before, after) if found is not None]


def _first(clocks: Clocks, moments: Iterable[datetime]) -> dict[str, int] | None:
    return next((found for one in moments if (found := epochs_at(clocks, one, {})) is not None), None)
