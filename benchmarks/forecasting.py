"""Errors of forecasts, on ten recorded histories: when is a level reached that was reached later?"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import streamstate as ss
from benchmarks.harness import Measurement, Size, bounded
from benchmarks.plot import publish
from benchmarks.recorded_loads import RECORDED
from streamstate.snapshots.store.entries import Entry, TableEntry
from streamstate.snapshots.store.epoch_load import EpochLoad, OperatorLoad, SourceLoad
from streamstate.snapshots.store.layout import CAPTURED, Layout
from streamstate.snapshots.store.manifest import Manifest
from streamstate.snapshots.store.registry import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streamstate.reports import History

_KNOWN, _REACHED = 0.6, 0.8
"""The share of the epochs that a forecast sees, and that after which the level is reached."""
_WITHIN = 20.0
_CHECKPOINTS = Path(__file__).parent.parent / "tests" / "recorded" / "spark-examples.tar.xz"
_OF_CHECKPOINTS = ("payments", "sessions")
_Counts = np.ndarray[Any, np.dtype[np.int64]]
_START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class _Level:
    """A level of a history that is forecast: the state's rows, or those of the backlog."""

    history: History
    column: str = "state_rows"

    def error(self) -> tuple[float, float, bool]:
        """Return a forecast's error, in percent of the time ahead.

        Also the time ahead in percent of the time that is known, and whether the limit was reached within the bounds.
        """
        load = self.history.load()
        frame = load.to_pandas()
        levels = frame[self.column].astype(float)
        at = int(len(frame) * _KNOWN) - 1
        limit = int(levels[: int(len(frame) * _REACHED)].max())
        if limit <= levels[: at + 1].max():
            raise AssertionError(f"{self.history.name} does not grow")
        reached = frame["began_at"][int(np.argmax(levels >= limit))]
        began = frame["began_at"][at]
        epoch = int(frame["epoch"][at])
        waits = self.column == "backlog_rows"
        found = load.forecast(backlog=limit, at=epoch) if waits else load.forecast(state=limit, at=epoch)
        ahead = (reached - began).total_seconds()
        known = (began - frame["began_at"][0]).total_seconds()
        after_all = (found.earliest or reached) <= reached <= (found.latest or reached)
        forecast = float("inf") if found.reached is None else (found.reached - began).total_seconds()
        return 100 * (forecast - ahead) / ahead, 100 * ahead / known, bool(after_all)


def forecasting(_spark: SparkSession | None, folder: Path, _size: Size) -> Iterator[Measurement]:
    """Measure forecasts from the first 60 % of ten histories, of the level that is reached after 80 %.

    Half of the histories are of real flights or of recorded checkpoints. The errors and their plot go into the docs.
    """
    figures = []
    for name, level in _histories(folder):
        error, ahead, within = level.error()
        figures.append({"history": name, "error": round(error, 1), "ahead": round(ahead), "within_bounds": within})
        setting = f"{ahead:.0f} % of the known time ahead"
        yield bounded(f"forecast of {name}", f"{error:+.1f} %", abs(error), _WITHIN, runs=1, setting=setting, unit="%")
    publish("forecasts", figures)


def _histories(folder: Path) -> Iterator[tuple[str, _Level]]:
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    titles = {
        "aircraft": "aircraft of a year's flights",
        "aircraft_routes": "aircraft on routes of a year's flights",
        "flight_numbers": "flight numbers and destinations of a year's flights",
        "names": "names by Zipf's law",
        "hours": "rows of two days, more and more an hour",
    }
    with tarfile.open(_CHECKPOINTS) as tar:
        tar.extractall(folder / "checkpoints", filter="data")
    for name in _OF_CHECKPOINTS:
        checkpoint = folder / "checkpoints" / "examples" / "checkpoints" / name
        ss.Checkpoint(checkpoint).capture(folder / "captured", name, verify="never")
        yield f"recorded checkpoint {name}", _Level(ss.open_store(folder / "captured")[name])
    for name, title in titles.items():
        yield title, _Level(_of_spark(folder / name, recorded[name]))
    for name, arrivals in _overloads().items():
        yield name, _Level(_queue(folder / name.replace(" ", "_"), arrivals), "backlog_rows")


def _overloads() -> dict[str, _Counts]:
    """Return rows that come for each epoch, of a query that processes a thousand in one."""
    random, epochs = np.random.default_rng(50), np.arange(400)
    return {
        "backlog of a steady overload": random.poisson(1_150, len(epochs)),
        "backlog of an overload in waves": random.poisson(1_200 + 400 * np.sin(epochs * 2 * np.pi / 48)),
        "backlog of an overload that grows": random.poisson(900 + 2 * epochs),
    }


def _of_spark(path: Path, recorded: dict[str, Any]) -> History:
    columns = zip(*(recorded[name] for name in ("seconds", "rows", "bytes")), strict=True)
    loads = [EpochLoad(seconds, operators=(_operator(rows, size),)) for seconds, rows, size in columns]
    step = timedelta(seconds=recorded["step"])
    return _written(path, [(_START + number * step, load) for number, load in enumerate(loads)])


def _operator(rows: int, size: int) -> OperatorLoad:
    return OperatorLoad("dedupe", rows, 0, size, 0.0, 0.0)


def _queue(path: Path, arrivals: _Counts) -> History:
    """Write the history of a query that reads at most a thousand rows in an epoch of about five seconds."""
    random, waits, began = np.random.default_rng(5), 0, _START
    epochs = []
    for came in arrivals.tolist():
        waits += came
        read = min(waits, 1_000)
        waits -= read
        seconds = float(random.gamma(100, 0.05))
        epochs.append((began, EpochLoad(seconds, sources=(SourceLoad("Kafka", read, waits),))))
        began += timedelta(seconds=seconds)
    return _written(path, epochs)


def _written(path: Path, epochs: Sequence[tuple[datetime, EpochLoad]]) -> History:
    layout = Layout.at(path)
    register(layout, "q", "id", "checkpoint")
    entries = [
        Entry(
            epoch, CAPTURED, began_at=began, committed_at=began + timedelta(seconds=load.seconds), time_source="commit",
            tables={"op0": TableEntry(None, 0, 0)}, load=load.text(),
        )
        for epoch, (began, load) in enumerate(epochs)
    ]  # fmt: skip
    Manifest(layout, "q").append(entries, "q/_epochs")
    return ss.open_store(path)["q"]
