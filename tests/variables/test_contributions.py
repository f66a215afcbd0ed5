"""Contributions: each operator and partition of an epoch counts once, whatever fails and whoever merges when."""

from __future__ import annotations

import itertools
import statistics
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamstate.variables.contributions import RETRIED, Staged, begin_run, stage_group, take_in
from streamstate.variables.version_log import MERGE, VersionLog
from variables.conftest import NewAddress
from variables.staging import QUERY, begun, declared, opened, stage

COUNTS = declared("map<string, bigint>", "sum")
OPERATORS, PARTITIONS = ("a0", "b1"), range(2)


class Crash(Exception):  # noqa: N818 (of the process that merges)
    """The error that ends the process that merges."""


@dataclass(frozen=True)
class Attempt:
    """An attempt of a task: what it adds; None if it stages nothing."""

    added: int | None


@dataclass(frozen=True)
class Try:
    """A run of an epoch: the attempts of each task, of which the last succeeds, and the order in which they stage."""

    tasks: tuple[tuple[Attempt, ...], ...]
    order: int


@dataclass(frozen=True)
class Epoch:
    """The tries of an epoch, each in a run of its own but the first; only the last is committed.

    Attributes:
        tries: what the runs did.
        empty_runs: how many runs of the query were killed before they did anything.
        then: what happens once it is committed.
    """

    tries: tuple[Try, ...]
    empty_runs: int
    then: str


THEN = ("merged", "not merged", "killed before it is published", "killed before it is removed", "merged by two at once")
ATTEMPTS = st.lists(st.builds(Attempt, st.none() | st.integers(1, 9)), min_size=1, max_size=3).map(tuple)
TASKS = st.tuples(*[ATTEMPTS] * (len(OPERATORS) * len(PARTITIONS)))
TRIES = st.lists(st.builds(Try, TASKS, st.integers(0, 99)), min_size=1, max_size=3).map(tuple)
EPOCHS = st.lists(
    st.builds(Epoch, TRIES, st.sampled_from([0, 0, 0, 1, 12]), st.sampled_from(THEN)), min_size=1, max_size=6
)


class Query:
    """A query whose tasks contribute to a variable, and what a fold over the attempts that succeeded returns."""

    def __init__(self, address: str) -> None:
        self.log = begun(address, COUNTS)
        self.run = begin_run(self.log.transport, QUERY, -1)
        self.committed = -1
        self.expected: Counter[str] = Counter()
        self.contributed: list[int] = []
        self._attempts = 0

    def restart(self) -> None:
        """Begin another run. Spark numbers its attempts from 0 again."""
        self.run = begin_run(self.log.transport, QUERY, self.committed)
        self._attempts = 0

    def epoch(self, number: int, epoch: Epoch) -> None:
        """Run an epoch as often as told, and commit it."""
        for at, trial in enumerate(epoch.tries):
            if at:
                self.restart()
            self._stage(number, trial)
        self._count(number, epoch.tries[-1])
        self.committed = number
        for _ in range(epoch.empty_runs):
            self.restart()

    def _stage(self, number: int, trial: Try) -> None:
        """All attempts stage, also those that failed, and in any order: a process may be slow to die."""
        staged: list[tuple[Staged, tuple[Any, ...] | None]] = []
        for task, attempts in enumerate(trial.tasks):
            for at, attempt in enumerate(attempts):
                self._attempts += 1
                made = self._made(number, task, OPERATORS[task // len(PARTITIONS)])
                if attempt.added is not None:
                    staged.append((made, ({self._key(number, task): attempt.added},)))
                if at:
                    staged.append((self._made(number, task, RETRIED), None))
        Random(trial.order).shuffle(staged)
        for made, added in staged:
            stage(self.log, made, *([] if added is None else [added]))

    def _made(self, number: int, task: int, operator: str) -> Staged:
        # Each operator is in a stage of its own.
        partition, stage_number = task % len(PARTITIONS), task // len(PARTITIONS)
        return Staged(number, self.run, operator, partition, self._attempts, 100 + task, stage_number)

    @staticmethod
    def _key(number: int, task: int) -> str:
        return f"{number}/{task}"

    def _count(self, number: int, trial: Try) -> None:
        added = {self._key(number, task): attempts[-1].added for task, attempts in enumerate(trial.tasks)}
        kept = {key: value for key, value in added.items() if value is not None}
        self.expected.update(kept)
        if kept:
            self.contributed.append(number)

    def settle(self, then: str) -> None:
        """Merge what is committed, or what else happens."""
        log = opened(self.log.transport.address, COUNTS)
        if then == "merged":
            take_in(log, QUERY, self.committed)
        if then == "merged by two at once":
            together(lambda: take_in(opened(log.transport.address, COUNTS), QUERY, self.committed), 2)
        if then.startswith("killed"):
            call = "add" if "published" in then else "remove"
            with crashing(log, call):
                take_in(log, QUERY, self.committed)
            self.restart()


@contextmanager
def crashing(log: VersionLog, call: str) -> Iterator[None]:
    """The process dies when it makes a call of the transport, if it does."""
    transport = log.transport

    def crash(*_: object) -> None:
        raise Crash

    setattr(transport, call, crash)
    try:
        yield
    except Crash:
        pass
    finally:
        delattr(transport, call)


def together(what: Callable[[], object], count: int) -> None:
    """Call a function in several threads at once."""
    start = threading.Barrier(count)

    def called() -> None:
        start.wait()
        what()

    threads = [threading.Thread(target=called) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def merges(log: VersionLog) -> list[tuple[int | None, int]]:
    """The epoch and the number of contributions of each version that merged some."""
    entries = [log.entry(number) for number in log.numbers()]
    return [(entry.epoch, entry.contributions) for entry in entries if entry.kind == MERGE]


@settings(max_examples=30, deadline=None)
@given(epochs=EPOCHS)
def test_the_attempts_that_succeeded_count_once(new_address: NewAddress, epochs: list[Epoch]) -> None:
    """Attempts that failed after they staged, runs that were killed, merges that were killed or ran twice."""
    query = Query(new_address())
    for number, epoch in enumerate(epochs):
        query.epoch(number, epoch)
        query.settle(epoch.then)
    query.settle("merged")
    log = opened(query.log.transport.address, COUNTS)
    assert dict(log.value(log.head())) == query.expected
    assert [epoch for epoch, _ in merges(log)] == query.contributed
    assert sum(contributions for _, contributions in merges(log)) == len(query.expected)
    assert log.entry(log.head()).merged == ({QUERY: query.contributed[-1]} if query.contributed else {})
    assert log.transport.names(stage_group(log.declaration.key, QUERY)) == []


@settings(max_examples=15, deadline=None)
@given(epochs=EPOCHS)
def test_an_epoch_sees_all_epochs_before(new_address: NewAddress, epochs: list[Epoch]) -> None:
    """Merged between the commit of an epoch and the next, each version has exactly the epochs up to its own."""
    query = Query(new_address())
    for number, epoch in enumerate(epochs):
        query.epoch(number, epoch)
        query.settle("merged")
        log = opened(query.log.transport.address, COUNTS)
        assert dict(log.value(log.head())) == query.expected


@pytest.mark.parametrize("queries", [1, 3])
def test_whoever_merges_whenever_each_epoch_is_merged_once(new_address: NewAddress, queries: int) -> None:
    """Four processes merge without a pause what several queries stage and commit meanwhile."""
    address = new_address()
    log = begun(address, COUNTS)
    committed = {f"{QUERY}-{query}": -1 for query in range(queries)}
    ended = threading.Event()
    threads = [threading.Thread(target=merge_all, args=[address, committed, ended]) for _ in range(4)]
    for thread in threads:
        thread.start()
    expected = stage_and_commit(opened(address, COUNTS), committed, epochs=20)
    ended.set()
    for thread in threads:
        thread.join()
    for name, newest in committed.items():
        take_in(log, name, newest)
    assert dict(log.value(log.head())) == dict.fromkeys(expected, 1)
    entries = [log.entry(number) for number in log.numbers()]
    for name in committed:
        assert [entry.epoch for entry in entries if entry.by == name] == list(range(20))


def merge_all(address: str, committed: dict[str, int], ended: threading.Event) -> None:
    """Merge what queries have committed, again and again."""
    own = opened(address, COUNTS)
    while not ended.is_set():
        for name, newest in list(committed.items()):
            take_in(own, name, newest)


def stage_and_commit(log: VersionLog, committed: dict[str, int], epochs: int) -> list[str]:
    """Run the epochs of several queries, of four tasks each; returns what each task has added."""
    for name in committed:
        begin_run(log.transport, name, -1)
    added = []
    for epoch, name in itertools.product(range(epochs), list(committed)):
        for partition in range(4):
            added.append(f"{name}/{epoch}/{partition}")
            made = Staged(epoch, 0, "a0", partition, 4 * epoch + partition, 7)
            stage(log, made, ({added[-1]: 1},), query=name)
        committed[name] = epoch
    return added


def test_a_set_replaces_what_was_merged_before_and_not_what_comes_after(new_address: NewAddress) -> None:
    """A set and a merge at the same time are one after the other."""
    query = Query(new_address())
    for number in range(2):
        query.epoch(number, Epoch((Try(((Attempt(1),),) * 4, 0),), 0, ""))
        query.settle("merged")
        if not number:
            query.log.set({"set": 5}, "", None)
    expected = {"set": 5} | {f"1/{task}": 1 for task in range(4)}
    log = opened(query.log.transport.address, COUNTS)
    assert dict(log.value(log.head())) == expected


def test_a_process_that_stages_late_is_not_counted(new_address: NewAddress) -> None:
    """A copy of a task that lost, which ends after the epoch was merged."""
    query = Query(new_address())
    query.epoch(0, Epoch((Try(((Attempt(1),),) * 4, 0),), 0, ""))
    query.settle("merged")
    stage(query.log, Staged(0, query.run, "a0", 0, 99, 7), ({"late": 1},))
    query.settle("merged")
    assert "late" not in query.log.value(query.log.head())
    assert query.log.transport.names(stage_group(query.log.declaration.key, QUERY)) == []


def test_a_process_of_a_run_that_was_killed_is_not_counted(new_address: NewAddress) -> None:
    """It stages after the next run has begun, in the same epoch."""
    query = Query(new_address())
    before = query.run
    query.restart()
    query.epoch(0, Epoch((Try(((Attempt(1),),) * 4, 0),), 0, ""))
    stage(query.log, Staged(0, before, "a0", 0, 99, 7), ({"late": 1},))
    query.settle("merged")
    assert dict(query.log.value(query.log.head())) == query.expected


def test_the_run_that_committed_is_known_after_many_that_did_not(new_address: NewAddress) -> None:
    """Thirty runs are killed before they merge what the first has committed."""
    query = Query(new_address())
    query.epoch(0, Epoch((Try(((Attempt(1),),) * 4, 0),), 30, ""))
    query.settle("merged")
    assert dict(query.log.value(query.log.head())) == query.expected
    assert len(query.log.transport.names(f"runs/{QUERY}")) == 2


def test_an_operator_that_runs_twice_in_an_epoch_counts_once(new_address: NewAddress) -> None:
    """A function of ``foreachBatch`` with two actions runs the operators before it in two jobs: the second counts."""
    query = Query(new_address())
    for job, name in ((0, "first"), (1, "second")):
        for partition in PARTITIONS:
            stage(query.log, Staged(0, 0, "a0", partition, 2 * job + partition, 7, job), ({name: 1},))
    take_in(query.log, QUERY, 0)
    assert dict(query.log.value(query.log.head())) == {"second": 2}


def test_a_retry_that_adds_nothing_replaces_what_was_staged(new_address: NewAddress) -> None:
    """Such as an alert of an attempt that failed, where the next attempt sees no reason for one."""
    query = Query(new_address())
    query.epoch(0, Epoch((Try(((Attempt(1), Attempt(None)), *((Attempt(1),),) * 3), 0),), 0, ""))
    query.settle("merged")
    assert set(query.log.value(query.log.head())) == {"0/1", "0/2", "0/3"}


def most_extreme(a: list[int], b: list[int]) -> list[int]:
    """A merge function of the user's: the list with the larger sum, then the larger list."""
    return max(a, b, key=lambda items: (sum(items), items))


NUMBERS = st.lists(st.integers(-1000, 1000), min_size=1, max_size=40)


def mean_and_variance(values: list[int]) -> dict[str, float]:
    """Return the value that the merge ``moments`` must return."""
    return {"n": len(values), "mean": statistics.fmean(values), "variance": statistics.pvariance(values)}


def per_key(values: list[int], entry: Callable[[list[int]], int]) -> dict[int, int]:
    """Return the value that a merge of maps must return, for maps of one entry each."""
    return {key: entry([value for value in values if value % 3 == key]) for key in {value % 3 for value in values}}


KINDS: dict[str, tuple[str, Any, Callable[[int], tuple[Any, ...]], Callable[[list[int]], Any]]] = {
    "sum": ("bigint", "sum", lambda value: (value,), sum),
    "sum of doubles": ("double", "sum", lambda value: (float(value),), lambda values: float(sum(values))),
    "sum of structs": (
        "struct<n: bigint, total: bigint>",
        "sum",
        lambda value: ({"n": 1, "total": value},),
        lambda values: {"n": len(values), "total": sum(values)},
    ),
    "counter": ("counter", "last", lambda value: (value,), sum),
    "min": ("bigint", "min", lambda value: (value,), min),
    "max": ("double", "max", lambda value: (float(value),), lambda values: float(max(values))),
    "last": ("bigint", "last", lambda value: (value,), lambda values: values[-1]),
    "union": ("set<bigint>", "union", lambda value: (value,), frozenset),
    "append": ("list<bigint>", "append(10)", lambda value: (value,), lambda values: values[-10:]),
    "average": ("double", "average", lambda value: (value, 2.0), statistics.fmean),
    "moments": (
        "struct<n: bigint, mean: double, variance: double>",
        "moments",
        lambda value: (value,),
        mean_and_variance,
    ),
    "map: sum": (
        "map<bigint, bigint>",
        "sum",
        lambda value: ({value % 3: value},),
        lambda values: per_key(values, sum),
    ),
    "map: max": (
        "map<bigint, bigint>",
        "max",
        lambda value: ({value % 3: value},),
        lambda values: per_key(values, max),
    ),
    "map: last": (
        "map<bigint, bigint>",
        "last",
        lambda value: ({value % 3: value},),
        lambda values: per_key(values, lambda found: found[-1]),
    ),
    "a function": (
        "list<bigint>",
        most_extreme,
        lambda value: ([value, 1],),
        lambda values: [max(values), 1],
    ),
}


def merged(address: str, type_: str, merge: Any, added: list[tuple[Any, ...]], groups: Random) -> Any:
    """The value after epochs of several partitions contributed, in the order given, in groups of any size."""
    log = begun(address, declared(type_, merge))
    begin_run(log.transport, QUERY, -1)
    epoch = partition = 0
    while added:
        size = groups.randint(1, 5)
        stage(log, Staged(epoch, 0, "a0", partition, partition, 7), *added[:size])
        added, partition = added[size:], partition + 1
        if groups.random() < 0.3 or not added:
            take_in(log, QUERY, epoch)
            epoch, partition = epoch + 1, 0
    return opened(address, log.declaration).value(log.head())


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=10, deadline=None)
@given(values=NUMBERS, seed=st.integers(0, 99))
def test_merging_equals_one_computation_over_all(
    new_address: NewAddress, kind: str, values: list[int], seed: int
) -> None:
    """For every merge, however the values are spread over tasks and epochs."""
    type_, merge, given_for, expected = KINDS[kind]
    found = merged(new_address(), type_, merge, [given_for(value) for value in values], Random(seed))
    if isinstance(found, (float, dict)):
        assert found == pytest.approx(expected(values), rel=1e-9, abs=1e-6)
    else:
        assert found == expected(values)


def test_a_model_that_tasks_train_together_is_that_of_all_rows(new_address: NewAddress) -> None:
    """The coefficients are those of a least-squares fit of everything."""
    random = np.random.default_rng(29)
    features = random.normal(size=(200, 2))
    target = 3 + features @ [2.0, -1.0] + random.normal(size=200) / 10
    added = [(list(row), float(y)) for row, y in zip(features, target, strict=True)]
    found = merged(new_address(), "list<double>", "regression", added, Random(1))
    expected = np.linalg.lstsq(np.column_stack([np.ones(200), features]), target, rcond=None)[0]
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(3))
def test_a_sketch_that_tasks_fill_together_is_about_that_of_all_rows(new_address: NewAddress, seed: int) -> None:
    """Distinct values within 5 %, quantiles within 3 % of the ranks."""
    values = Random(seed).choices(range(3000), k=4000)
    added = [(value,) for value in values]
    groups = [tuple(added[at : at + 500]) for at in range(0, len(added), 500)]
    distinct, quantiles = (_in_groups(new_address(), *what, groups) for what in (("double", "hll"), (KLL, "kll")))
    assert distinct == pytest.approx(len(set(values)), rel=0.05)
    assert (quantiles["n"], quantiles["min"], quantiles["max"]) == (4000, min(values), max(values))
    for name, rank in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        below = sum(value < quantiles[name] for value in values) / 4000
        upto = sum(value <= quantiles[name] for value in values) / 4000
        assert below - 0.03 <= rank <= upto + 0.03


KLL = "struct<n: bigint, min: double, max: double, p50: double, p90: double, p99: double>"


def _in_groups(address: str, type_: str, merge: str, groups: list[tuple[tuple[int], ...]]) -> Any:
    """The value after one epoch in which each partition added a group."""
    log = begun(address, declared(type_, merge))
    begin_run(log.transport, QUERY, -1)
    for partition, group in enumerate(groups):
        stage(log, Staged(0, 0, "a0", partition, partition, 7), *group)
    take_in(log, QUERY, 0)
    return log.value(log.head())
