"""A checkpoint with any file changed is read as it was, or refused: no crash, no hang, no wrong row."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from recorded.unpacked import unpacked

CHECKPOINTS = [
    "HDFS/aggregation",
    "HDFS/left-outer-join",
    "RocksDB-with-changelog/window",
    "RocksDB-with-changelog/two-operators",
    "RocksDB-with-changelog/dropDuplicates",
    "RocksDB-format-2/aggregation",
]


def check(folder: Path, checkpoint: str, count: int) -> None:
    """Files of a checkpoint of Spark 4.2 are mutated in a process without Spark."""
    original = unpacked("4.2", folder) / checkpoint
    command = [sys.executable, "-m", "faults.mutations", str(original), str(count), "20261126", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1])
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    print(found["outcomes"])  # noqa: T201 (the figures of a long run)
    assert found["wrong"] == []
    assert sum(found["outcomes"].values()) == 3 * count
    assert {f"{use}: done" for use in ("doctor", "capture", "fork")} <= {*found["outcomes"]}


@pytest.mark.slow
@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_mutated_checkpoints(tmp_path: Path, checkpoint: str) -> None:
    """A few of each."""
    check(tmp_path, checkpoint, 6)


@pytest.mark.exhaustive
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_many_mutated_checkpoints(tmp_path: Path, checkpoint: str) -> None:
    """5,004 of all."""
    check(tmp_path, checkpoint, 834)
