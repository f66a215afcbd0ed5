"""The two queries of the incident room, as they were reviewed. To read them is no cheating.

Spark's Python workers import this module by name, so it has few imports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = "scheduled timestamp, carrier string, flight int, tailnum string, origin string, dest string, dep_delay double"
"""The columns of a departure. One that was cancelled has no ``dep_delay``."""

DAY_MS = 24 * 60 * 60 * 1000

_NEW_YORK_MS = 5 * 60 * 60 * 1000
"""How far New York is behind UTC in winter."""
_AIRCRAFT = "day string, departures int, airport string, leaves bigint"
_OUTPUT = "tailnum string, day string"

Leg = tuple[int, str, float | None]
"""A departure of an aircraft: when it was scheduled in milliseconds, where to, and its delay in minutes."""


def desk(carrier: str, flight: int) -> str:  # noqa: ARG001 - other airlines look at the number
    """The airline that a departure is counted for: the one that sells it."""
    return carrier


def board(
    departures: DataFrame, desk: Callable[[str, int], str] = desk, *, watermark: str | None = "1 day"
) -> DataFrame:
    """Departures per day, carrier and origin. A day leaves the state once the watermark has passed it.

    Args:
        departures: the stream.
        desk: says for which airline a departure counts.
        watermark: the delay; None if the stream has a watermark already.
    """
    day = F.window("scheduled", "1 day", startTime="5 hours").alias("day")
    counted_for = F.udf(lambda carrier, flight: desk(carrier, flight), "string")
    timed = departures if watermark is None else departures.withWatermark("scheduled", watermark)
    counted = timed.withColumn("carrier", counted_for("carrier", "flight"))
    return counted.groupBy(day, "carrier", "origin").agg(F.count("*").alias("departures"))


def follow(departures: DataFrame, processor: StatefulProcessor | None = None) -> DataFrame:
    """Each aircraft: its latest day, the departures on that day, and where it is going.

    An aircraft leaves the state a day after its last departure.

    Args:
        departures: the stream.
        processor: keeps the state; by default :class:`Following`.
    """
    legs = (
        departures.where("tailnum IS NOT NULL")
        .withColumn("scheduled_ms", F.unix_millis("scheduled"))
        .withWatermark("scheduled", "6 hours")
        .select("scheduled", "tailnum", "scheduled_ms", "dest", "dep_delay")
    )
    return legs.groupBy("tailnum").transformWithState(
        processor or Following(), outputStructType=_OUTPUT, outputMode="update", timeMode="eventTime"
    )


class Following(StatefulProcessor):
    """Follows each aircraft: a value, and a timer for when the aircraft leaves the state."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self._handle = handle
        self._aircraft = handle.getValueState("aircraft", _AIRCRAFT)

    def handleInputRows(self, key: tuple[Any, ...], rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        """Remember an epoch's departures of an aircraft, and move its timer."""
        legs: list[Leg] = [(row["scheduled_ms"], row["dest"], row["dep_delay"]) for row in rows]
        legs.sort(key=lambda leg: leg[0])
        known = self._aircraft.get()
        leaves = known[3] if known else 0
        departed = self.last_departure(legs)
        if departed is not None and departed + DAY_MS != leaves:
            if leaves:
                self._handle.deleteTimer(leaves)
            leaves = departed + DAY_MS
            self._handle.registerTimer(leaves)
        days = [_day(scheduled) for scheduled, *_ in legs]
        self._aircraft.update((days[-1], days.count(days[-1]), legs[-1][1], leaves))
        return iter(())

    def last_departure(self, legs: Sequence[Leg]) -> int | None:
        """When the aircraft last departed, in milliseconds; None if it did not."""
        return max((scheduled for scheduled, _, delay in legs if delay is not None), default=None)

    def handleExpiredTimer(self, key: tuple[Any, ...], timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        """Forget the aircraft, and emit its latest day."""
        known = self._aircraft.get()
        self._aircraft.clear()
        yield Row(tailnum=key[0], day=known[0] if known else None)


def _day(scheduled_ms: int) -> str:
    return datetime.fromtimestamp((scheduled_ms - _NEW_YORK_MS) / 1000, UTC).date().isoformat()
