"""Stateful functions in Python: applyInPandasWithState, transformWithState and transformWithStateInPandas.

They are pickled by value, because Spark's Python workers cannot import the tests.
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

from operators.queries import watermarked
from operators.running import Query

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

OUTPUT = "k string, n long"
HOUR = 3_600_000
VARIABLES = ("by_kind", "kept", "list_ttl", "map_ttl", "seen", "short", "total")


def counted(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Counts and sums the rows of a key; removes its state after a timeout or ten rows."""
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
    """``counted``, with a timeout that expires by the next epoch."""
    yield from counted(key, frames, state)
    if state.exists:
        state.setTimeoutDuration(1)


def in_event_time(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[Any]:
    """``counted``, with an event-time timeout half an hour after the watermark."""
    yield from counted(key, frames, state)
    if state.exists:
        state.setTimeoutTimestamp(state.getCurrentWatermarkMs() + HOUR // 2)


# A query with processing-time timers always has another epoch without data, so that ``availableNow`` would never end.
NO_EMPTY_EPOCHS = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
STATE = "count long, total double, last timestamp"


def with_state(function: Any, timeout: str) -> Query:
    """A query with ``applyInPandasWithState``."""
    return Query(
        lambda s: watermarked(s).groupBy("k").applyInPandasWithState(function, OUTPUT, STATE, "update", timeout),
        ("op0",),
        conf=NO_EMPTY_EPOCHS if timeout == "ProcessingTimeTimeout" else {},
    )


PANDAS_STATE = {
    "no timeout": with_state(counted, "NoTimeout"),
    "processing-time timeout": with_state(in_processing_time, "ProcessingTimeTimeout"),
    "event-time timeout": with_state(in_event_time, "EventTimeTimeout"),
}


class AllVariables(StatefulProcessor):
    """Value, list and map variables with and without TTL, and timers in processing time or event time."""

    def __init__(self, timers: bool = True, ttl: bool = True) -> None:
        self.timers, self.ttl = timers, ttl

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the variables; those with a TTL of one millisecond expire by the next epoch."""
        self.handle = handle
        self.total = handle.getValueState("total", "n long, last string, at timestamp")
        self.seen = handle.getListState("seen", "v long, tags array<string>")
        self.by_kind = handle.getMapState("by_kind", "kind string, even boolean", "n long")
        if self.ttl:
            self.short = handle.getValueState("short", "n long", 1)
            self.kept = handle.getValueState("kept", "n long", HOUR)
            self.list_ttl = handle.getListState("list_ttl", "v long", 1)
            self.map_ttl = handle.getMapState("map_ttl", "v long", "n long", HOUR)

    def update(self, key: tuple[Any, ...], values: list[Any]) -> int:
        """Add an epoch's values of a key; returns the key's total number of rows."""
        state = self.total.get()
        before = state[0] if state else 0
        numbers = [int(value) for value in values if not pd.isna(value)]
        if before > 6:
            self._clear()
            return 0
        self.total.update((before + len(values), str(key[0]), None))
        if before % 2 and numbers:
            self.seen.put([(number, ["put"]) for number in numbers])
        for number in numbers:
            self.seen.appendValue((number, [str(number), None]))
            self.by_kind.updateValue((f"r{number % 3}", number % 2 == 0), (number,))
        if numbers and self.by_kind.containsKey(("r0", True)):
            self.by_kind.removeKey(("r0", True))
        if self.ttl:
            self._update_with_ttl(before, numbers)
        return int(before) + len(values)

    def _update_with_ttl(self, before: int, numbers: list[int]) -> None:
        self.short.update((before,))
        self.kept.update((before,))
        self.list_ttl.put([(number,) for number in numbers] or [(0,)])
        for number in numbers:
            self.map_ttl.updateValue((number % 4,), (number,))

    def _clear(self) -> None:
        self.total.clear()
        self.seen.clear()
        self.by_kind.clear()

    def set_timers(self, now: int) -> None:
        """Register a timer that expires in one of the next epochs and one that does not; keep at most three."""
        if self.timers:
            self.handle.registerTimer(now + 1)
            self.handle.registerTimer(now // HOUR * HOUR + 48 * HOUR)
            for timer in list(self.handle.listTimers())[3:]:
                self.handle.deleteTimer(timer)

    def close(self) -> None:
        """Nothing to close."""


def now(timers: Any) -> int:
    """The watermark, or the processing time if there is no watermark, in milliseconds."""
    watermark = timers.getCurrentWatermarkInMs()
    return int(watermark if watermark > 0 else max(timers.getCurrentProcessingTimeInMs(), 1_700_000_000_000))


class InRows(AllVariables):
    """``transformWithState``."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        """Add the rows."""
        count = self.update(key, [row.v for row in rows])
        self.set_timers(now(timerValues))
        yield Row(k=key[0], n=count)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        """Add a row without a value."""
        self.update(key, [None])
        yield Row(k=key[0], n=-1)

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        """Add the initial value."""
        self.update(key, [initialState.start])


class InPandas(AllVariables):
    """``transformWithStateInPandas``."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        """Add the rows of the frames."""
        count = self.update(key, [value for frame in rows for value in frame["v"]])
        self.set_timers(now(timerValues))
        yield pd.DataFrame({"k": [key[0]], "n": [count]})

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        """Add a row without a value."""
        self.update(key, [None])
        yield pd.DataFrame({"k": [key[0]], "n": [-1]})

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        """Add the initial value."""
        self.update(key, list(initialState["start"]))


def transformed(processor: AllVariables, time: str, *, initial: bool = False) -> Query:
    """A query with ``transformWithState`` in a time mode: ``processingTime``, ``eventTime`` or ``none``."""

    def build(stream: DataFrame) -> DataFrame:
        source = watermarked(stream)
        grouped = source.groupBy("k")
        transform = grouped.transformWithState if isinstance(processor, InRows) else grouped.transformWithStateInPandas
        start = None
        if initial:
            start = stream.sparkSession.createDataFrame([("k0", 100), ("gone", 7)], "k string, start long").groupBy("k")
        return transform(processor, OUTPUT, "update", time, initialState=start)

    variables = VARIABLES if processor.ttl else ("by_kind", "seen", "total")
    tables = [*variables, *(["timers"] if time != "none" else [])]
    conf = NO_EMPTY_EPOCHS if time == "processingTime" else {}
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
    """A count with the given schema, and optionally another variable."""

    def __init__(self, schema: str, *, added: bool) -> None:
        self.schema, self.has_added = schema, added

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the variables."""
        self.total = handle.getValueState("total", self.schema)
        if self.has_added:
            self.added = handle.getValueState("added", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        """Count the rows; a ``long`` gets a value out of the range of ``int``."""
        state = self.total.get()
        count = (state[0] if state else 0) + len(list(rows))
        wide = count + (1 << 40) if "long" in self.schema else count
        self.total.update((wide, "later") if "extra" in self.schema else (wide,))
        if self.has_added:
            self.added.update((count,))
        yield Row(k=key[0], n=count)

    def close(self) -> None:
        """Nothing to close."""


def evolving(schema: str, *, added: bool = False) -> Query:
    """A count whose state variable ``total`` has the given schema, which a restart may change."""
    return Query(
        lambda s: s.groupBy("k").transformWithState(Evolving(schema, added=added), OUTPUT, "update", "none"),
        ("op0_added", "op0_total") if added else ("op0_total",),
    )
