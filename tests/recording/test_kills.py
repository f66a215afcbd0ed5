"""A recorder that is killed at any point, together with its JVM, records no row twice and loses none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from recording.recorder_process import POINTS, ROWS
from recording.waiting import until

TESTS = Path(__file__).parents[1]


def recorded(folder: Path) -> list[int]:
    """The recorded numbers in order, by another reader of Delta."""
    try:
        rows = DeltaTable(str(folder)).to_pyarrow_table()
    except TableNotFoundError:
        return []
    numbers: list[int] = rows.sort_by([("_batch", "ascending"), ("value", "ascending")])["value"].to_pylist()
    return numbers


def started(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """A recorder in a process group of its own."""
    command = [sys.executable, "-m", "recording.recorder_process", str(folder), *arguments]
    return subprocess.Popen(command, start_new_session=True, cwd=TESTS, env=os.environ | {"PYTHONPATH": str(TESTS)})


def killed(process: subprocess.Popen[bytes]) -> None:
    """Kill a recorder and its JVM, if they have not done so."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def check(folder: Path) -> int:
    """Whole epochs are there, each row once and in order; returns how many rows."""
    numbers = recorded(folder)
    assert numbers == list(range(len(numbers)))
    assert not len(numbers) % ROWS
    return len(numbers)


def at_random(folder: Path, random: Random) -> None:
    """Kill a recorder some time after it has begun to record."""
    before = len(recorded(folder))
    process = started(folder)
    try:
        until(lambda: process.poll() is not None or len(recorded(folder)) > before, timeout=300)
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(random.uniform(0, 2))
    finally:
        killed(process)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_no_row_is_lost_or_doubled_at_any_point_of_an_epoch(tmp_path: Path) -> None:
    """Killed after the rows are written, after they are committed, and before Spark commits the epoch."""
    for number, point in enumerate(POINTS):
        before = len(recorded(tmp_path / "numbers"))
        # The first commit is not of rows: with it, the recorder takes its turn.
        process = started(tmp_path / "numbers", point, str(1 + number))
        assert process.wait(timeout=300) == -signal.SIGKILL
        assert check(tmp_path / "numbers") >= before
    at_random(tmp_path / "numbers", Random(1))
    assert check(tmp_path / "numbers") > ROWS


@pytest.mark.exhaustive
@pytest.mark.timeout(7200)
def test_no_row_is_lost_or_doubled_at_random_moments(tmp_path: Path) -> None:
    """Killed thirty times, one after the other."""
    random = Random(28)
    for _ in range(30):
        at_random(tmp_path / "numbers", random)
        check(tmp_path / "numbers")
    assert check(tmp_path / "numbers") > 30 * ROWS
