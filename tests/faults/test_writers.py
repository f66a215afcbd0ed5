"""Several processes that capture one query into one store produce one correct history."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from conftest import Source, run
from oracle import captured_rows, spark_rows
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import streamstate as ss
from faults.conftest import FULL
from faults.files import faulty, orphans
from faults.inspection import QUERY, Expected, inspect
from faults.shim import ALWAYS, Action, Control, Fault, Kind
from faults.zygote import Job, Zygote

EPOCHS = 200 if FULL else 12
WRITERS = 8
TABLE = "op0"

# A capture in a separate process and JVM; waits for a signal, so that both start together.
PROGRAM = """
import sys, streamstate as ss
from streamstate.snapshots.capture import epoch_commit
epoch_commit._EPOCHS_A_PASS = 5
spark = ss.session(**{"spark.sql.shuffle.partitions": "1", "spark.driver.memory": "1g", "spark.ui.enabled": "false",
                      "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"})
print("ready", flush=True)
sys.stdin.readline()
ss.Checkpoint(sys.argv[1]).capture(sys.argv[2], "q", spark=spark)
spark.stop()
"""


def rows_of(epoch: int) -> list[tuple[str, int]]:
    """The input of one epoch."""
    return [(f"k{(epoch * 3 + row * row) % 11}", epoch * 10 + row) for row in range(6)]


def brute_force(epochs: int) -> Expected:
    """The query's expected states at every epoch, computed from its input."""
    state: dict[str, tuple[int, int, int]] = {}
    states = []
    for epoch in range(epochs):
        for key, value in rows_of(epoch):
            count, total, most = state.get(key, (0, 0, value))
            state[key] = (count + 1, total + value, max(most, value))
        states.append({f'["{key}"]': str(list(values)) for key, values in state.items()})
    return Expected({TABLE: 1}, {TABLE: states})


@pytest.fixture(scope="session")
def checkpoint(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished query whose checkpoint still has all epochs."""
    folder = tmp_path_factory.mktemp("many")
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "1")
    session.conf.set("spark.sql.streaming.minBatchesToRetain", "1000")
    source = Source(session, folder / "input", "k string, v long")
    for epoch in range(EPOCHS):
        keys, values = zip(*rows_of(epoch), strict=True)
        source.add({"k": list(keys), "v": list(values)})
    run(source.stream().groupBy("k").agg(F.count("*"), F.sum("v"), F.max("v")), folder / "checkpoint")
    return folder / "checkpoint"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_eight_concurrent_writers(
    spark: SparkSession, zygote: Zygote, checkpoint: Path, tmp_path: Path, figures: list[str]
) -> None:
    """Each epoch is captured once and correctly, and the writers really raced."""
    store = tmp_path / "store"
    # A slow disk, so that several writers read a table before the first of them commits.
    puts = Kind.LINK | Kind.RENAME
    slow = Fault(Action.SLOW, at=1, kinds=puts, counted=puts, error=50, times=ALWAYS)
    controls = [Control(tmp_path / f"{number}.control", store, slow) for number in range(WRITERS)]
    arguments = {"checkpoint": str(checkpoint), "store": str(store), "epochs_a_pass": 2}
    jobs = [Job("capture", {**arguments, "control": str(control.path)}, timeout=1500) for control in controls]
    endings = zygote.run(jobs)
    assert [(ending.error, ending.signal) for ending in endings] == [(None, None)] * WRITERS, endings
    commits = [[call for call in control.calls() if call.commits] for control in controls]
    won = [sum(call.error == 0 for call in calls) for calls in commits]
    lost = [sum(call.error != 0 for call in calls) for calls in commits]
    figures.append(f"{WRITERS} writers, {EPOCHS} epochs: commits won {won}, lost {lost}, {endings[0].seconds:.0f} s")
    assert sum(wins > 0 for wins in won) > 1, "one writer did all the work"
    assert sum(lost) > 0, "no two writers conflicted"
    check(spark, checkpoint, store)


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_writers_share_only_the_store(spark: SparkSession, checkpoint: Path, tmp_path: Path) -> None:
    """There are two processes, each with its own JVM."""
    command = [sys.executable, "-c", PROGRAM, str(checkpoint), str(tmp_path / "store")]
    writers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate(timeout=1500)
    assert [writer.returncode for writer in writers] == [0, 0]
    check(spark, checkpoint, tmp_path / "store")


def check(spark: SparkSession, checkpoint: Path, store: Path) -> None:
    """All epochs are compared with brute force, some with Spark's reader, and the files are checked."""
    expected = brute_force(EPOCHS)
    found = inspect(store, expected, EPOCHS)
    assert found.brief() == []
    history = ss.open_store(store)[QUERY]
    for epoch in {0, 1, EPOCHS // 3, EPOCHS // 2, EPOCHS - 1}:
        assert Counter(captured_rows(history.at(epoch).table())) == spark_rows(spark, checkpoint, TABLE, epoch)
    assert faulty(store, expected) == []
    assert orphans(store) == []
