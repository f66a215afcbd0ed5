"""Queries that share variables see one version an epoch, and count each task once, whatever is killed.

``STREAMSTATE_KILLS_SEED`` (a number, 29 by default) decides which tasks fail, and where the process is killed.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

import pytest

import streamstate as ss
from streamstate.operations.drill.processes import kill_session
from streamstate.snapshots.checkpoint.bindings import Binding, binding_in_log
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.variables.contributions import Staged, stage_group
from variables.conftest import NewAddress
from variables.sharing import (
    AFTER_MERGING,
    AFTER_STAGING,
    AT_ANY_TIME,
    BEFORE_MERGING,
    FATES,
    PARTITIONS,
    POINTS,
    QUERIES,
    Life,
    Variables,
)

TESTS = Path(__file__).parents[1]
SEED = int(os.environ.get("STREAMSTATE_KILLS_SEED", "29"))
LONGEST = 300
"""Seconds until the process must have come to where it is killed."""
SETS = 1.0
"""Seconds between two sets of ``limit``."""


@dataclass
class Lives:
    """The lives of a process that runs both queries: all but the last end with a kill.

    Args:
        life: the last.
        kills: how many come before it.
    """

    life: Life
    kills: int

    def __post_init__(self) -> None:
        """Nothing has been killed yet."""
        self.killed: Counter[str] = Counter()
        self.values = itertools.count(1)
        self.variables = Variables.declared(self.life)

    def run(self) -> None:
        """Run them."""
        random, goal = Random(SEED), self.life.goal
        for number in range(self.kills):
            query, point = random.choice(QUERIES), POINTS[number % len(POINTS)]
            # Each life has an equal share of the epochs, but some do not get far.
            share = (goal - self.newest(query)) // (self.kills + 1 - number)
            epoch = self.newest(query) + 1 + random.randint(0, max(1, 2 * share - 2))
            if epoch < goal - 1:
                self._live(replace(self.life, point=point, query=query, epoch=epoch, steps=0), random)
        self._live(self.life, random)

    def newest(self, query: str) -> int:
        """The newest epoch that a query has committed."""
        commits = Path(self.life.checkpoint(query), "commits")
        return max((int(file.name) for file in commits.glob("*") if file.name.isdecimal()), default=-1)

    def _live(self, life: Life, random: Random) -> None:
        command = [sys.executable, "-m", "variables.sharing_process"]
        environment = os.environ | {"PYTHONPATH": str(TESTS)} | life.environment()
        with Path(life.folder, "log").open("ab") as log:
            process = subprocess.Popen(
                command, start_new_session=True, cwd=TESTS, env=environment, stdout=log, stderr=log
            )
        try:
            self._watch(process, life, random)
        finally:
            kill_session(process.pid)
            process.wait()
        if process.returncode:
            self.killed[life.point] += 1

    def _watch(self, process: subprocess.Popen[bytes], life: Life, random: Random) -> None:
        """Set ``limit`` until the process has ended, or is to be killed."""
        deadline, epoch = (
            time.monotonic() + LONGEST + life.goal,
            Path(life.checkpoint(life.query), "offsets", str(life.epoch)),
        )
        while not ends_within(process, SETS):
            assert time.monotonic() < deadline, f"it was not killed {life.point}"
            self.variables.limit.set(float(next(self.values)))
            if life.point == AT_ANY_TIME and epoch.exists():
                ends_within(process, random.uniform(0, 0.5))
                break
        expected = [-signal.SIGKILL] if life.point not in ("", AT_ANY_TIME) else [0, None]
        assert process.returncode in expected, Path(life.folder, "log").read_text(errors="replace")[-3000:]


def ends_within(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for a process; returns whether it has ended."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    return process.returncode is not None


class Left:
    """The traces of both queries: their checkpoints, the store, and the notes of their tasks."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self.variables = Variables.declared(life)
        self.variables.total.record()
        self.variables.limit.record()
        self.ids = {query: CheckpointFiles(life.checkpoint(query)).query_id for query in QUERIES}
        self.committed = {query: CheckpointFiles(life.checkpoint(query)).committed() for query in QUERIES}

    @cached_property
    def lines(self) -> list[dict[str, Any]]:
        """The notes of all tasks, also of those that failed."""
        with Path(self.life.folder, "seen").open(encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def seen(self) -> Iterator[tuple[str, int, dict[str, Any]]]:
        """Yield what tasks of committed epochs saw."""
        last = {query: epochs[-1] for query, epochs in self.committed.items()}
        for line in self.lines:
            if "versions" in line and line["epoch"] <= last.get(line["query"], -1):
                yield line["query"], line["epoch"], line

    @cached_property
    def offsets(self) -> dict[tuple[str, int], tuple[int, Binding]]:
        """The rows that a query has read by each epoch, and the binding of the epoch."""
        found = {}
        for query, epochs in self.committed.items():
            for epoch in epochs:
                text = Path(self.life.checkpoint(query), "offsets", str(epoch)).read_text(encoding="utf-8")
                rows = next(json.loads(line)["offset"] for line in text.splitlines()[2:] if '"offset"' in line)
                binding = binding_in_log(text)
                assert binding is not None
                found[query, epoch] = rows, binding
        return found

    def merged(self, name: str) -> dict[int, dict[str, int]]:
        """Up to which epoch of each query each version of a variable has what was contributed."""
        entries = ss.open_store(f"{self.life.folder}/store")[f"shared.{name}"].recorded.entries()
        of = {self.ids[query]: query for query in QUERIES}
        merged = {entry.epoch: json.loads(entry.offsets or "{}")["merged"] for entry in entries}
        return {version: {of[id_]: epoch for id_, epoch in upto.items()} for version, upto in merged.items()}

    def sum_of(self, query: str, epoch: int) -> int:
        """The sum of the numbers that a query has read up to an epoch: of 0, 1, 2 and so on."""
        rows = self.offsets[query, epoch][0] if epoch >= 0 else 0
        return rows * (rows - 1) // 2

    def figures(self, killed: Counter[str]) -> dict[str, Any]:
        """Return the figures of the run, for a table."""
        fates = Counter(line["fate"] for line in self.lines if line["fate"] and "versions" not in line)
        return {
            "seed": SEED,
            "epochs": sum(map(len, self.committed.values())),
            "driver and JVM killed": dict(killed),
            "attempts": dict(fates),
            "kills and failed attempts": killed.total() + fates.total(),
            "epochs that ran again": len(self.again()),
            "reads": sum(1 for _ in self.seen()),
            "versions": self.variables.total.version,
            "versions of limit": self.variables.limit.version,
        }

    def again(self) -> set[tuple[str, int]]:
        """Epochs that ran in several runs, because the process was killed in them."""
        runs: dict[tuple[str, int], set[int]] = {}
        for query, epoch, line in self.seen():
            runs.setdefault((query, epoch), set()).add(line["run"])
        return {epoch for epoch, own in runs.items() if len(own) > 1}


def check_one_version(left: Left) -> None:
    """I1: all tasks of an epoch, also those that failed and those of other runs, saw what ``offsets/N`` says."""
    limits = left.variables.limit.history().set_index("version")["value"]
    totals = left.variables.total.history().set_index("version")["value"]
    tallied = left.merged("tally")
    reads: Counter[tuple[str, int]] = Counter()
    for query, epoch, line in left.seen():
        binding = left.offsets[query, epoch][1]
        versions = numbers(binding)
        assert line["versions"] == versions, (query, epoch, line)
        keys = sum(PARTITIONS * (upto + 1) for upto in tallied[versions["tally"]].values())
        expected = [limits[versions["limit"]], totals[versions["total"]], keys, keys]
        assert line["values"] == expected, (query, epoch, line, expected)
        reads[query, epoch] += 1
    for bound in left.offsets:
        assert reads[bound] >= 2 * PARTITIONS, bound


def numbers(binding: Binding) -> dict[str, int]:
    """The version of each variable that an epoch is bound to."""
    versions = {name: version.number for name, version in binding.versions.items() if version is not None}
    return {name: number for name, number in versions.items() if number is not None}


def check_each_counts_once(left: Left) -> None:
    """I2: every version has each task up to its epochs once, and an epoch sees all epochs of its query before."""
    assert dict(left.variables.tally.get()) == {
        f"{query}/{epoch}/{partition}": 1 for query, epoch in left.offsets for partition in range(PARTITIONS)
    }
    totals = left.variables.total.history().set_index("version")["value"]
    merged = left.merged("total")
    for number, upto in merged.items():
        assert totals[number] == sum(left.sum_of(query, epoch) for query, epoch in upto.items()), number
    assert merged[max(merged)] == {query: epochs[-1] for query, epochs in left.committed.items()}
    for (query, epoch), (_, binding) in left.offsets.items():
        assert merged[numbers(binding)["total"]].get(query, -1) == epoch - 1
    for variable in left.variables.all():
        for query, committed in left.committed.items():
            staged = variable.log.transport.names(stage_group(variable.declaration.key, left.ids[query]))
            assert all(made is not None and made.epoch > committed[-1] for made in map(Staged.of, staged))


def check_steps(left: Left) -> None:
    """I3: an epoch that is stepped in a fork sees what the original saw."""
    original = {epoch: line for query, epoch, line in left.seen() if query == "a"}
    stepped = [line for line in left.lines if line["query"].startswith("fork")]
    assert len(stepped) == left.life.steps * 3 * 2 * PARTITIONS
    for line in stepped:
        told = original[line["epoch"]]
        assert (line["versions"], line["values"]) == (told["versions"], told["values"])


def check(lives: Lives, capsys: pytest.CaptureFixture[str]) -> Left:
    """Run the lives, check what they left, and print the figures."""
    began = time.monotonic()
    lives.run()
    left = Left(lives.life)
    for epochs in left.committed.values():
        assert epochs == list(range(len(epochs)))
        assert len(epochs) >= lives.life.goal
    check_one_version(left)
    check_each_counts_once(left)
    check_steps(left)
    with capsys.disabled():
        figures = left.figures(lives.killed) | {"seconds": round(time.monotonic() - began)}
        print(f"\n{lives.life.transport.partition(':')[0]}: {json.dumps(figures)}")  # noqa: T201 (for the table in the documentation)
    return left


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_few_kills_change_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Killed once at each point; a third of the tasks' first attempts fail."""
    life = Life(str(tmp_path), str(tmp_path / "transport"), SEED, failing=0.33, goal=16, steps=1)
    lives = Lives(life, kills=3)
    left = check(lives, capsys)
    assert lives.killed == dict.fromkeys((AFTER_STAGING, BEFORE_MERGING, AFTER_MERGING), 1)
    assert left.again()
    assert {line["fate"] for line in left.lines} == {"", *FATES}


@pytest.mark.exhaustive
@pytest.mark.timeout(14400)
def test_hundreds_of_kills_change_nothing(
    new_address: NewAddress, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Over files and over Redis: 1,800 epochs or more, in which 200 attempts or more fail or are killed."""
    life = Life(str(tmp_path), new_address(), SEED, failing=0.07, goal=900, steps=5)
    left = check(Lives(life, kills=12), capsys)
    figures = left.figures(Counter())
    assert figures["epochs"] >= 1800
    assert figures["kills and failed attempts"] >= 200
