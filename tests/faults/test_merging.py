"""Merging that is killed at any call, or whose disk fails, loses nothing, and the next run completes it."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from random import Random

import pytest

from faults.conftest import FULL, SEED, Processes, Whole
from faults.drawing import Drawn, Seen, draw_fault
from faults.files import faulty, orphans
from faults.inspection import inspect
from faults.shim import Action, Call, Control, Fault, Kind
from faults.zygote import Job, Zygote


@pytest.fixture(scope="session")
def merging(zygote: Zygote, whole: Whole, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """The calls of merging without a fault."""
    return Seen.recorded(tmp_path_factory.mktemp("merging"), partial(_calls, zygote, whole))


def _calls(zygote: Zygote, whole: Whole, store: Path, counted: Kind) -> tuple[list[Call], float]:
    shutil.copytree(whole.store, store)
    control = Control(store.with_suffix(".control"), store, Fault(counted=counted))
    ending = zygote.run_one(Job("merge", {"store": str(store), "control": str(control.path)}))
    assert ending.error is None, ending.trace
    assert all(ending.result["merged"])
    assert not inspect(store, whole.workload.expected, whole.epochs, whole.epochs).brief()
    return control.calls(), ending.seconds


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.timeout(7200 if FULL else 1800)
def test_merging_loses_nothing(
    processes: Processes, whole: Whole, merging: Seen, tmp_path: Path, figures: list[str]
) -> None:
    """A kill before and after each call, and other faults at random; the regular suite runs a few of them."""
    kills = [
        Drawn(Fault(kill, call.number)) for call in merging.changes for kill in (Action.KILL_BEFORE, Action.KILL_AFTER)
    ]
    random = Random(SEED)
    drawn = [*kills, *(draw_fault(random, merging) for _ in range(len(kills) // 2))]
    if not FULL:
        drawn = random.sample(drawn, 2)

    def run_round(zygote: Zygote, number: int) -> tuple[list[str], list[str]]:
        store = tmp_path / str(number)
        shutil.copytree(whole.store, store)
        control = Control(store.with_suffix(".control"), store, drawn[number].fault)
        job = Job("merge", {"store": str(store), "control": str(control.path)}, kill_after=drawn[number].kill_after)
        story = f"{drawn[number]}: {zygote.run_one(job)}"
        wrong = inspect(store, whole.workload.expected, whole.epochs, whole.epochs).brief()
        again = zygote.run_one(Job("merge", {"store": str(store)}))
        wrong += [f"again: {again}"] if again.error or again.signal else []
        wrong += inspect(store, whole.workload.expected, whole.epochs, whole.epochs).brief()
        wrong += [f"orphan: {file}" for file in orphans(store)]
        wrong += faulty(store, whole.workload.expected)
        shutil.rmtree(store)
        return [drawn[number].kind], [f"{story}\n    {line}" for line in wrong]

    tally = processes.rounds(run_round, number=len(drawn))
    figures.append(f"faults while files were merged: {tally.done.total()} ({dict(sorted(tally.done.items()))})")
    tally.check()
