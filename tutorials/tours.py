"""What the demo runs, and what it shows of each query."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from streamstate.tutorials import flights

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["DAYS_PER_FILE", "TOURS", "Tour"]

DAYS_PER_FILE = 14
"""Two weeks a file: 27 files for the year, few enough epochs for a demo and enough for a story."""


@dataclass(frozen=True)
class Tour:
    """One query of the demo, and the places in its history that are worth a look."""

    name: str
    about: str
    query: Callable[..., DataFrame]
    """A function of :mod:`streamstate.tutorials.flights`."""
    table: str
    """The state table to show."""
    top: str
    """The column whose largest values are shown."""
    past: int
    """The epoch to go back to."""
    between: tuple[int, int]
    """The epochs to compare."""
    story: str
    """What happened between them."""
    key_table: str
    key: dict[str, Any]
    """The key whose history is shown, and its table."""
    sql: str
    """A statement; ``{past}`` is the epoch to go back to."""
    columns: tuple[str, ...] = ()
    """The columns to show, where not all."""
    mode: str = "update"
    files: int = 1
    """How many files an epoch takes in."""
    ranked: tuple[str, str] | None = None
    """A name and an expression over the diff's columns by which changed keys are ranked."""


_STORM = datetime(2013, 2, 8, 17, tzinfo=UTC)

TOURS = (
    Tour(
        name="delays",
        about="departures and their delays per carrier and airport: a keyed aggregate",
        query=flights.delays,
        table="op0",
        top="count",
        past=2,
        between=(1, 2),
        story="29 January to 11 February, with the snow storm of the 8th",
        ranked=("cancelled", "count_new - count_old - (count_2_new - count_2_old)"),
        key_table="op0",
        key={"carrier": "EV", "origin": "EWR"},
        sql=(
            "SELECT origin, sum(count) AS departures, sum(count - count_2) AS cancelled,\n"
            "       round(sum(sum) / sum(count_2), 1) AS average_delay\n"
            "FROM delays VERSION AS OF {past} GROUP BY origin ORDER BY origin"
        ),
    ),
    Tour(
        name="delays_daily",
        about="the same per day: windows, which the watermark ends",
        query=flights.delays_daily,
        table="op0",
        top="max",
        past=4,
        between=(4, 5),
        story="the days from 26 February on have ended, those from 12 March on have begun",
        key_table="op0",
        key={
            "window": {"start": datetime(2013, 3, 8, 5, tzinfo=UTC), "end": datetime(2013, 3, 9, 5, tzinfo=UTC)},
            "carrier": "EV",
            "origin": "EWR",
        },
        sql=(
            "SELECT strftime(window.start, '%d %B') AS day, sum(count - count_2) AS cancelled,\n"
            "       round(sum(sum) / sum(count_2), 1) AS average_delay\n"
            "FROM delays_daily VERSION AS OF {past} GROUP BY day ORDER BY average_delay DESC LIMIT 3"
        ),
    ),
    Tour(
        name="weather",
        about="departures joined with the weather of their airport and hour: a join of two streams",
        query=flights.weather,
        mode="append",
        table="op0_left",
        columns=("scheduled", "origin", "index", "carrier", "flight", "tailnum", "dest", "dep_delay", "matched"),
        top="dep_delay",
        past=2,
        between=(2, 3),
        story="joined departures have left the state, those of the next two weeks have come",
        key_table="op0_right",
        key={"field0": _STORM, "field1": "EWR", "index": 0},
        sql=(
            "SELECT origin, count(*) AS hours, min(temp) AS coldest, max(wind_gust) AS strongest_gust,\n"
            "       min(visib) AS least_visibility\n"
            "FROM weather.op0_right VERSION AS OF {past} GROUP BY origin ORDER BY origin"
        ),
    ),
    Tour(
        name="rotations",
        about="what each aircraft has been doing: transformWithState with a value, a list, a map and a timer",
        query=flights.rotations,
        files=2,  # Python takes in one aircraft at a time, which takes its time
        table="op0_aircraft",
        columns=("tailnum", "last_airport", "accumulated_delay", "flights"),
        top="accumulated_delay",
        past=3,
        between=(2, 3),
        story="rotations that began, ended or went on from 26 March to 22 April",
        ranked=("gained", "accumulated_delay_new - accumulated_delay_old"),
        key_table="op0_aircraft",
        key={"tailnum": "N725MQ"},
        sql=(
            "SELECT airport, sum(visits) AS visits, count(*) AS aircraft\n"
            "FROM rotations.op0_visits VERSION AS OF {past} GROUP BY airport ORDER BY visits DESC LIMIT 3"
        ),
    ),
)
