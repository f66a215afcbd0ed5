"""What all fault tests share: the preloaded library, quick processes, and queries whose truth is known."""

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
"""Runs the round of a number; returns what it did, by kind, and what was wrong."""

if sys.platform != "linux":
    collect_ignore_glob = ["test_*.py"]  # libraries are preloaded differently, or not at all

_FIGURES = pytest.StashKey[list[str]]()


@dataclass
class Tally:
    """What the rounds of a test did, and what was wrong."""

    done: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def check(self) -> None:
        """Fail where anything was wrong, with all of it."""
        assert not self.wrong, f"{len(self.wrong)} wrong, seed {SEED}:\n" + "\n".join(self.wrong)


@dataclass
class Processes:
    """A few zygotes, so that rounds can run beside each other."""

    zygotes: SimpleQueue[Zygote]
    number: int

    @contextmanager
    def one(self) -> Iterator[Zygote]:
        """A zygote that nobody else uses meanwhile."""
        taken = self.zygotes.get()
        try:
            yield taken
        finally:
            self.zygotes.put(taken)

    def rounds(self, one_round: Round, *, wanted: int | None = None, number: int | None = None) -> Tally:
        """Run rounds 0, 1, …: until ``wanted`` things were done, or a ``number`` of rounds."""
        tally, lock = Tally(), threading.Lock()
        numbers = iter(range(number)) if number is not None else itertools.count()

        def work() -> None:
            while wanted is None or tally.done.total() < wanted:
                with lock:
                    at = next(numbers, None)
                if at is None:
                    return
                self._round(tally, at, one_round)

        if ROUND is not None:
            self._round(tally, int(ROUND), one_round)
            return tally
        with ThreadPoolExecutor(self.number) as pool:
            for worker in [pool.submit(work) for _ in range(self.number)]:
                worker.result()
        return tally

    def _round(
        self, tally: Tally, number: int, one_round: Callable[[Zygote, int], tuple[list[str], list[str]]]
    ) -> None:
        with self.one() as zygote:
            done, wrong = one_round(zygote, number)
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
    """One of them, for a test that runs no rounds."""
    with processes.one() as taken:
        return taken


@dataclass(frozen=True)
class Whole:
    """Two stores in which nothing is damaged, some epochs behind their query."""

    store: Path
    with_log_checkpoints: Path
    workload: Workload
    epochs: int
    """How many the stores have."""


@pytest.fixture(scope="session")
def whole(zygote: Zygote, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """Six epochs of eight, an epoch a commit; in one store every log entry counts, the other has all kinds of files."""
    folder = tmp_path_factory.mktemp("whole")
    stores = {folder / "plain": 50, folder / "checkpointed": 3}
    source = queries.source_of(spark, folder / "input", queries.remembered)
    queries.run_to_end(source, queries.remembered, folder / "checkpoint", range(6))
    for store, every in stores.items():
        arguments = {"checkpoint": str(folder / "checkpoint"), "store": str(store)}
        ending = zygote.one(Job("capture", {**arguments, "epochs_a_pass": 1, "log_checkpoint_every": every}))
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
    """Lines for the end of the run: what was done, how often."""
    return request.config.stash.setdefault(_FIGURES, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say the figures."""
    for line in config.stash.get(_FIGURES, []):
        terminalreporter.write_line(line)
