"""Killing a capture anywhere loses nothing, doubles nothing, and shows no epoch in part."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from conftest import Source, counts, letters, run
from oracle import compare
from pyspark.sql import SparkSession

import streamstate as ss
from streamstate.snapshots.errors import NotAStoreError

# Captures one epoch a pass, so that there are many commits to die between; says when it begins.
PROGRAM = """
import sys, streamstate as ss
from streamstate.snapshots import capture
capture._EPOCHS_A_PASS = 1
spark = ss.session(**{"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g",
                      "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"})
print("begins", flush=True)
ss.capture(sys.argv[1], sys.argv[2], "q", spark=spark)
"""


@pytest.mark.slow
def test_killed_between_any_two_commits(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    """Whatever is visible after each kill is right, and the next capture completes it."""
    for epoch in range(12):
        source.add(letters(epoch))
    run(counts(source), tmp_path / "c")
    visible = []
    # A new store, one table's log ahead of the manifest, both at the same epoch: odd and even numbers of commits.
    for commits in (3, 8, 13, 20):
        kill_at(commits, tmp_path)
        visible.append(check(spark, tmp_path))
    assert visible == sorted(visible)
    assert 0 < visible[-1] < 12
    ss.capture(tmp_path / "c", tmp_path / "s", "q", spark=spark)
    assert check(spark, tmp_path) == 12


def kill_at(commits: int, folder: Path) -> None:
    """Start a capture in a process of its own, and SIGKILL it as soon as the store has so many commits."""
    command = [sys.executable, "-c", PROGRAM, str(folder / "c"), str(folder / "s")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begins\n"
        while committed(folder / "s") < commits:
            assert process.poll() is None, "the capture ended before it could be killed"
            threading.Event().wait(0.001)
        process.kill()


def committed(store: Path) -> int:
    """How many commits all tables of a store have."""
    return len([entry for entry in store.glob("**/_delta_log/*.json") if entry.stem.isdigit()])


def check(spark: SparkSession, folder: Path) -> int:
    """Compare every visible epoch with Spark's reader; returns how many there are."""
    try:
        history = ss.open_store(folder / "s")["q"]
    except (NotAStoreError, LookupError):
        return 0  # killed before it had written anything that counts
    assert history.captured() == list(range(len(history.captured())))
    return compare(spark, folder / "c", history)
