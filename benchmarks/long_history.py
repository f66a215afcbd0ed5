"""Cost of questions about the past in a store of 10,000 epochs, compared with one of 100; without Spark."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import streamstate as ss
from benchmarks.harness import Measurement, Size, bounded, timed
from benchmarks.large_stores import QUERY, TABLE
from benchmarks.long_store import bytes_written, write_long_store
from benchmarks.plot import publish
from streamstate.reports import History
from streamstate.snapshots.checkpoint.state_tables import EPOCH
from streamstate.snapshots.store.delta.commits import required
from streamstate.snapshots.store.delta.reading import TableVersion
from streamstate.snapshots.store.layout import Layout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FEW = 100
_FULL = 10_000
_RUNS = 5
_MOVES = 30

_ASK = """import json, resource, sys
store, key, epoch = sys.argv[1], sys.argv[2], int(sys.argv[3])
import streamstate as ss
opened = ss.open_store(store)
history = opened[opened.queries()[0]]
answer = {question}
print(json.dumps([answer, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024]))"""
_QUESTIONS = {
    "one key at a past epoch": "history.at(epoch).table().lookup(key=key)['count']",
    "the whole state at a past epoch": "history.at(epoch).table().to_arrow().num_rows",
    "difference of neighbouring epochs": "len(history.diff(epoch - 1, epoch).changed)",
    "a key's history": "len(history.key_history(key=key))",
}


def long_history(_spark: SparkSession | None, folder: Path, size: Size) -> Iterator[Measurement]:
    """Measure questions about the past, each in a new process, and moves of a slider.

    With 10,000 epochs and more the seconds and their plot go into the docs.
    """
    counts = {_FEW, *(count for count in (1_000,) if count < size.epochs), size.epochs}
    stores = {epochs: folder / str(epochs) for epochs in sorted(counts)}
    for epochs, store in stores.items():
        write_long_store(store, epochs, size.keys, size.changes)
    setting, key = str(size), f"key-{size.keys // 2}"
    drawn = {}
    for question, expression in _QUESTIONS.items():
        took = _taken({epochs: partial(asked, store, expression, key, epochs // 2) for epochs, store in stores.items()})
        drawn[question] = {epochs: round(seconds, 3) for epochs, (seconds, _) in took.items()}
        yield from _compared(question, took, size.epochs, setting)
    if size.epochs >= _FULL:
        publish("long_history", drawn)
    yield _searched(stores[size.epochs], size, setting)
    yield from _moved(stores[size.epochs], size.epochs, setting)
    yield from _bytes(stores[size.epochs], setting)


def asked(store: Path, expression: str, key: str, epoch: int) -> tuple[float, int]:
    """Return the seconds and the peak memory of a new process that answers."""
    start = time.perf_counter()
    script = _ASK.replace("{question}", expression)
    command = [sys.executable, "-c", script, str(store), key, str(epoch)]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds = time.perf_counter() - start
    answer, peak = json.loads(run.stdout)
    if answer is None:
        raise AssertionError(f"{expression} has no answer at epoch {epoch} of {store}")
    return seconds, peak


def _taken(asked: Mapping[int, Callable[[], tuple[float, int]]]) -> dict[int, tuple[float, float]]:
    """Return the median seconds and peak memory of each history; they take turns."""
    runs: dict[int, list[tuple[float, int]]] = {epochs: [] for epochs in asked}
    for turn in range(_RUNS + 1):
        for epochs, ask in asked.items():
            found = ask()
            if turn:
                runs[epochs].append(found)
    return {
        epochs: (statistics.median(seconds for seconds, _ in took), statistics.median(peak for _, peak in took))
        for epochs, took in runs.items()
    }


def _compared(question: str, took: Mapping[int, tuple[float, float]], many: int, setting: str) -> Iterator[Measurement]:
    """Compare the longest history with the shortest."""
    (seconds, peak), (few_seconds, few_peak) = took[many], took[_FEW]
    names = f"{many:,} epochs", f"{_FEW} epochs"
    yield Measurement(question, names[0], seconds, names[1], few_seconds, _RUNS, setting, wanted=1 / 1.2)
    memory = f"{question}, peak memory"
    yield Measurement(memory, names[0], peak, names[1], few_peak, _RUNS, setting, unit="B", wanted=1 / 1.3)


def _searched(store: Path, size: Size, setting: str) -> Measurement:
    """Measure a search through all changes, for a condition that is met late."""
    late = size.epochs * size.changes // size.keys
    seconds = statistics.median(asked(store, f"history.first('count > {late}') or 0", "", 0)[0] for _ in range(3))
    read = size.epochs * size.changes
    return Measurement(
        "first epoch at which a condition held",
        f"{read / seconds / 1e6:.1f} million changes a second",
        seconds,
        "20 million changes a second",
        read / 20e6,
        3,
        setting,
        wanted=1,
    )


def _moved(store: Path, epochs: int, setting: str) -> Iterator[Measurement]:
    """Measure a page of rows at random epochs, first new to the reader and then loaded."""
    random, history = Random(0), ss.open_store(store)[QUERY]
    took: dict[str, list[float]] = {"epoch not seen before": [], "epoch that is loaded": []}
    for _ in range(_MOVES):
        epoch = random.randrange(1, epochs - 1)
        for times in took.values():
            times.append(timed(partial(_page, history, epoch)))
    for (question, times), bound in zip(took.items(), (0.3, 0.03), strict=True):
        yield bounded(
            f"a slider's move to an {question}",
            "20 rows",
            statistics.median(times),
            bound,
            runs=_MOVES,
            setting=setting,
        )


def _page(history: History, epoch: int) -> object:
    return history.at(epoch).table().page(limit=20)


def _bytes(store: Path, setting: str) -> Iterator[Measurement]:
    """Compare the bytes of live files and of all files with the bytes as captured."""
    log = Layout.at(store).changelog(QUERY, TABLE)
    live = sum(file.size for file in TableVersion(log, required(log)).files(EPOCH))
    written = bytes_written(store)
    sides = "live files", live, "as captured", written["captured"]
    yield Measurement("bytes on disk, merged", *sides, 1, setting, unit="B", wanted=1 / 1.2)
    sides = "all files", written["all"], "as captured", written["captured"]
    yield Measurement("bytes written", *sides, 1, setting, unit="B", wanted=1 / 4)
