"""Fixtures of the fault tests: the preloaded library, pre-warmed processes, and queries with known states."""

from __future__ import annotations

import itertools
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue

import pytest
from pyspark.sql import SparkSession

from faults import queries, shim
from faults.queries import Workload
from faults.zygote import Job, Zygote

FULL = os.environ.get("STREAMSTATE_FAULTS") == "full"
SEED = os.environ.get("STREAMSTATE_FAULTS_SEED", "1")
ROUND = os.environ.get("STREAMSTATE_FAULTS_ROUND")

Round = Callable[[Zygote, int], tuple[list[str], list[str]]]
"""Runs a round by number; returns the kinds of its faults, and the errors."""

if sys.platform != "linux":
    collect_ignore_glob = ["test_*.py"]  # preloading libraries works differently, or not at all

_FIGURES = pytest.StashKey[list[str]]()


@dataclass
class Tally:
    """The faults of a test's rounds, by kind, and the errors found."""

    done: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def check(self) -> None:
        """Fail with all errors, if there are any."""
        assert not self.wrong, f"{len(self.wrong)} wrong, seed {SEED}:\n" + "\n".join(self.wrong)


@dataclass
class Processes:
    """Several zygotes, so that rounds can run concurrently."""

    zygotes: SimpleQueue[Zygote]
    number: int

    @contextmanager
    def borrow(self) -> Iterator[Zygote]:
        """Borrow a zygote that no other round uses meanwhile."""
        zygote = self.zygotes.get()
        try:
            yield zygote
        finally:
            self.zygotes.put(zygote)

    def rounds(self, run_round: Round, *, target: int | None = None, number: int | None = None) -> Tally:
        """Run rounds 0, 1, … until ``target`` faults have occurred, or a ``number`` of rounds."""
        tally, lock = Tally(), threading.Lock()
        numbers = iter(range(number)) if number is not None else itertools.count()

        def work() -> None:
            while target is None or tally.done.total() < target:
                with lock:
                    round_number = next(numbers, None)
                if round_number is None:
                    return
                self._round(tally, round_number, run_round)

        if ROUND is not None:
            self._round(tally, int(ROUND), run_round)
            return tally
        with ThreadPoolExecutor(self.number) as pool:
            for worker in [pool.submit(work) for _ in range(self.number)]:
                worker.result()
        return tally

    def _round(
        self, tally: Tally, number: int, run_round: Callable[[Zygote, int], tuple[list[str], list[str]]]
    ) -> None:
        with self.borrow() as zygote:
            done, wrong = run_round(zygote, number)
        tally.done.update(done)
        tally.wrong += [f"round {number}: {line}" for line in wrong]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The preloaded library."""
    return shim.build(tmp_path_factory.mktemp("faultfs"))


@pytest.fixture(scope="session")
def processes(library: Path, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """Zygotes that share the session's JVM."""
    logs = tmp_path_factory.mktemp("zygotes")
    zygotes: list[Zygote] = [Zygote(library, spark, logs / f"{number}.log") for number in range(2)]
    free: SimpleQueue[Zygote] = SimpleQueue()
    for zygote in zygotes:
        free.put(zygote)
    yield Processes(free, len(zygotes))
    for zygote in zygotes:
        zygote.close()


@pytest.fixture(scope="session")
def zygote(processes: Processes) -> Zygote:
    """A zygote for tests that run no rounds."""
    with processes.borrow() as borrowed:
        return borrowed


@dataclass(frozen=True)
class Whole:
    """Two undamaged stores that are some epochs behind their query."""

    store: Path
    with_log_checkpoints: Path
    workload: Workload
    epochs: int
    """The number of epochs in the stores."""


@pytest.fixture(scope="session")
def whole(zygote: Zygote, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """Six of eight epochs, one epoch per commit; one store has only log entries, the other has log checkpoints too."""
    folder = tmp_path_factory.mktemp("whole")
    stores = {folder / "plain": 50, folder / "checkpointed": 3}
    source = queries.source_of(spark, folder / "input", queries.remembered)
    queries.run_to_end(source, queries.remembered, folder / "checkpoint", range(6))
    for store, every in stores.items():
        arguments = {"checkpoint": str(folder / "checkpoint"), "store": str(store)}
        ending = zygote.run_one(Job("capture", {**arguments, "epochs_a_pass": 1, "log_checkpoint_every": every}))
        assert ending.error is None, ending.trace
    queries.run_to_end(source, queries.remembered, folder / "checkpoint", range(6, 8))
    plain, checkpointed = stores
    return Whole(plain, checkpointed, queries.finished(source, folder / "checkpoint"), 6)


@pytest.fixture(scope="session", params=["joined", pytest.param("remembered", marks=pytest.mark.exhaustive)])
def workload(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Workload:
    """A finished query of eight or nine epochs with two state tables."""
    if request.param == "remembered":
        whole: Whole = request.getfixturevalue("whole")
        return whole.workload
    folder = tmp_path_factory.mktemp("joined")
    source = queries.source_of(spark, folder / "input", queries.joined)
    queries.run_to_end(source, queries.joined, folder / "checkpoint", range(8))
    return queries.finished(source, folder / "checkpoint")


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> list[str]:
    """Lines for the terminal summary: the number of faults by kind."""
    return request.config.stash.setdefault(_FIGURES, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the figures."""
    for line in config.stash.get(_FIGURES, []):
        terminalreporter.write_line(line)
