"""Following a query in the background."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Source, counts, letters, run
from oracle import compare
from pyspark.sql import SparkSession

import streamstate as ss
from streamstate.snapshots.errors import CaptureError, InvalidArgumentError, StoreError


def until(condition: Callable[[], bool], timeout: float = 60) -> None:
    """Wait for a condition, and fail where it does not come."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come"
        threading.Event().wait(0.02)


def test_following_a_running_query(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    """Each epoch becomes a snapshot while the query runs, with its run and its input rows."""
    source.add(letters(0))
    writer = counts(source).writeStream.format("noop").outputMode("update").queryName("letters")
    query = writer.option("checkpointLocation", str(tmp_path / "c")).start()
    try:
        with_name = ss.follow(query, tmp_path / "s", spark=spark)
        assert with_name.name == "letters"
        assert with_name.wait(epoch=0, timeout=60) == 0
        for epoch in (1, 2):
            source.add(letters(epoch))
            assert with_name.wait(epoch=epoch, timeout=60) == epoch
        status = with_name.status
        assert (status.state, status.epoch, status.behind, status.error) == ("running", 2, 0, None)
        assert status.freshness is not None
    finally:
        query.stop()
    with_name.stop()
    with_name.stop()
    assert with_name.status.state == "stopped"
    history = ss.open_store(tmp_path / "s")["letters"]
    assert compare(spark, tmp_path / "c", history) == 3
    assert set(history.epochs()["run_id"].dropna()) <= {str(query.runId)}


def test_every_so_many_epochs_keeps_each_of_them(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    """``every=3`` waits for three epochs, captures all of them, and stopping captures the rest."""
    for epoch in range(4):
        source.add(letters(epoch))
    run(counts(source), tmp_path / "c")
    capture = ss.follow(tmp_path / "c", tmp_path / "s", "q", every=3, spark=spark)
    assert capture.wait(timeout=60) == 3
    source.add(letters(4))
    run(counts(source), tmp_path / "c")
    until(lambda: capture.status.behind == 1)
    assert capture.status.epoch == 3
    capture.stop()
    assert ss.open_store(tmp_path / "s")["q"].captured() == [0, 1, 2, 3, 4]


def test_an_empty_checkpoint_is_waited_for(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    """A query that has started and committed nothing is followed from its first epoch."""
    query = (
        counts(source).writeStream.format("noop").outputMode("update").option("checkpointLocation", str(tmp_path / "c"))
    ).start()
    try:
        capture = ss.follow(tmp_path / "c", tmp_path / "s", "q", spark=spark)
        assert capture.status.state == "waiting"
        assert capture.wait(timeout=5) == -1
        source.add(letters(0))
        assert capture.wait(epoch=0, timeout=60) == 0
        capture.stop()
    finally:
        query.stop()


def test_a_wait_that_cannot_end_says_so(spark: SparkSession, counted: tuple[Path, Path], tmp_path: Path) -> None:
    """A timeout names the newest captured epoch; a stopped capture does not keep its waiters."""
    capture = ss.follow(counted[0], tmp_path / "s", "q", spark=spark)
    capture.wait(timeout=60)
    with pytest.raises(TimeoutError, match="newest captured is 4"):
        capture.wait(epoch=99, timeout=0.1)
    capture.stop()
    with pytest.raises(CaptureError, match="stopped at epoch 4, before epoch 99"):
        capture.wait(epoch=99)


def test_a_broken_store_shows_and_heals(spark: SparkSession, counted: tuple[Path, Path], tmp_path: Path) -> None:
    """An error delays snapshots and shows in the status; when its cause is gone capture goes on."""
    blocked = tmp_path / "s" / "q" / "_epochs"
    blocked.parent.mkdir(parents=True)
    blocked.write_text("a file where the manifest has to be")
    capture = ss.follow(counted[0], tmp_path / "s", "q", spark=spark)
    until(lambda: capture.status.error is not None)
    with pytest.raises(StoreError, match="_epochs cannot be read"):
        ss.open_store(tmp_path / "s")["q"].captured()
    blocked.unlink()
    assert capture.wait(timeout=90) == 4
    assert capture.status.error is None
    capture.stop()
    # The tables were written before the manifest failed; writing them again must not have doubled a row.
    assert compare(spark, counted[0], ss.open_store(tmp_path / "s")["q"]) == 5


def test_two_captures_at_once_make_one_history(spark: SparkSession, counted: tuple[Path, Path], tmp_path: Path) -> None:
    """Racing captures of one query leave each epoch there once."""
    failures: list[BaseException] = []

    def one() -> None:
        try:
            ss.capture(counted[0], tmp_path / "s", "q", spark=spark)
        except BaseException as error:  # noqa: BLE001 (shown by the assertion below)
            failures.append(error)

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    history = ss.open_store(tmp_path / "s")["q"]
    assert list(history.epochs()["epoch"]) == [0, 1, 2, 3, 4]
    assert compare(spark, counted[0], history) == 5


@pytest.mark.parametrize("every", [0, -1, 1.5])
def test_every_is_a_whole_number(counted: tuple[Path, Path], tmp_path: Path, every: int) -> None:
    """Nothing starts with a period that cannot be meant."""
    with pytest.raises(InvalidArgumentError, match="whole number"):
        ss.follow(counted[0], tmp_path / "s", "q", every=every)
