"""A process is killed while it makes checkpoints: the old one is intact, each new one is whole or absent."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from operators.running import Run
from pyspark.sql import SparkSession
from stepping import tree, untouched

import streamstate as ss
from new_checkpoint.migrating_process import __file__ as migrating
from new_checkpoint.test_migrate import by
from streamstate.snapshots.spark.state_comparison import StateAt, state_differences


def killed(run: Run, target: Path, after: float) -> Path:
    """Kill a process so many seconds after it began to make a checkpoint; returns where it makes the last one."""
    command = [sys.executable, migrating, str(run.checkpoint), str(run.inputs.folder), str(target)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        last = process.stdout.readline().strip()
        time.sleep(after)
        process.kill()
        last = [last, *process.stdout.read().split()][-1]
    return Path(last)


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(1, marks=pytest.mark.slow),
        pytest.param(200, marks=[pytest.mark.exhaustive, pytest.mark.timeout(3 * 3600)]),
    ],
)
def test_nothing_half_made_is_left(spark: SparkSession, tmp_path: Path, kills: int) -> None:
    """The next call removes what a killed process left, and makes the checkpoint."""
    run, chosen, query = Run(spark, tmp_path), random.Random(30), by("k", count="count(*)")
    run.start(by("k", count="count(*)", most="max(v)"), epochs=range(2))
    before = tree(run.checkpoint)

    def migrate(target: Path) -> StateAt:
        return StateAt(
            ss.Checkpoint(run.checkpoint).migrate(lambda: query.build(run.inputs.stream(spark)), to=target).path, 1
        )

    expected = migrate(tmp_path / "meant")
    for kill in range(kills):
        last = killed(run, tmp_path / f"made{kill}", chosen.uniform(0, 8))
        if not last.exists():
            migrate(last)
        assert untouched(before, run.checkpoint)
        assert not [*tmp_path.glob(".*unfinished")]
        for made in tmp_path.glob(f"made{kill}-*"):
            assert not state_differences(spark, expected, StateAt(str(made), 1))
