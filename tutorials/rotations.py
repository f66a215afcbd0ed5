"""What each aircraft has been doing: the stateful processor behind the ``rotations`` query.

Spark's Python workers run it and import it by name, so it has a module to itself that imports little.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["AWAY_AFTER", "INPUT", "KEPT_LEGS", "OUTPUT", "Rotations"]

KEPT_LEGS = 5
"""How many legs of an aircraft are remembered."""

AWAY_AFTER = timedelta(days=1)
"""How long after its last departure an aircraft counts as away."""

INPUT = ("scheduled_ms", "carrier", "flight", "origin", "dest", "dep_delay")
"""The columns a leg is made of; the time in milliseconds, since a timestamp column would arrive without its zone."""

OUTPUT = "tailnum string, last_airport string, accumulated_delay double, flights long, away_since timestamp"
"""What the query emits: an aircraft's rotation when it has ended."""

_AIRCRAFT = "last_airport string, accumulated_delay double, flights long, away_at timestamp"
_LEG = "scheduled timestamp, carrier string, flight int, origin string, dest string, dep_delay double"


class Rotations(StatefulProcessor):
    """Follows each aircraft by its tail number.

    Per tail number the state holds ``aircraft`` (a value: where it went last, the delay it accumulated), ``legs``
    (a list: the last five), ``visits`` (a map: how often it went to each airport) and a timer for a day after its
    last departure. When the timer goes off, the rotation has ended: value and list are cleared, the visits stay.
    """

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state; Spark calls this once for each task."""
        self._handle = handle
        self._aircraft = handle.getValueState("aircraft", _AIRCRAFT)
        self._legs = handle.getListState("legs", _LEG)
        self._visits = handle.getMapState("visits", "airport string", "visits long")

    def handleInputRows(self, key: tuple[Any, ...], rows: Iterator[Any], timerValues: Any) -> Iterator[pd.DataFrame]:
        """Take in the departures of one aircraft in one epoch; what they change is state, so nothing is emitted."""
        legs = _legs_of(rows)
        before = self._aircraft.get()
        delay, flights = (before[1], before[2]) if before else (0.0, 0)
        away_at = self._away_at(legs)
        self._aircraft.update((legs[-1][4], delay + sum(leg[5] for leg in legs), flights + len(legs), away_at))
        self._remember(legs)
        self._count_visits(legs)
        self._set_timer(_utc(before[3]) if before else None, away_at)
        return iter(())

    def handleExpiredTimer(
        self, key: tuple[Any, ...], timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[pd.DataFrame]:
        """End the rotation of an aircraft that was not seen for a day, and emit it."""
        import pandas as pd

        ended = self._aircraft.get()
        assert ended is not None, "the timer is set with the value"
        airport, delay, flights, away_at = ended
        self._aircraft.clear()
        self._legs.clear()
        columns = ["tailnum", "last_airport", "accumulated_delay", "flights", "away_since"]
        yield pd.DataFrame([(key[0], airport, delay, flights, _utc(away_at) - AWAY_AFTER)], columns=columns)

    def _away_at(self, legs: list[tuple[Any, ...]]) -> datetime:
        """When the aircraft counts as away: in the time of its flights, not of the machine that runs this."""
        last: datetime = legs[-1][0]
        return last + AWAY_AFTER

    def _remember(self, legs: list[tuple[Any, ...]]) -> None:
        """Keep the last legs; those of before are read only where this epoch's do not fill the list."""
        if len(legs) < KEPT_LEGS:
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


def _legs_of(rows: Iterator[pd.DataFrame]) -> list[tuple[Any, ...]]:
    """The departures of all frames in the order of time, as tuples of Python's own types."""
    legs = sorted(leg for frame in rows for leg in zip(*(frame[name].tolist() for name in INPUT), strict=True))
    return [(datetime.fromtimestamp(leg[0] / 1000, UTC), *leg[1:]) for leg in legs]


def _utc(time: datetime) -> datetime:
    """A time that comes back from the state: Spark gives it in the worker's zone, without saying so."""
    return time.astimezone(UTC)


def _milliseconds(time: datetime) -> int:
    return round(time.timestamp() * 1000)
