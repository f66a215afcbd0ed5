"""Stateful functions in Python: applyInPandasWithState and transformWithState in both forms.

They are sent to Spark's Python processes by value, because those cannot import the tests.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark import cloudpickle
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.state import GroupState

from operators.queries import late
from operators.running import Query

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

OUTPUT = "k string, n long"
HOUR = 3_600_000
VARIABLES = ("by_kind", "kept", "list_ttl", "map_ttl", "seen", "short", "total")


def remembered(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Counts a key's rows and sums them; forgets a key that timed out or that has counted far enough."""
    if state.hasTimedOut:
        state.remove()
        yield pd.DataFrame({"k": [key[0]], "n": [-1]})
        return
    count, total, last = state.get if state.exists else (0, 0.0, None)
    for frame in frames:
        count, total, last = count + len(frame), total + float(frame["v"].sum()), frame["t"].max()
    if count > 9:
        state.remove()
        return
    state.update((count, total, last))
    yield pd.DataFrame({"k": [key[0]], "n": [count]})


def in_processing_time(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[Any]:
    """``remembered``, with a timeout that has passed by the next epoch."""
    yield from remembered(key, frames, state)
    if state.exists:
        state.setTimeoutDuration(1)


def in_event_time(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[Any]:
    """``remembered``, with a timeout half an hour of event time after the watermark."""
    yield from remembered(key, frames, state)
    if state.exists:
        state.setTimeoutTimestamp(state.getCurrentWatermarkMs() + HOUR // 2)


# A query in processing time always has one more epoch to run, so that a run over "all there is" would never end.
ENDS = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
STATE = "count long, total double, last timestamp"


def with_state(function: Any, timeout: str) -> Query:
    """A query with ``applyInPandasWithState``."""
    return Query(
        lambda s: late(s).groupBy("k").applyInPandasWithState(function, OUTPUT, STATE, "update", timeout),
        ("op0",),
        conf=ENDS if timeout == "ProcessingTimeTimeout" else {},
    )


PANDAS_STATE = {
    "no timeout": with_state(remembered, "NoTimeout"),
    "processing-time timeout": with_state(in_processing_time, "ProcessingTimeTimeout"),
    "event-time timeout": with_state(in_event_time, "EventTimeTimeout"),
}


class Remembers(StatefulProcessor):
    """Variables of every kind, with and without TTL, and timers in the query's time."""

    def __init__(self, timers: bool = True, ttl: bool = True) -> None:
        self.timers, self.ttl = timers, ttl

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Set the variables up; those that live a millisecond are gone by the next epoch."""
        self.handle = handle
        self.total = handle.getValueState("total", "n long, last string, at timestamp")
        self.seen = handle.getListState("seen", "v long, tags array<string>")
        self.by_kind = handle.getMapState("by_kind", "kind string, even boolean", "n long")
        if self.ttl:
            self.short = handle.getValueState("short", "n long", 1)
            self.kept = handle.getValueState("kept", "n long", HOUR)
            self.list_ttl = handle.getListState("list_ttl", "v long", 1)
            self.map_ttl = handle.getMapState("map_ttl", "v long", "n long", HOUR)

    def take(self, key: tuple[Any, ...], values: list[Any]) -> int:
        """Take one epoch's values of a key in; returns how many rows the key has had."""
        held = self.total.get()
        before = held[0] if held else 0
        numbers = [int(value) for value in values if not pd.isna(value)]
        if before > 6:
            self._clear()
            return 0
        self.total.update((before + len(values), str(key[0]), None))
        if before % 2 and numbers:
            self.seen.put([(one, ["put"]) for one in numbers])
        for one in numbers:
            self.seen.appendValue((one, [str(one), None]))
            self.by_kind.updateValue((f"r{one % 3}", one % 2 == 0), (one,))
        if numbers and self.by_kind.containsKey(("r0", True)):
            self.by_kind.removeKey(("r0", True))
        if self.ttl:
            self._take_with_ttl(before, numbers)
        return int(before) + len(values)

    def _take_with_ttl(self, before: int, numbers: list[int]) -> None:
        self.short.update((before,))
        self.kept.update((before,))
        self.list_ttl.put([(one,) for one in numbers] or [(0,)])
        for one in numbers:
            self.map_ttl.updateValue((one % 4,), (one,))

    def _clear(self) -> None:
        self.total.clear()
        self.seen.clear()
        self.by_kind.clear()

    def set_timers(self, now: int) -> None:
        """Two timers: one that passes by the next epochs, one that stays; and one fewer at times."""
        if self.timers:
            self.handle.registerTimer(now + 1)
            self.handle.registerTimer(now // HOUR * HOUR + 48 * HOUR)
            for timer in list(self.handle.listTimers())[3:]:
                self.handle.deleteTimer(timer)

    def close(self) -> None:
        """Nothing to close."""


def now_of(timers: Any) -> int:
    """The moment that timers count from, in the query's time."""
    watermark = timers.getCurrentWatermarkInMs()
    return int(watermark if watermark > 0 else max(timers.getCurrentProcessingTimeInMs(), 1_700_000_000_000))


class InRows(Remembers):
    """The Row form."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        """Take the rows in."""
        count = self.take(key, [row.v for row in rows])
        self.set_timers(now_of(timerValues))
        yield Row(k=key[0], n=count)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        """A timer counts as a row."""
        self.take(key, [None])
        yield Row(k=key[0], n=-1)

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        """Start from a number."""
        self.take(key, [initialState.start])


class InPandas(Remembers):
    """The Pandas form."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        """Take the frames in."""
        count = self.take(key, [value for frame in rows for value in frame["v"]])
        self.set_timers(now_of(timerValues))
        yield pd.DataFrame({"k": [key[0]], "n": [count]})

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        """A timer counts as a row."""
        self.take(key, [None])
        yield pd.DataFrame({"k": [key[0]], "n": [-1]})

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        """Start from a number."""
        self.take(key, list(initialState["start"]))


def transformed(processor: Remembers, time: str, *, initial: bool = False) -> Query:
    """A query with ``transformWithState``: ``processingTime``, ``eventTime`` or ``none``."""

    def build(stream: DataFrame) -> DataFrame:
        source = late(stream)
        grouped = source.groupBy("k")
        transform = grouped.transformWithState if isinstance(processor, InRows) else grouped.transformWithStateInPandas
        start = None
        if initial:
            start = stream.sparkSession.createDataFrame([("k0", 100), ("gone", 7)], "k string, start long").groupBy("k")
        return transform(processor, OUTPUT, "update", time, initialState=start)

    variables = VARIABLES if processor.ttl else ("by_kind", "seen", "total")
    tables = [*variables, *(["timers"] if time != "none" else [])]
    conf = ENDS if time == "processingTime" else {}
    return Query(build, tuple(sorted(f"op0_{name}" for name in tables)), conf=conf)


TRANSFORM = {
    "rows, no time": transformed(InRows(timers=False, ttl=False), "none"),
    "rows, processing time, TTL and timers": transformed(InRows(), "processingTime"),
    "rows, event time and timers": transformed(InRows(ttl=False), "eventTime"),
    "pandas, processing time, TTL and timers": transformed(InPandas(), "processingTime"),
    "pandas, event time and timers": transformed(InPandas(ttl=False), "eventTime"),
    "rows, initial state": transformed(InRows(timers=False, ttl=False), "none", initial=True),
    "pandas, initial state": transformed(InPandas(timers=False, ttl=False), "none", initial=True),
}


class Evolving(StatefulProcessor):
    """A count in some schema; ``added`` has another variable."""

    def __init__(self, schema: str, *, added: bool) -> None:
        self.schema, self.has_added = schema, added

    def init(self, handle: StatefulProcessorHandle) -> None:
        """The variables of this start."""
        self.total = handle.getValueState("total", self.schema)
        if self.has_added:
            self.added = handle.getValueState("added", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        """Count the rows; a wide number is beyond a narrow one's range."""
        held = self.total.get()
        count = (held[0] if held else 0) + len(list(rows))
        wide = count + (1 << 40) if "long" in self.schema else count
        self.total.update((wide, "later") if "extra" in self.schema else (wide,))
        if self.has_added:
            self.added.update((count,))
        yield Row(k=key[0], n=count)

    def close(self) -> None:
        """Nothing to close."""


def evolving(schema: str, *, added: bool = False) -> Query:
    """A count whose state variable ``total`` has a schema that a later start may change."""
    return Query(
        lambda s: s.groupBy("k").transformWithState(Evolving(schema, added=added), OUTPUT, "update", "none"),
        ("op0_added", "op0_total") if added else ("op0_total",),
    )
