"""What each aircraft has been doing: the stateful processor of the ``rotations`` query.

Spark's Python workers import it by name, so it has a module of its own with few imports. It takes rows rather than
pandas frames, because an aircraft has only a few rows per epoch and a frame for each would cost more than they do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

KEPT_LEGS = 5
"""How many legs of an aircraft are kept."""

AWAY_AFTER = timedelta(days=1)
"""How long after its last departure an aircraft counts as away."""

INPUT = ("scheduled_ms", "carrier", "flight", "origin", "dest", "dep_delay")
"""The columns of a leg; the time in milliseconds, because a timestamp would arrive without its time zone."""

OUTPUT = "tailnum string, last_airport string, accumulated_delay double, flights long, away_since timestamp"
"""What the query emits: an aircraft's rotation once it has ended."""

_AIRCRAFT = "last_airport string, accumulated_delay double, flights long, away_at timestamp"
_LEG = "scheduled timestamp, carrier string, flight int, origin string, dest string, dep_delay double"


class Rotations(StatefulProcessor):
    """Follows each aircraft by its tail number.

    For each tail number the state holds ``aircraft`` (a value: its last airport and accumulated delay), ``legs`` (a
    list: the last five), ``visits`` (a map: how often it went to each airport) and a timer, one day after its last
    departure. When the timer expires, the rotation has ended: the value and the list are cleared, the visits stay.
    """

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state; Spark calls this once per task."""
        self._handle = handle
        self._aircraft = handle.getValueState("aircraft", _AIRCRAFT)
        self._legs = handle.getListState("legs", _LEG)
        self._visits = handle.getMapState("visits", "airport string", "visits long")

    def handleInputRows(self, key: tuple[Any, ...], rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        """Add an epoch's departures of an aircraft to its state; nothing is emitted."""
        legs = _legs_of(rows)
        before = self._aircraft.get()
        delay, flights = (before[1], before[2]) if before else (0.0, 0)
        away_at = self._away_at(legs)
        self._aircraft.update((legs[-1][4], delay + sum(leg[5] for leg in legs), flights + len(legs), away_at))
        self._remember(legs, known=before is not None)
        self._count_visits(legs)
        self._set_timer(_utc(before[3]) if before else None, away_at)
        return iter(())

    def handleExpiredTimer(self, key: tuple[Any, ...], timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        """End the rotation of an aircraft that has not departed for a day, and emit it."""
        ended = self._aircraft.get()
        assert ended is not None, "the timer is set with the value"
        airport, delay, flights, away_at = ended
        self._aircraft.clear()
        self._legs.clear()
        yield Row(
            tailnum=key[0],
            last_airport=airport,
            accumulated_delay=delay,
            flights=flights,
            away_since=_utc(away_at) - AWAY_AFTER,
        )

    def _away_at(self, legs: list[tuple[Any, ...]]) -> datetime:
        """When the aircraft counts as away, in event time. The tutorial on replay overrides it with a bug."""
        last: datetime = legs[-1][0]
        return last + AWAY_AFTER

    def _remember(self, legs: list[tuple[Any, ...]], *, known: bool) -> None:
        """Keep the last legs; earlier ones are read only if they exist and this epoch's legs do not fill the list."""
        if known and len(legs) < KEPT_LEGS:
            legs = [(_utc(leg[0]), *leg[1:]) for leg in self._legs.get()] + legs
        self._legs.put(legs[-KEPT_LEGS:])

    def _count_visits(self, legs: list[tuple[Any, ...]]) -> None:
        for airport, times in Counter(leg[4] for leg in legs).items():
            known = self._visits.getValue((airport,))
            self._visits.updateValue((airport,), ((known[0] if known else 0) + times,))

    def _set_timer(self, before: datetime | None, after: datetime) -> None:
        if before == after:
            return
        if before is not None:
            self._handle.deleteTimer(_milliseconds(before))
        self._handle.registerTimer(_milliseconds(after))


def _legs_of(rows: Iterator[Row]) -> list[tuple[Any, ...]]:
    """The departures in order of time, as tuples."""
    legs = sorted(tuple(row[name] for name in INPUT) for row in rows)
    return [(datetime.fromtimestamp(leg[0] / 1000, UTC), *leg[1:]) for leg in legs]


def _utc(time: datetime) -> datetime:
    """A time read from the state, which Spark returns in the worker's time zone without saying so."""
    return time.astimezone(UTC)


def _milliseconds(time: datetime) -> int:
    return round(time.timestamp() * 1000)
