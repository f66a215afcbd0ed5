"""``Checkpoint.follow`` captures a query in the background."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Source, counts, letters, run
from oracle import compare
from pyspark.sql import SparkSession
from recorded.unpacked import unpacked

import streamstate as ss
from streamstate.errors import CaptureError, InvalidArgumentError, StoreError
from streamstate.reports import CaptureReport
from streamstate.snapshots.capture.follow import CaptureLag


def until(condition: Callable[[], bool], timeout: float = 300) -> None:
    """Wait for a condition; fail if it is not met in time."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "the condition was not met in time"
        threading.Event().wait(0.02)


def test_following_a_running_query(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    """Epochs are captured while the query runs, with its run id."""
    source.add(letters(0))
    writer = counts(source).writeStream.format("noop").outputMode("update").queryName("letters")
    query = writer.option("checkpointLocation", str(tmp_path / "c")).start()
    try:
        capture = ss.Checkpoint(query).follow(tmp_path / "s", spark=spark)
        assert capture.name == "letters"
        assert capture.wait(epoch=0, timeout=300) == 0
        for epoch in (1, 2):
            source.add(letters(epoch))
            assert capture.wait(epoch=epoch, timeout=300) == epoch
        status = capture.status
        assert (status.state, status.epoch, status.behind, status.error) == ("running", 2, 0, None)
        assert status.freshness is not None
    finally:
        query.stop()
    capture.stop()
    capture.stop()
    assert capture.status.state == "stopped"
    history = ss.open_store(tmp_path / "s")["letters"]
    assert compare(spark, tmp_path / "c", history) == 3
    assert set(history.epochs()["run_id"].dropna()) <= {str(query.runId)}


def test_a_capture_every_three_epochs_skips_no_epoch(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    """Fewer than three epochs wait for the next pass; ``stop`` captures the remaining epochs."""
    for epoch in range(4):
        source.add(letters(epoch))
    run(counts(source), tmp_path / "c")
    capture = ss.Checkpoint(tmp_path / "c").follow(tmp_path / "s", "q", every=3, spark=spark)
    assert capture.wait(timeout=300) == 3
    source.add(letters(4))
    run(counts(source), tmp_path / "c")
    until(lambda: capture.status.behind == 1)
    assert capture.status.epoch == 3
    capture.stop()
    assert ss.open_store(tmp_path / "s")["q"].captured() == [0, 1, 2, 3, 4]


def test_following_a_query_without_committed_epochs(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    """The capture waits for the first epoch."""
    query = (
        counts(source).writeStream.format("noop").outputMode("update").option("checkpointLocation", str(tmp_path / "c"))
    ).start()
    try:
        capture = ss.Checkpoint(tmp_path / "c").follow(tmp_path / "s", "q", spark=spark)
        assert capture.status.state == "waiting"
        assert capture.wait(timeout=5) == -1
        source.add(letters(0))
        assert capture.wait(epoch=0, timeout=300) == 0
        capture.stop()
    finally:
        query.stop()


def test_a_wait_that_cannot_succeed_raises(counted: tuple[Path, Path], tmp_path: Path) -> None:
    """The error of a timeout names the newest captured epoch. Waiting for a stopped capture fails immediately."""
    capture = ss.Checkpoint(counted[0]).follow(tmp_path / "s", "q")
    capture.wait(timeout=300)
    with pytest.raises(TimeoutError, match="newest captured epoch is 4"):
        capture.wait(epoch=99, timeout=0.1)
    capture.stop()
    with pytest.raises(CaptureError, match="stopped at epoch 4, before epoch 99"):
        capture.wait(epoch=99)


def test_a_broken_store_is_an_error_in_the_status(
    spark: SparkSession, counted: tuple[Path, Path], tmp_path: Path
) -> None:
    """The capture is retried, and continues when the store is repaired."""
    blocked = tmp_path / "s" / "q" / "_epochs"
    blocked.parent.mkdir(parents=True)
    blocked.write_text("a file in place of the manifest")
    outcomes: list[CaptureReport | Exception] = []
    capture = ss.Checkpoint(counted[0]).follow(tmp_path / "s", "q", spark=spark, on_pass=outcomes.append)
    until(lambda: capture.status.error is not None and bool(outcomes))
    assert isinstance(outcomes[0], StoreError)
    with pytest.raises(StoreError, match="_epochs cannot be read"):
        ss.open_store(tmp_path / "s")["q"].captured()
    blocked.unlink()
    assert capture.wait(timeout=300) == 4
    assert capture.status.error is None
    capture.stop()
    # The tables were written before the manifest failed; writing them again must not duplicate rows.
    assert compare(spark, counted[0], ss.open_store(tmp_path / "s")["q"]) == 5


def test_concurrent_captures_make_one_history(spark: SparkSession, counted: tuple[Path, Path], tmp_path: Path) -> None:
    """Concurrent captures of a query store each epoch once."""
    failures: list[BaseException] = []

    def capture() -> None:
        try:
            ss.Checkpoint(counted[0]).capture(tmp_path / "s", "q", spark=spark)
        except BaseException as error:  # noqa: BLE001 (shown by the assertion below)
            failures.append(error)

    threads = [threading.Thread(target=capture) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    history = ss.open_store(tmp_path / "s")["q"]
    assert list(history.epochs()["epoch"]) == [0, 1, 2, 3, 4]
    assert compare(spark, counted[0], history) == 5


def test_passes_are_reported(counted: tuple[Path, Path], tmp_path: Path) -> None:
    """``on_pass`` receives the report of each pass that captured epochs, and the exception of one that failed."""
    outcomes: list[CaptureReport | Exception] = []
    capture = ss.Checkpoint(counted[0]).follow(tmp_path / "t", "q", on_pass=outcomes.append)
    assert capture.wait(epoch=4, timeout=300) == 4
    capture.stop()
    assert [report.epochs for report in outcomes if isinstance(report, CaptureReport)] == [(0,), (1, 2, 3, 4)]
    assert capture.lag() == CaptureLag(0, 0.0)
    assert capture.status.committed_at == ss.open_store(tmp_path / "t")["q"].live().committed_at


def test_stopping_at_once_leaves_waiting_epochs_to_the_next_capture(counted: tuple[Path, Path], tmp_path: Path) -> None:
    """The lag counts them, and their time, until then."""
    capture = ss.Checkpoint(counted[0]).follow(tmp_path / "s", "q", every=100)
    until(lambda: capture.status.behind == 5)
    lag = capture.lag()
    assert lag.epochs == 5
    assert lag.seconds > 0
    capture.stop(catch_up=False)
    assert (capture.status.state, capture.status.epoch) == ("stopped", None)
    assert ss.open_store(tmp_path / "s")["q"].captured() == []


@pytest.mark.parametrize("every", [0, -1, 1.5])
def test_an_invalid_interval_is_rejected(counted: tuple[Path, Path], tmp_path: Path, every: int) -> None:
    """``every`` must be an integer of at least 1, or a duration."""
    with pytest.raises(InvalidArgumentError, match=r"expected (an integer|a number of epochs)"):
        ss.Checkpoint(counted[0]).follow(tmp_path / "s", "q", every=every)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_process_may_end_while_it_captures(tmp_path: Path) -> None:
    """The capture ends with it, without a crash, whatever it is doing."""
    program = """
import sys, time
import streamstate as ss
ss.Checkpoint(sys.argv[1]).follow(sys.argv[2], "q")
time.sleep(float(sys.argv[3]))
"""
    checkpoint = unpacked("4.2", tmp_path) / "RocksDB-with-changelog" / "aggregation"
    for number in range(8):
        arguments = [str(checkpoint), str(tmp_path / str(number)), str(0.05 * number)]
        process = subprocess.run(
            [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False
        )
        assert (process.returncode, process.stderr) == (0, "")
