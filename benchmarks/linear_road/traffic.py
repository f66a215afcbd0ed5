"""A seeded stream of traffic: position reports of cars, and the queries that some of them come with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

REPORT, BALANCE, EXPENDITURE = 0, 2, 3
"""Types of input; the queries follow the report that they come with."""
SEGMENTS, FEET, CYCLE, DAYS = 100, 5280, 30, 69
"""Segments of a direction, feet of a segment, seconds between a car's reports, days of the historical table."""
RAMP, EXIT = 0, 4
"""The lanes of the first report and of the last one."""
CARS_OF_A_ROAD = 10_000_000
"""Car ``v`` drives on expressway ``v // CARS_OF_A_ROAD``."""
PEAK = 1700.0
"""Reports a second of an expressway at the end of the run."""
ROW = np.dtype(
    [
        ("type", "i1"),
        ("time", "<i4"),
        ("vid", "<i4"),
        ("spd", "<i2"),
        ("xway", "<i2"),
        ("lane", "i1"),
        ("dir", "i1"),
        ("seg", "i1"),
        ("pos", "<i4"),
        ("qid", "<i4"),
        ("day", "i1"),
    ]
)
TOLL = np.dtype([("xway", "u1"), ("toll", "u1")])
"""A car's toll of a day, and the expressway that it was for."""

_CAR = np.dtype(
    [
        ("id", "<i4"),
        ("phase", "<i4"),
        ("dir", "i1"),
        ("pos", "<i4"),
        ("to", "i1"),
        ("free", "<f4"),
        ("lane", "i1"),
        ("until", "<i4"),
        ("spd", "<i2"),
    ]
)
_FEET_PER_MPH = 44
"""Feet that a car goes between two reports, for each mile an hour. At 100 mph it enters each segment that it passes."""
_JAM = 300.0
"""Cars in a segment of one direction at which nothing would move."""
_CRAWL, _PAST_ACCIDENT = 0.12, 0.4
"""The lowest share of the free speed, and what an accident leaves of the speed in its segment."""
_AGAIN, _AWAY = 0.1, 3
"""The share of cars that were here before, and the cycles that these stayed away at least."""
_BALANCES, _EXPENDITURES = 0.005, 0.001
"""Queries for each report. The paper's travel times, 0.004, are left out."""
_BLOCK = 4096


@dataclass(frozen=True)
class Traffic:
    """The parameters of a stream. The defaults are the paper's, except for the length.

    Args:
        expressways: L.
        seconds: the length of the run. The load grows from ``first`` to ``last`` in this time; in the paper it takes
            10,800 seconds.
        seed: of all random numbers; each expressway has its own sequence.
        first: reports a second of each expressway at the start.
        last: the same at the end.
    """

    expressways: int
    seconds: int
    seed: int = 2004
    first: float = 15.0
    last: float = PEAK

    def cars(self, cycle: int) -> int:
        """Return how many cars report in a cycle."""
        share = cycle / max(self.seconds // CYCLE - 1, 1)
        return round(CYCLE * (self.first + share * (self.last - self.first)))

    @property
    def accident_every(self) -> int:
        """Cycles from one accident of an expressway to the next: nine accidents a run, as in three hours."""
        return max(self.seconds // 9 // CYCLE, 2)

    @property
    def accident_lasts(self) -> tuple[int, int]:
        """The fewest and the most cycles for which cars stand still: 10 to 20 minutes of three hours, at least five."""
        return max(self.seconds // 18 // CYCLE, 5), max(self.seconds // 9 // CYCLE, 8)

    def write(self, folder: Path) -> list[Path]:
        """Write a file for each second into ``folder/seconds``, and the tolls of the past into ``folder/past``."""
        seconds, past = folder / "seconds", folder / "past"
        for made in (seconds, past):
            made.mkdir(parents=True)
        roads = [_Expressway(self, xway) for xway in range(self.expressways)]
        files = []
        for cycle in range(self.seconds // CYCLE):
            rows = np.concatenate([road.drive(cycle) for road in roads])
            rows = rows[np.argsort(rows["time"], kind="stable")]
            for second in range(CYCLE * cycle, CYCLE * (cycle + 1)):
                begin, end = np.searchsorted(rows["time"], (second, second + 1))
                files.append(seconds / f"{second:06d}.parquet")
                pq.write_table(as_table(rows[begin:end]), files[-1])
        for road in roads:
            np.save(past / f"{road.xway}.npy", road.past())
        return files


def as_table(rows: np.ndarray) -> pa.Table:
    """Return a structured array as a table."""
    assert rows.dtype.names is not None
    return pa.table({name: np.ascontiguousarray(rows[name]) for name in rows.dtype.names})


@dataclass
class _Expressway:
    """The cars of one expressway; a cycle moves each of them once."""

    traffic: Traffic
    xway: int
    _cars: np.ndarray = field(init=False, default_factory=lambda: np.zeros(0, _CAR))
    _parked: list[np.ndarray] = field(init=False, default_factory=list)
    """Cars that have left, by the cycle."""
    _accidents: list[tuple[int, int]] = field(init=False, default_factory=list)
    """The cycle in which each is cleared, and its place: a segment of a direction."""
    _past: list[np.ndarray] = field(init=False, default_factory=list)
    _ids: int = field(init=False, default=0)
    _queries: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng([self.traffic.seed, self.xway])

    def past(self) -> np.ndarray:
        """Return the tolls of the past, by car and day."""
        return np.concatenate(self._past)[: max(self._ids, 1)]

    def drive(self, cycle: int) -> np.ndarray:
        """Return the rows of the next 30 seconds."""
        self._move(cycle)
        if cycle % self.traffic.accident_every == 1:
            self._collide(cycle)
        self._enter(cycle)
        rows = self._rows(cycle)
        gone = self._cars["lane"] == EXIT
        self._parked.append(self._cars["id"][gone])
        self._cars = self._cars[~gone]
        return rows

    def _move(self, cycle: int) -> None:
        cars, random = self._cars, self._random
        place = _place(cars)
        flow = np.clip(1 - np.bincount(place, minlength=2 * SEGMENTS) / _JAM, _CRAWL, 1)
        self._accidents = [accident for accident in self._accidents if accident[0] > cycle]
        for _until, where in self._accidents:
            flow[where] *= _PAST_ACCIDENT
        speed = np.clip(cars["free"] * flow[place] + random.normal(0, 3, len(cars)), 3, 100).astype(int)
        stands = cars["until"] > cycle
        cars["spd"] = np.where(stands, 0, speed)
        goes = cars["spd"] * _FEET_PER_MPH * np.where(cars["dir"] == 0, 1, -1)
        cars["pos"] = np.clip(cars["pos"] + goes, 0, SEGMENTS * FEET - 1)
        segment = cars["pos"] // FEET
        there = np.where(cars["dir"] == 0, segment >= cars["to"], segment <= cars["to"]) & ~stands
        lane = np.where(stands, cars["lane"], random.integers(1, EXIT, len(cars)))
        cars["lane"] = np.where(there, EXIT, lane)

    def _collide(self, cycle: int) -> None:
        """Let a car run into the next one of its segment."""
        cars, random = self._cars, self._random
        order = np.lexsort((cars["pos"], _place(cars)))
        able = (cars["lane"] != EXIT) & (cars["until"] <= cycle)
        behind, ahead = order[:-1], order[1:]
        pairs = np.flatnonzero((_place(cars)[behind] == _place(cars)[ahead]) & able[behind] & able[ahead])
        if not len(pairs):
            return
        pair = random.choice(pairs)
        both = np.array([behind[pair], ahead[pair]])
        last = both[1] if cars["dir"][both[0]] == 0 else both[0]
        least, most = self.traffic.accident_lasts
        until = cycle + int(random.integers(least, most + 1))
        for name, value in (("pos", cars["pos"][last]), ("lane", cars["lane"][last]), ("until", until)):
            cars[name][both] = value
        self._accidents.append((until, int(_place(cars)[last])))

    def _enter(self, cycle: int) -> None:
        random, count = self._random, max(self.traffic.cars(cycle) - len(self._cars), 0)
        new = np.zeros(count, _CAR)
        before = np.concatenate([np.zeros(0, "<i4"), *self._parked[: max(cycle - _AWAY, 0)]])
        again = random.choice(before, min(int(_AGAIN * count), len(before)), replace=False)
        if len(again):
            self._parked = [parked[~np.isin(parked, again)] for parked in self._parked]
        new["id"] = np.concatenate([again, np.arange(self._ids, self._ids + count - len(again))])
        self._ids += count - len(again)
        while len(self._past) * _BLOCK < self._ids:
            self._past.append(self._tolls())
        entry, share = random.integers(0, SEGMENTS, count), random.random(count)
        new["phase"], new["dir"] = random.integers(0, CYCLE, count), random.integers(0, 2, count)
        away = np.where(new["dir"] == 0, SEGMENTS - 1 - entry, -entry)
        new["to"] = entry + np.sign(away) * np.ceil(share * np.abs(away))
        new["pos"] = entry * FEET + random.integers(0, FEET, count)
        new["free"], new["spd"] = random.normal(68, 8, count), random.integers(20, 50, count)
        new["lane"] = RAMP
        self._cars = np.concatenate([self._cars, new])

    def _tolls(self) -> np.ndarray:
        tolls = np.zeros((_BLOCK, DAYS + 1), TOLL)
        tolls["xway"] = self._random.integers(0, self.traffic.expressways, tolls.shape)
        tolls["toll"] = self._random.integers(0, 100, tolls.shape)
        return tolls

    def _rows(self, cycle: int) -> np.ndarray:
        cars, random = self._cars, self._random
        rows = np.zeros(len(cars), ROW)
        rows["time"], rows["vid"] = CYCLE * cycle + cars["phase"], self.xway * CARS_OF_A_ROAD + cars["id"]
        rows["seg"], rows["xway"] = cars["pos"] // FEET, self.xway
        for name in ("spd", "lane", "dir", "pos"):
            rows[name] = cars[name]
        asks = random.random(len(cars))
        return np.concatenate([rows, *self._asked(rows, asks)])

    def _asked(self, rows: np.ndarray, asks: np.ndarray) -> Iterator[np.ndarray]:
        chosen = {BALANCE: asks < _BALANCES, EXPENDITURE: (asks >= _BALANCES) & (asks < _BALANCES + _EXPENDITURES)}
        for kind, which in chosen.items():
            queries = np.zeros(int(which.sum()), ROW)
            queries["type"] = kind
            for name in ("time", "vid", "xway"):
                queries[name] = rows[name][which]
            queries["qid"] = self.xway * CARS_OF_A_ROAD + self._queries + np.arange(len(queries))
            self._queries += len(queries)
            if kind == EXPENDITURE:
                queries["day"] = self._random.integers(1, DAYS + 1, len(queries))
                car = queries["vid"] % CARS_OF_A_ROAD
                tolls = [
                    self._past[at // _BLOCK][at % _BLOCK, day] for at, day in zip(car, queries["day"], strict=True)
                ]
                queries["xway"] = [toll["xway"] for toll in tolls]
            yield queries


def _place(cars: np.ndarray) -> np.ndarray:
    """Return the number of each car's direction and segment."""
    place: np.ndarray = cars["dir"].astype(int) * SEGMENTS + cars["pos"] // FEET
    return place
