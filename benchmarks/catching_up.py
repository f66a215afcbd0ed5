"""A store made in one call, in a call for each epoch, and by ``streamstate follow``: what reading it costs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import Measurement, timed
from benchmarks.long_history import asked
from benchmarks.processes import call_and_peak, follower, warm_process
from benchmarks.replayed import Replayed
from benchmarks.size import Size
from benchmarks.workload import finished

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RUNS = 5
_FEW = 6
_KEY = "history.at(epoch).table().lookup(key=key)['count']"


def catching_up(spark: SparkSession, folder: Path, size: Size) -> Iterator[Measurement]:
    """One key at the middle epoch, in a new process: of the store of one call, against the other two.

    At the full number of epochs and at a sixth of it.
    """
    load = finished(spark, folder / "query", size.keys, size.changes, size.epochs - 1)
    for epochs in (size.epochs // _FEW, size.epochs):
        yield from compared(load.checkpoint, folder / str(epochs), Size(size.keys, size.changes, epochs))


def compared(recording: Path, folder: Path, size: Size) -> Iterator[Measurement]:
    """The three stores of the first epochs of a finished query."""
    setting, epochs = f"{size}, {size.epochs} epochs", size.epochs
    folder.mkdir()
    one_call, calls, followed = (folder / name for name in ("one_call", "calls", "followed"))
    replayed = Replayed(recording, folder / "checkpoint")
    replayed.reveal(epochs)
    took, peak = _timed_and_peak(partial(call_and_peak, replayed.path, one_call))
    made = {"one call": (one_call, took), "a call for each": (calls, _by_calls(recording, calls, epochs))}
    made["follow"] = followed, _by_follow(recording, followed, epochs)
    answers: dict[str, list[tuple[float, int]]] = {how: [] for how in made}
    for turn in range(_RUNS + 1):
        for how, (store, _) in made.items():
            found = asked(store, _KEY, "key-7", epochs // 2)
            if turn:
                answers[how].append(found)
    seconds = {how: statistics.median(second for second, _ in found) for how, found in answers.items()}
    memory = {how: statistics.median(peak for _, peak in found) for how, found in answers.items()}
    for how in ("a call for each", "follow"):
        sides = "one call", seconds["one call"], how, seconds[how]
        yield Measurement("one key at the middle epoch", *sides, _RUNS, setting, wanted=1 / 1.2)
        sides = "one call", memory["one call"], how, memory[how]
        yield Measurement("the same, peak memory", *sides, _RUNS, setting, unit="B", wanted=1 / 1.2)
        yield Measurement("making the store", "one call", took, how, made[how][1], 1, setting)
    yield Measurement("making the store, peak memory", "one call", peak, "the bound", 2**30, 1, setting, unit="B")


def _timed_and_peak(call: Callable[[], int]) -> tuple[float, int]:
    """Seconds of a call in a new process, and the bytes that the process held at most."""
    found: list[int] = []
    return timed(lambda: found.append(call())), found[0]


def _by_calls(recording: Path, store: Path, epochs: int) -> float:
    """Call ``Checkpoint.capture`` after each epoch, in one process; returns the seconds that the calls took."""
    with warm_process(recording, store) as warm:
        return sum(warm.call().seconds for _ in range(epochs))


def _by_follow(recording: Path, store: Path, epochs: int) -> float:
    """Have ``streamstate follow`` capture each epoch as soon as it is committed; returns the seconds."""
    replayed = Replayed(recording, store.with_name("followed-checkpoint"))
    replayed.reveal()
    call_and_peak(replayed.path, store)
    with follower(replayed.path, store) as follow:
        return timed(lambda: _followed(replayed, follow.wait, epochs))


def _followed(replayed: Replayed, wait: Callable[[int], object], epochs: int) -> None:
    for _ in range(epochs - 1):
        replayed.reveal()
        wait(replayed.newest)
