"""The streaming query: every answer of Linear Road, from one stateful operator keyed by expressway.

All that an answer needs stays on one expressway: a car's previous report, its account, the statistics and accidents of
the segments ahead. So one key is one expressway with both directions, its rows are processed with NumPy second by
second, and nothing is joined. Before the shuffle, reports are packed into one binary row per expressway, because Spark
hands rows to a Python processor one by one.

The cars' state is kept by the second of the half-minute in which they report. An epoch reads and writes only the cars
that report in it, so its cost, and that of capturing it, follows its input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from benchmarks.linear_road.traffic import BALANCE, CARS_OF_A_ROAD, CYCLE, EXIT, EXPENDITURE, REPORT, ROW, SEGMENTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOLL, ACCIDENT = 0, 1
"""Types of answers; those to queries have the type of the query."""
ANSWER = np.dtype(
    [("type", "i4"), ("time", "i4"), ("vid", "i4"), ("qid", "i4"), ("seg", "i4"), ("lav", "i4"), ("value", "i8")]
)
"""``value`` is the toll, the balance or the expenditure; ``seg`` the segment entered, or that of the accident."""
ANSWERS = "type int, time int, vid int, qid int, seg int, lav int, value long"
STOPPED = 4
"""Reports from one place after which a car has stopped."""
ROUNDING = 1e-9
"""Added to an average speed before it is rounded down, so that the order of additions does not matter."""
_PLACES = 2 * SEGMENTS
_AVERAGED, _AHEAD = 5, 5
_SLOTS = _AVERAGED + 1
_CAR = np.dtype(
    [
        ("vid", "<i4"),
        ("pos", "<i4"),
        ("toll", "<i4"),
        ("balance", "<i4"),
        ("spd", "<i2"),
        ("seg", "i1"),
        ("dir", "i1"),
        ("lane", "i1"),
        ("stops", "i1"),
    ]
)
_STANDING = np.dtype([("vid", "<i4"), ("place", "<i4"), ("pos", "<i4"), ("lane", "<i4")])
_CRASH = np.dtype([("place", "<i4"), ("begin", "<i4"), ("end", "<i4")])
_GOES_ON = np.iinfo(np.int32).max


class Kept(Protocol):
    """State by key: of the cars, for each second of the half-minute, when they reported and a blob of them."""

    def get(self, key: int, default: Any = None, /) -> Any: ...  # noqa: D102
    def __setitem__(self, key: int, value: Any, /) -> None: ...


@dataclass
class Road:
    """The segments of an expressway: statistics of six minutes, cars that stand still, and accidents."""

    second: int = -1
    """The newest second whose rows were processed."""
    cars: np.ndarray = field(default_factory=lambda: np.zeros((_SLOTS, _PLACES), "<i4"))
    speeds: np.ndarray = field(default_factory=lambda: np.zeros((_SLOTS, _PLACES), "<i4"))
    """Twice the sum of the cars' average speeds."""
    standing: np.ndarray = field(default_factory=lambda: np.zeros(0, _STANDING))
    crashes: np.ndarray = field(default_factory=lambda: np.zeros(0, _CRASH))

    @classmethod
    def read(cls, kept: tuple[Any, ...] | None) -> Road:
        """Return the road from its state; a new one if there is none."""
        if kept is None:
            return cls()
        second, *parts = kept
        cars, speeds = (np.frombuffer(part, "<i4").reshape(_SLOTS, _PLACES).copy() for part in parts[:2])
        return cls(second, cars, speeds, np.frombuffer(parts[2], _STANDING), np.frombuffer(parts[3], _CRASH))

    def kept(self) -> tuple[Any, ...]:
        """Return the state of the road."""
        return self.second, *(part.tobytes() for part in (self.cars, self.speeds, self.standing, self.crashes))

    def begin(self, second: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Go on to a second, and return each place's average speed, toll, and segment of an accident ahead, or −1."""
        before, minute = self.second // 60, second // 60
        for empty in range(max(before + 1, minute - _SLOTS + 1), minute + 1):
            self.cars[empty % _SLOTS] = self.speeds[empty % _SLOTS] = 0
        last = [(minute - ago) % _SLOTS for ago in range(1, _AVERAGED + 1)]
        cars, speeds = self.cars[last], self.speeds[last]
        average = np.divide(speeds, 2 * cars, out=np.zeros(cars.shape), where=cars > 0).sum(axis=0)
        lav = np.floor(average / np.maximum((cars > 0).sum(axis=0), 1) + ROUNDING).astype(int)
        ahead = self._ahead(60 * (minute - 1), 60 * minute)
        toll = np.where((lav < 40) & (cars[0] > 50) & (ahead < 0), 2 * (cars[0] - 50) ** 2, 0)
        return lav, toll, ahead

    def _ahead(self, begin: int, end: int) -> np.ndarray:
        """Return the nearest segment ahead with an accident in an interval, by place."""
        self.crashes = self.crashes[self.crashes["end"] > begin]
        there = self.crashes[self.crashes["begin"] < end]["place"]
        ahead = np.full((2, SEGMENTS), -1)
        for place in sorted(there):
            way, segment = divmod(int(place), SEGMENTS)
            # Sorted, so that of two accidents the nearer one is written last in direction 0, and first in direction 1.
            if way == 0:
                near = ahead[0, max(segment - _AHEAD + 1, 0) : segment + 1]
                near[near < 0] = segment
            else:
                ahead[1, segment : segment + _AHEAD] = segment
        return ahead.ravel()

    def count(self, minute: int, place: np.ndarray, speed: np.ndarray, again: np.ndarray) -> None:
        """Add reports to a minute; ``speed`` is twice the car's, or the change if it reports there again."""
        self.cars[minute % _SLOTS] += np.bincount(place[~again], minlength=_PLACES).astype("<i4")
        self.speeds[minute % _SLOTS] += np.bincount(place, speed, _PLACES).astype("<i4")

    def stand(self, time: int, cars: np.ndarray, goes: np.ndarray) -> None:
        """Note cars that have stopped, and those that no longer stand still, as of a second."""
        before = _crowded(self.standing)
        stay = self.standing[~np.isin(self.standing["vid"], goes)]
        self.standing = np.concatenate([stay, cars])
        now = _crowded(self.standing)
        for spot in now - before:
            self.crashes = np.concatenate([self.crashes, np.array([(spot[0], time, _GOES_ON)], _CRASH)])
        for spot in before - now:
            if not any(other[0] == spot[0] for other in now):
                ended = (self.crashes["place"] == spot[0]) & (self.crashes["end"] == _GOES_ON)
                self.crashes = self.crashes.copy()
                self.crashes["end"][ended] = time


def _crowded(standing: np.ndarray) -> set[tuple[int, int, int]]:
    """Return the spots at which two cars or more stand."""
    spots, counts = np.unique(standing[["place", "pos", "lane"]], return_counts=True)
    return {(int(spot["place"]), int(spot["pos"]), int(spot["lane"])) for spot in spots[counts > 1]}


def drive(rows: np.ndarray, road: Road, cars: Kept, accounts: Kept) -> Iterator[np.ndarray]:
    """Process the next rows of an expressway, and return the answers."""
    rows = rows[np.argsort(rows["time"], kind="stable")]
    if len(rows) and rows["time"][0] <= road.second:
        raise ValueError(f"second {rows['time'][0]} arrives after second {road.second}")
    halves = rows["time"] // CYCLE
    for part in np.split(rows, np.flatnonzero(np.diff(halves)) + 1):
        if len(part):
            yield from _half_minute(part, road, cars, accounts)


def _half_minute(rows: np.ndarray, road: Road, cars: Kept, accounts: Kept) -> Iterator[np.ndarray]:
    """Process rows of one half-minute, in which each car reports once at most."""
    lav, toll, ahead = road.begin(int(rows["time"][0]))
    road.second = int(rows["time"][-1])
    reports = rows[rows["type"] == REPORT]
    place = reports["dir"].astype(int) * SEGMENTS + reports["seg"]
    known, before = _previous(reports, cars)
    crossed = ~known | (before["seg"] != reports["seg"])
    minute = int(rows["time"][0]) // 60
    again = known & ~crossed & ((reports["time"] - CYCLE) // 60 == minute)
    road.count(minute, place, np.where(again, reports["spd"] - before["spd"], 2 * reports["spd"]), again)
    now = np.zeros(len(reports), _CAR)
    for name in ("vid", "pos", "spd", "seg", "dir", "lane"):
        now[name] = reports[name]
    same = known & np.logical_and.reduce([before[name] == reports[name] for name in ("pos", "dir", "lane")])
    now["stops"] = np.where(same, np.minimum(before["stops"] + 1, STOPPED), 1)
    _stops(road, reports["time"], place, now, np.where(known, before["stops"], 0))
    now["balance"] = np.where(known, before["balance"] + np.where(crossed, before["toll"], 0), 0)
    for at in np.flatnonzero(~known):
        now["balance"][at] = accounts.get(int(now["vid"][at]), 0)
    noticed = crossed & (reports["lane"] != EXIT)
    now["toll"] = np.where(noticed, toll[place], np.where(crossed, 0, before["toll"]))
    _keep(reports["time"], now, cars, accounts)
    yield _answers(reports[noticed], TOLL, reports["seg"][noticed], toll[place][noticed], lav[place][noticed])
    warned = noticed & (ahead[place] >= 0)
    yield _answers(reports[warned], ACCIDENT, ahead[place][warned], 0)
    asked = rows[rows["type"] == BALANCE]
    if len(asked):
        order = np.argsort(now["vid"])
        at = order[np.searchsorted(now["vid"], asked["vid"], sorter=order)]
        yield _answers(asked, BALANCE, 0, now["balance"][at])


def _previous(reports: np.ndarray, cars: Kept) -> tuple[np.ndarray, np.ndarray]:
    """Return which cars reported half a minute ago, and those reports."""
    seconds = [int(second) for second in np.unique(reports["time"])]
    kept = [(second, cars.get(second % CYCLE)) for second in seconds]
    parts = [np.frombuffer(found[1], _CAR) for second, found in kept if found and found[0] == second - CYCLE]
    before = np.concatenate([np.zeros(1, _CAR), *parts])  # car 0 at the front stands for a car that is not known
    before["vid"][0] = -1
    order = np.argsort(before["vid"])
    at = order[np.searchsorted(before["vid"], reports["vid"], side="right", sorter=order) - 1]
    return before["vid"][at] == reports["vid"], before[at]


def _stops(road: Road, time: np.ndarray, place: np.ndarray, now: np.ndarray, before: np.ndarray) -> None:
    stopped = (now["stops"] == STOPPED) & (before < STOPPED)
    left = (now["stops"] < STOPPED) & (before == STOPPED)
    for second in np.unique(time[stopped | left]):
        at = time == second
        new = np.zeros(int((stopped & at).sum()), _STANDING)
        new["place"] = place[stopped & at]
        for name in ("vid", "pos", "lane"):
            new[name] = now[name][stopped & at]
        road.stand(int(second), new, now["vid"][left & at])


def _keep(time: np.ndarray, now: np.ndarray, cars: Kept, accounts: Kept) -> None:
    """Keep the cars that go on, by second, and the accounts of those that leave."""
    for car in now[(now["lane"] == EXIT) & (now["balance"] > 0)]:
        accounts[int(car["vid"])] = int(car["balance"])
    for second in np.unique(time):
        cars[int(second) % CYCLE] = int(second), now[(time == second) & (now["lane"] != EXIT)].tobytes()


def _answers(rows: np.ndarray, kind: int, segment: Any, value: Any, lav: Any = 0) -> np.ndarray:
    answers = np.zeros(len(rows), ANSWER)
    for name in ("time", "vid", "qid"):
        answers[name] = rows[name]
    answers["type"], answers["seg"], answers["lav"], answers["value"] = kind, segment, lav, value
    return answers


@dataclass
class Past:
    """The historical table: a file of tolls for each expressway, by car and day."""

    folder: Path
    _files: dict[int, np.ndarray] = field(default_factory=dict)

    def answers(self, asked: np.ndarray) -> np.ndarray:
        """Return the daily expenditures that are asked for."""
        spent = [self._spent(int(row["vid"]), int(row["day"]), int(row["xway"])) for row in asked]
        return _answers(asked, EXPENDITURE, 0, spent)

    def _spent(self, vid: int, day: int, xway: int) -> int:
        home, car = divmod(vid, CARS_OF_A_ROAD)
        if home not in self._files:
            self._files[home] = np.load(self.folder / f"{home}.npy", mmap_mode="r")
        toll = self._files[home][car, day]
        return int(toll["toll"]) if toll["xway"] == xway else 0


@dataclass
class _Variable:
    """Spark's map variable, with the two methods of a dictionary that :func:`drive` calls."""

    state: Any

    def get(self, key: int, default: Any = None) -> Any:
        found = self.state.getValue((key,))
        return default if found is None else found[0] if len(found) == 1 else found

    def __setitem__(self, key: int, value: Any) -> None:
        self.state.updateValue((key,), value if isinstance(value, tuple) else (value,))


class Expressway(StatefulProcessor):
    """The state of an expressway in Spark: the road, the cars on it, and the accounts of those that have left."""

    def __init__(self, past: Path) -> None:
        self._past = Past(past)

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self._road = handle.getValueState(
            "road", "second int, cars binary, speeds binary, standing binary, crashes binary"
        )
        self._cars = handle.getMapState("cars", "phase int", "time int, cars binary")
        self._accounts = handle.getMapState("accounts", "vid int", "balance int")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        """Process an epoch's rows of an expressway."""
        blobs = [blob for frame in rows for blob in frame["rows"]]
        received = np.concatenate([np.frombuffer(blob, ROW) for blob in blobs])
        spent = received["type"] == EXPENDITURE
        answers, traffic = [self._past.answers(received[spent])], received[~spent]
        if len(traffic):
            road = Road.read(self._road.get())
            answers += drive(traffic, road, _Variable(self._cars), _Variable(self._accounts))
            self._road.update(road.kept())
        yield pd.DataFrame(np.concatenate(answers))

    def close(self) -> None:
        """Nothing to close."""


def packed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return one row for each expressway of a batch, with all its rows in a column."""
    for batch in batches:
        rows = np.empty(batch.num_rows, ROW)
        for name in batch.schema.names:
            rows[name] = batch.column(name).to_numpy(zero_copy_only=False)
        rows = rows[np.argsort(rows["xway"], kind="stable")]
        xways, first = np.unique(rows["xway"], return_index=True)
        blobs = [part.tobytes() for part in np.split(rows, first[1:])] if len(rows) else []
        yield pa.record_batch({"xway": xways.astype("<i4"), "rows": pa.array(blobs, pa.binary())})


def answers(spark: SparkSession, seconds: Path, past: Path) -> DataFrame:
    """Return the streaming query over a folder of files, one for each second."""
    kinds = {1: "byte", 2: "short", 4: "int"}
    assert ROW.names is not None
    schema = ", ".join(f"{name} {kinds[ROW[name].itemsize]}" for name in ROW.names)
    frame = spark.readStream.schema(schema).parquet(str(seconds))
    rows = frame.mapInArrow(packed, "xway int, rows binary")
    return rows.groupBy("xway").transformWithStateInPandas(Expressway(past), ANSWERS, "append", "none")
