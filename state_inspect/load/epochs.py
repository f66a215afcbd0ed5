"""The load of all epochs in columns, from the manifest alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from streamstate.snapshots.checkpoint.epoch_reads import EpochReads, reads_in_manifest
from streamstate.snapshots.store.entries import Entries
from streamstate.state_inspect.load.load_columns import LoadColumns
from streamstate.state_inspect.load.trend import Numbers

_RECENT = 5
"""Epochs of which medians of rates are taken."""


@dataclass(frozen=True)
class EpochColumns:
    """The manifest's entries of captured epochs, with their loads.

    Attributes:
        entries: the entries, ascending.
        counted: the rows of the state tables at each captured epoch, if the manifest has no load; NaN: not counted.
    """

    entries: Entries
    counted: Numbers

    @cached_property
    def places(self) -> np.ndarray[Any, np.dtype[np.intp]]:
        """The places of the captured epochs among the entries."""
        found: np.ndarray[Any, np.dtype[np.intp]] = np.flatnonzero(self.entries.is_captured)
        return found

    @cached_property
    def epochs(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The captured epochs."""
        found: np.ndarray[Any, np.dtype[np.int64]] = self.entries.epochs[self.places]
        return found

    @cached_property
    def loads(self) -> LoadColumns:
        """The loads of the captured epochs."""
        return LoadColumns(self.entries.column("load").take(self.places))

    @property
    def has_load(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """For each captured epoch whether its load is known."""
        return self.loads.is_there

    @cached_property
    def reads(self) -> dict[int, EpochReads]:
        """What the captured epochs read whose load is not known, by their places, from the sources' offsets."""
        if self.has_load.all():
            return {}
        captured = {int(at): place for place, at in enumerate(self.places) if not self.has_load[place]}
        return {captured[at]: read for at, read in enumerate(reads_in_manifest(self.entries)) if at in captured}

    @cached_property
    def began(self) -> Numbers:
        """Seconds since 1970 at which each epoch was planned, or else committed; NaN if neither is known."""
        return np.where(np.isnan(self._time("began_at")), self._time("committed_at"), self._time("began_at"))

    @cached_property
    def seconds(self) -> Numbers:
        """The time that each epoch took."""
        commits = np.array(self._column("time_source").to_pylist(), object) == "commit"
        measured = np.where(commits, self._time("committed_at") - self._time("began_at"), np.nan)
        return np.where(self.has_load, self.loads.numbers("seconds"), measured)

    @cached_property
    def rows(self) -> Numbers:
        """The rows that each epoch read."""
        rows = self._numbers("input_rows")
        for place, read in self.reads.items():
            if np.isnan(rows[place]) and read.records is not None:
                rows[place] = read.records
        return np.where(self.has_load, self.loads.summed("sources", "rows"), rows)

    @cached_property
    def backlog_rows(self) -> Numbers:
        """The rows that waited beyond those that the epoch read."""
        return self.loads.summed("sources", "backlog_rows")

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row per captured epoch; see :meth:`Load.to_pandas`."""
        service = self.rows / np.where((self.rows > 0) & (self.seconds > 0), self.seconds, np.nan)
        kept = self.loads.numbers("kept", "shed")
        columns = {
            "epoch": self.epochs,
            "began_at": _times(self.began),
            "seconds": self.seconds,
            "rows": whole(self.rows),
            "arrival_rate": self._arrival,
            "service_rate": service,
            "backlog_rows": whole(self.backlog_rows),
            "backlog_bytes": whole(self.loads.summed("sources", "backlog_bytes")),
            "catch_up_seconds": self._catch_up,
            "latency_seconds": self._latency,
            "state_rows": whole(self.state_rows),
            "state_bytes": whole(self.state_bytes),
            "watermark_lag_seconds": self.loads.numbers("watermark_lag"),
            "median_task_seconds": self.loads.numbers("median_seconds", "tasks"),
            "worst_task_seconds": self.loads.numbers("worst_seconds", "tasks"),
            "kept_rows": whole(kept),
            "dropped_rows": whole(self.loads.numbers("rows", "shed") - kept),
        }
        return pd.DataFrame(columns)

    @cached_property
    def _follows(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """For each epoch whether the one before is captured too."""
        found: np.ndarray[Any, np.dtype[np.bool_]] = np.diff(self.epochs, prepend=-2) == 1
        return found

    @cached_property
    def _passed(self) -> Numbers:
        """The time from the planning of the epoch before; NaN after a gap."""
        passed = np.diff(self.began, prepend=np.nan)
        return np.where(self._follows & (passed > 0), passed, np.nan)

    @cached_property
    def _arrival(self) -> Numbers:
        """Rows a second that came since the epoch before was planned; without a known backlog, those that were read."""
        grown = np.diff(np.nan_to_num(self.backlog_rows), prepend=0)
        grown[np.diff(np.isnan(self.backlog_rows), prepend=False)] = np.nan  # from here on it is known, or is not
        return np.maximum(self.rows + grown, 0) / self._passed

    @cached_property
    def _catch_up(self) -> Numbers:
        """The seconds until the backlog would be gone at the rates of the newest epochs; infinite if never."""
        spare = pd.Series(self.rows / self._passed - self._arrival).rolling(_RECENT, min_periods=1).median().to_numpy()
        with np.errstate(divide="ignore", invalid="ignore"):
            time = np.where(spare > 0, self.backlog_rows / spare, np.inf)
        time[np.isnan(self.backlog_rows) | np.isnan(spare)] = np.nan
        time[self.backlog_rows == 0] = 0
        return time

    @cached_property
    def _latency(self) -> Numbers:
        """The time from the arrival of an epoch's oldest row to the epoch's end.

        That row came after the planning of the newest epoch at which all that had come was read by now. What waited
        before a gap counts as read in it.
        """
        rows, waits = np.nan_to_num(self.rows), np.nan_to_num(self.backlog_rows)
        before = np.concatenate([[0.0], waits[:-1]])[: len(waits)]
        read = np.cumsum(rows + np.where(self._follows, 0.0, before))
        came = np.maximum.accumulate(read + waits)
        places = np.arange(len(read))
        oldest = np.minimum(np.searchsorted(came, read - rows, side="right"), places) - 1
        known = self._follows & (self.rows > 0) & (oldest >= 0)
        return np.where(known, self.began + self.seconds - self.began[np.maximum(oldest, 0)], np.nan)

    @cached_property
    def state_rows(self) -> Numbers:
        """Rows as Spark counts them, which are not those of the state tables for joins and lists, so never both."""
        return self.loads.summed("operators", "rows") if self.has_load.any() else self.counted

    @cached_property
    def state_bytes(self) -> Numbers:
        """The memory of the state stores, and RocksDB's files."""
        memory = self.loads.summed("operators", "memory_bytes")
        return memory + np.nan_to_num(self.loads.summed("operators", "rocksdbSstFileSize", "stores"))

    def _column(self, name: str) -> Any:
        return self.entries.column(name).take(self.places)

    def _numbers(self, name: str) -> Numbers:
        return np.array(self._column(name).cast("double").to_numpy(), float)

    def _time(self, name: str) -> Numbers:
        times = self._column(name).to_numpy().astype("datetime64[us]")
        return np.where(np.isnat(times), np.nan, times.astype("int64") / 1e6)


def whole(numbers: Any) -> Any:
    """Return numbers as pandas' integers; NaN is missing."""
    unknown = np.isnan(numbers)
    return pd.arrays.IntegerArray(np.where(unknown, 0, np.round(numbers)).astype("int64"), unknown)


def _times(seconds: Numbers) -> Any:
    micros = np.where(np.isnan(seconds), np.iinfo("int64").min, np.nan_to_num(seconds) * 1e6).astype("int64")
    return pd.DatetimeIndex(micros.astype("datetime64[us]")).tz_localize("UTC")
