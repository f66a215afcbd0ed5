"""Captures of a query that never pauses take the epochs that are committed when they start, and then end."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from oracle import compare
from pyspark.sql import SparkSession

import streamstate as ss
from streamstate.launch.running import Running
from streamstate.reports import CaptureReport
from streamstate.snapshots.capture.epoch_commit import Capturer


class Growing:
    """A copy of a checkpoint with five epochs, whose commits are added one by one."""

    def __init__(self, recorded: Path, folder: Path) -> None:
        self.path = Path(shutil.copytree(recorded, folder / "checkpoint"))
        self._later = folder / "later"
        shutil.move(self.path / "commits", self._later)
        (self.path / "commits").mkdir()

    def commit(self, epoch: int) -> None:
        """Commit an epoch, as the query does."""
        if (self._later / str(epoch)).exists():
            shutil.move(self._later / str(epoch), self.path / "commits" / str(epoch))

    def purge(self, epoch: int) -> None:
        """Delete the commit of an epoch, as Spark does."""
        (self.path / "commits" / str(epoch)).unlink(missing_ok=True)


@pytest.fixture
def growing(counted: tuple[Path, Path], tmp_path: Path) -> Growing:
    """A checkpoint with two committed epochs."""
    checkpoint = Growing(counted[0], tmp_path)
    checkpoint.commit(0)
    checkpoint.commit(1)
    return checkpoint


@pytest.fixture
def after_each_pass(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], None]], None]:
    """Calls a function with the number of the pass after each pass of a capture."""

    def install(callback: Callable[[int], None]) -> None:
        original, passes = Capturer.run, iter(range(100))

        def run(capturer: Capturer, **options: Any) -> CaptureReport:
            report = original(capturer, **options)
            callback(next(passes))
            return report

        monkeypatch.setattr(Capturer, "run", run)

    return install


def test_a_capture_ends_at_the_newest_epoch_when_it_started(
    spark: SparkSession, growing: Growing, tmp_path: Path, after_each_pass: Callable[..., None]
) -> None:
    """Epochs that are committed during the capture are left to the next one."""
    after_each_pass(lambda number: growing.commit(2 + number))
    first = ss.Checkpoint(growing.path).capture(tmp_path / "s", "q", spark=spark)
    assert (first.epochs, first.gaps) == ((0, 1), ())
    second = ss.Checkpoint(growing.path).capture(tmp_path / "s", "q", spark=spark)
    assert second.epochs[0] == 2
    assert compare(spark, growing.path, ss.open_store(tmp_path / "s")["q"]) == 2 + len(second.epochs)


def test_epochs_that_are_purged_during_a_capture_are_a_gap(
    spark: SparkSession, growing: Growing, tmp_path: Path, after_each_pass: Callable[..., None]
) -> None:
    """If the last epoch of the capture is purged, the oldest later epoch is captured instead."""

    def purge_and_commit(_: int) -> None:
        growing.purge(1)
        growing.commit(2)
        growing.commit(3)

    after_each_pass(purge_and_commit)
    report = ss.Checkpoint(growing.path).capture(tmp_path / "s", "q", spark=spark)
    assert (report.epochs, report.gaps) == ((0, 2), (1,))
    assert compare(spark, growing.path, ss.open_store(tmp_path / "s")["q"]) == 2


def test_stop_captures_the_epochs_committed_by_then(
    growing: Growing, tmp_path: Path, after_each_pass: Callable[..., None]
) -> None:
    """A background capture ends even if its query keeps committing epochs."""
    after_each_pass(lambda number: growing.commit(2 + number))
    ss.Checkpoint(growing.path).follow(tmp_path / "s", "q", every=100).stop()
    assert ss.open_store(tmp_path / "s")["q"].captured() == [0, 1]


def test_wait_returns_at_the_newest_epoch_when_it_started(
    spark: SparkSession, growing: Growing, tmp_path: Path, after_each_pass: Callable[..., None]
) -> None:
    """``%stream attach --wait`` ends even if the query is always one epoch ahead of the capture."""
    growing.purge(1)
    waiting, polled_again, ended = Event(), Event(), Event()

    def one_ahead(number: int) -> None:
        growing.commit(2 + number)
        (polled_again if number == 0 else ended).wait(60)

    def on_status(_: Any) -> None:
        (polled_again if waiting.is_set() else waiting).set()

    after_each_pass(one_ahead)
    capture = ss.Checkpoint(growing.path).follow(tmp_path / "s", "q", spark=spark)
    handle = Running("q", str(tmp_path / "s"), str(growing.path), capture, every=1)
    try:
        assert handle.wait(timeout=20, on_status=on_status) == 0
    finally:
        ended.set()
        capture.stop()
