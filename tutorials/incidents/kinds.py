"""The six kinds of incidents, with all answers. To read this is to read the last page of a detective story first."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql import functions as F

from streamstate.tutorials.incidents.incident import FILES, Build, Incident
from streamstate.tutorials.incidents.proof import (
    Files,
    does_not_grow,
    gives_batch,
    is_deterministic,
    is_spread,
)
from streamstate.tutorials.incidents.queries import DAY_MS, Following, Leg, board, follow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_IDENTITY = ["scheduled", "carrier", "flight", "origin"]
_PAIRS = (("EV", "UA"), ("MQ", "AA"), ("9E", "DL"))
"""A carrier, and another one that gets its departures."""
_LARGEST = {"EWR": "EV", "JFK": "B6", "LGA": "DL"}
"""The carrier with the most departures, or nearly, by airport."""
_FOUR_YEARS = timedelta(days=1461)
_RENUMBERED = 10_000
"""More than any flight's number."""
_CANCELLED = 120


@dataclass(frozen=True)
class Seed:
    """What a learner's name decides."""

    at: int
    restart: int
    first_day: date
    draw: random.Random

    @property
    def when(self) -> dict[str, Any]:
        """The arguments of an incident that say when it is."""
        return {"at": self.at, "restart": self.restart, "first_day": self.first_day}

    def tailnums(self, count: int) -> list[str]:
        """Tail numbers that no aircraft has."""
        return [f"N0{number:04}" for number in self.draw.sample(range(10000), count)]


def repeated_file(seed: Seed) -> Incident:
    """A file arrives again, under another name."""

    def once(departures: DataFrame, identity: list[str] = _IDENTITY) -> DataFrame:
        timed = departures.withWatermark("scheduled", "1 day")
        return board(timed.dropDuplicatesWithinWatermark(identity), watermark=None)

    at = seed.at
    return Incident(
        **seed.when,
        cause="repeated file",
        keys=[{"day": (seed.first_day + timedelta(days=at - 1)).isoformat()}],
        arriving=lambda days: [*days[:at], days[at - 1], *days[at : FILES - 1]],
        right=lambda days: [*days[:at], days[at - 1].head(0), *days[at : FILES - 1]],
        said={
            "epoch": {at - 1: "There the day was counted for the first time, and rightly."},
            "key": {
                "day": "Count the departures of that day in the input: the state is right.",
                "carrier": "Not only that one. What do all keys that changed have in common?",
            },
        },
        hints=(
            "Compare two epochs: how many keys are new, how many changed, and by how much?",
            "A file of another day brings new keys. Which epoch with input brought none?",
            "`room.history.inputs(epoch)` has the rows that an epoch read. Has an earlier one read the same?",
        ),
        proofs=(gives_batch, does_not_grow),
        solution=once,
        wrong_fixes=[
            (board, "They should be"),
            (lambda departures: once(departures, ["carrier", "flight"]), "They should be"),
            (lambda departures: board(departures.dropDuplicates(_IDENTITY)), "It leaks:"),
        ],
        fix_hints=(
            "Which columns make two rows the same departure?",
            "Spark must remember the departures that it has seen, and forget them: `dropDuplicatesWithinWatermark`.",
            "The deduplication needs the watermark first; then `board(…, watermark=None)`.",
        ),
    )


def stuck_watermark(seed: Seed) -> Incident:
    """A departure is scheduled four years ahead. The watermark follows it, and all others are late."""
    at, place = seed.at, seed.draw.random()

    def arriving(days: Files) -> Files:
        row = days[at].iloc[[int(place * len(days[at]))]]
        ahead = row.assign(scheduled=row["scheduled"] + _FOUR_YEARS)
        return [*days[:at], pd.concat([days[at], ahead]), *days[at + 1 :]]

    def possible(departures: DataFrame) -> DataFrame:
        return departures.where("scheduled < '2014-01-01'")

    return Incident(
        **seed.when,
        cause="stuck watermark",
        keys=[{"day": (seed.first_day + timedelta(days=at) + _FOUR_YEARS).isoformat()}],
        arriving=arriving,
        said={
            "epoch": {
                at + 1: "There the watermark was already ahead. It comes from the rows of the epochs before.",
                at + 2: "There rows began to be dropped. What had moved the watermark, and when?",
            },
            "key": {
                "day": "That day is a victim: it was forgotten too early. Which key stays?",
                "carrier": "All carriers are concerned. Which key stays?",
            },
        },
        hints=(
            "Which days does the state have at the newest epoch? Which should it have?",
            "`room.history.late(epoch)` counts the rows that were dropped, and says how late they were.",
            "An epoch's watermark comes from the rows of those before. Which row moved it so far?",
        ),
        solution=lambda departures: board(possible(departures)),
        wrong_fixes=[
            (board, "They should be 0"),
            (lambda departures: board(departures).where("day.start < '2014-01-01'"), "has no row for"),
            (lambda departures: board(possible(departures), watermark=None), "it leaks"),
        ],
        fix_hints=(
            "A row whose time cannot be true must not move the watermark.",
            "Leave it out before `board` sees it: after `withWatermark` is too late.",
        ),
    )


def nondeterminism(seed: Seed) -> Incident:
    """An airline gets flight numbers for which the code draws lots."""
    at, (airline, partner) = seed.at, seed.draw.choice(_PAIRS)

    def renumbered(days: Files) -> Files:
        numbers = [day["flight"] + _RENUMBERED * (day["carrier"] == airline) for day in days[at:]]
        return [*days[:at], *(day.assign(flight=flight) for day, flight in zip(days[at:], numbers, strict=True))]

    def with_rule(keeps: Callable[[int], bool]) -> Build:
        def desk(carrier: str, flight: int) -> str:
            return carrier if flight < _RENUMBERED or keeps(flight) else partner

        return lambda departures: board(departures, desk)

    def by_lot(_flight: int) -> bool:
        return random.random() < 0.5  # noqa: S311 - it is the incident

    return _misbooked(
        airline,
        partner,
        **seed.when,
        cause="nondeterminism",
        arriving=renumbered,
        right=renumbered,
        code=(with_rule(by_lot), with_rule(by_lot)),
        epochs={0: "Compare the state there with what the epoch read: it is right."},
        hints=(
            "Replay the query as it runs, twice. Do the two replays agree with each other?",
            "`room.checkpoint.audit(room.production)` does that, and names the first key. Whose rows does it have?",
        ),
        proofs=(gives_batch, is_deterministic),
        wrong_fixes=[
            (with_rule(by_lot), "They should be"),
            (with_rule(lambda flight: flight % 2 == 0), "They should be"),
            (with_rule(lambda _flight: False), "They should be"),
        ],
        fix_hint="A draw that always gives the same is deterministic, and may still be wrong.",
    )


def bad_deploy(seed: Seed) -> Incident:
    """After a restart, an airline's departures count for another."""
    at, (airline, partner) = seed.at, seed.draw.choice(_PAIRS)

    def charging(airlines: dict[str, str]) -> Build:
        def desk(carrier: str, _flight: int) -> str:
            return airlines.get(carrier, carrier)

        return lambda departures: board(departures, desk)

    deployed = charging({airline: partner})
    return _misbooked(
        airline,
        partner,
        **seed.when | {"restart": at},
        cause="bad deploy",
        code=(board, deployed),
        epochs={
            at - 1: "Compare the state there with what the epoch read: it is right.",
            0: "A replay differs there, because today's code is not what ran then. But is the record wrong?",
        },
        hints=(
            "One carrier has too few departures, another one too many. Since which epoch?",
            "`room.history.epochs()` has the `run_id` of each epoch. What is different from then on?",
        ),
        wrong_fixes=[
            (deployed, "They should be"),
            (lambda departures: board(departures.where(f"carrier <> '{airline}'")), "has no row for"),
            (charging({partner: airline}), "They should be"),
        ],
        fix_hint="Rows that are left out are missing, too.",
    )


def _misbooked(
    airline: str,
    partner: str,
    *,
    epochs: Mapping[int, str],
    hints: Sequence[str],
    fix_hint: str,
    **incident: Any,
) -> Incident:
    """Return an incident in which departures of an airline count for its partner."""
    return Incident(
        **incident,
        keys=[{"carrier": airline}],
        said={
            "epoch": epochs,
            "key": {
                f"carrier={partner}": "It has rows that are not its own: it is a victim. Whose are they?",
                "day": "Not all keys of a day are wrong.",
            },
        },
        hints=("Count the rows of `room.history.inputs(epoch)` by carrier, and compare with the state.", *hints),
        solution=board,
        fix_hints=(fix_hint, "Each departure counts for the airline of its row, as in `board` as it was reviewed."),
    )


def hot_key(seed: Seed) -> Incident:
    """All aircraft of an airport's largest airline get the same tail number."""
    at, [same], origin = seed.at, seed.tailnums(1), seed.draw.choice(list(_LARGEST))

    def named(days: Files, tailnum: str | None) -> Files:
        feed = _feed(days, origin)
        names = [day["tailnum"].mask(day["carrier"] == _LARGEST[origin], tailnum) for day in feed[at:]]
        return [*feed[:at], *(day.assign(tailnum=named) for day, named in zip(feed[at:], names, strict=True))]

    def spread(by: str) -> Build:
        tailnum = f"if(tailnum = '{same}', {by}, tailnum)"
        return lambda departures: follow(departures.withColumn("tailnum", F.expr(tailnum)))

    return Incident(
        **seed.when,
        cause="hot key",
        query="aircraft",
        keys=[{"tailnum": same}],
        arriving=lambda days: named(days, same),
        right=lambda days: named(days, None),
        code=(follow, follow),
        said={"key": {"tailnum": "That one may be a victim: which key has its rows now?"}},
        hints=(
            "Does the state have more keys than before, or fewer? Does each key have as many departures?",
            "Order the keys of `op0_aircraft` by `departures`, in the newest epoch and in an early one.",
            "`room.history.why(epoch, table='op0_aircraft', tailnum=…)` has the rows that fell on a key.",
        ),
        proofs=(is_spread, partial(gives_batch, others=True)),
        solution=spread("concat(carrier, flight)"),
        wrong_fixes=[
            (follow, "one key still has"),
            (lambda departures: follow(departures.where(f"tailnum <> '{same}'")), "It should have"),
            (spread("concat(tailnum, flight % 2)"), "one key still has"),
        ],
        fix_hints=(
            "More partitions do not help: a key is in one of them. And rows must not be lost.",
            "Give the rows of that key another one, by which they are spread. What else is known of them?",
        ),
    )


def leak(seed: Seed) -> Incident:
    """Cancelled departures arrive, of aircraft for which no timer is set."""
    at, origin = seed.at, seed.draw.choice(list(_LARGEST))
    parked = seed.tailnums(_CANCELLED * FILES)

    def arriving(days: Files) -> Files:
        feed = _feed(days, origin)
        return [*feed[:at], *(pd.concat([feed[file], cancelled(feed[file], file)]) for file in range(at, FILES))]

    def cancelled(day: pd.DataFrame, file: int) -> pd.DataFrame:
        rows = day.sample(_CANCELLED, replace=True, random_state=file)
        return rows.assign(tailnum=parked[file * _CANCELLED :][:_CANCELLED], dep_delay=float("nan"))

    class AllLegs(Following):
        def __init__(self, days: int) -> None:
            self._days = days

        def last_departure(self, legs: Sequence[Leg]) -> int | None:
            return legs[-1][0] + self._days * DAY_MS

    return Incident(
        **seed.when,
        cause="leak",
        query="aircraft",
        keys=[{"tailnum": name} for name in parked[at * _CANCELLED :]],
        arriving=arriving,
        right=arriving,
        code=(follow, follow),
        said={
            "epoch": {at + 2: "About then they should have left the state. When did the first of them come?"},
            "key": {"tailnum": "That aircraft leaves, a day after its departure. Which one stays?"},
        },
        hints=(
            "How many rows does each state table have, from epoch to epoch? `room.history.growth()` knows.",
            "Which aircraft of the newest epoch have the oldest `day`? They should leave a day after they departed.",
            "`room.history.why(epoch, table='op0_aircraft', tailnum=…)` has the rows of a key. Which ones stay?",
        ),
        solution=lambda departures: follow(departures, AllLegs(0)),
        wrong_fixes=[
            (follow, "it leaks"),
            (lambda departures: follow(departures.where("dep_delay IS NOT NULL")), "has no row for"),
            (lambda departures: follow(departures, AllLegs(30)), "it leaks"),
        ],
        fix_hints=(
            "When does `Following` set a timer, and when none? A cancelled departure is to be known for a day, too.",
            "A subclass of `Following` with another `last_departure`: `follow(room.departures(), YourClass())`.",
        ),
    )


def _feed(days: Files, origin: str) -> Files:
    """The departures of one airport that were not cancelled."""
    return [day[(day["origin"] == origin) & day["tailnum"].notna() & day["dep_delay"].notna()] for day in days]


KINDS: Sequence[Callable[[Seed], Incident]] = (
    repeated_file,
    stuck_watermark,
    nondeterminism,
    bad_deploy,
    hot_key,
    leak,
)


def incident_of(name: str, kind: Callable[[Seed], Incident] | None = None) -> Incident:
    """Return the incident of a learner.

    Args:
        name: the learner's name.
        kind: another kind than the name's.
    """
    digest = hashlib.sha256(name.strip().casefold().encode()).digest()
    draw = random.Random(digest)  # noqa: S311 - a seed
    chosen = draw.choice(KINDS)
    first_day = date(2013, 1, 2) + timedelta(days=draw.randrange(45))
    return (kind or chosen)(Seed(draw.randint(3, 5), draw.choice((2, 8)), first_day, draw))
