"""The interval of a background capture, its end, and its use of Spark's scheduler pools."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from conftest import Source, counts, letters, run
from oracle import compare
from pyspark.sql import SparkSession

import streamstate as ss
from streamstate.errors import InvalidArgumentError, StoreError
from streamstate.snapshots.capture.epoch_commit import Capturer
from streamstate.snapshots.capture.follow import Capture
from streamstate.snapshots.capture.pass_plan import CaptureInterval, Every
from streamstate.snapshots.capture.shared_threads import SharedThreads
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.store.layout import Layout


def until(condition: Callable[[], bool], timeout: float = 300) -> None:
    """Wait for a condition; fail if it is not met in time."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "the condition was not met in time"
        threading.Event().wait(0.02)


@pytest.mark.parametrize(
    ("every", "interval"),
    [
        (1, CaptureInterval()),
        (5, CaptureInterval(epochs=5)),
        ("10s", CaptureInterval(seconds=10)),
        ("500ms", CaptureInterval(seconds=0.5)),
        ("2m", CaptureInterval(seconds=120)),
        (timedelta(minutes=1), CaptureInterval(seconds=60)),
    ],
)
def test_an_interval_is_a_number_of_epochs_or_a_duration(every: Every, interval: CaptureInterval) -> None:
    """A duration is a string with a unit or a timedelta."""
    assert CaptureInterval.of(every) == interval


@pytest.mark.parametrize("every", [0, -1, 1.5, True, "10", "soon", "0s", timedelta(0), None])
def test_an_invalid_interval_is_rejected(every: object) -> None:
    """The error describes the valid values."""
    with pytest.raises(InvalidArgumentError, match=r"expected (an integer|a number of epochs|a duration)"):
        CaptureInterval.of(every)  # type: ignore[arg-type]


def test_a_capture_is_due_after_a_number_of_epochs_or_a_duration() -> None:
    """It is never due if no epoch is waiting."""
    assert [CaptureInterval(epochs=3).due(waiting, 0) for waiting in (0, 2, 3, 9)] == [False, False, True, True]
    assert [CaptureInterval(seconds=10).due(1, elapsed) for elapsed in (0, 9.9, 10)] == [False, False, True]
    assert not CaptureInterval(seconds=10).due(0, 99)


def test_a_query_that_is_stopped_to_be_started_again_has_not_ended(tmp_path: Path) -> None:
    """The capture pauses while it asks if the query has ended, and does not take the stop for the end."""

    def ended() -> bool:
        capture.pause()  # the query stops right after
        return True

    capturer: Any = SimpleNamespace(name="q", checkpoint=CheckpointFiles(tmp_path))
    capture = Capture(capturer, CaptureInterval(), ended, threads=MagicMock(spec=SharedThreads, __len__=lambda _: 1))
    assert not capture._query_ended()


def test_a_capture_that_begins_paused(tmp_path: Path) -> None:
    """It looks at nothing before it is resumed."""
    capturer: Any = MagicMock(checkpoint=CheckpointFiles(tmp_path))
    threads = MagicMock(spec=SharedThreads, __len__=lambda _: 1)
    capture = Capture(capturer, CaptureInterval(), paused=True, threads=threads)
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "0").touch()
    capture.turn()
    assert not capturer.behind.called
    capture.resume(None)
    capture.turn()
    assert capturer.behind.called


@pytest.mark.slow
def test_capturing_at_an_interval_of_time(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    """The first pass starts immediately, the next one when it is due. ``stop`` captures the remaining epochs."""
    for epoch in range(4):
        source.add(letters(epoch))
    run(counts(source), tmp_path / "c")
    capture = ss.Checkpoint(tmp_path / "c").follow(tmp_path / "s", "q", every="1h", spark=spark)
    assert capture.wait(timeout=300) == 3
    source.add(letters(4))
    run(counts(source), tmp_path / "c")
    until(lambda: capture.status.behind == 1)
    assert capture.status.epoch == 3
    capture.stop()
    assert compare(spark, tmp_path / "c", ss.open_store(tmp_path / "s")["q"]) == 5


@pytest.mark.slow
def test_a_capture_ends_with_its_query(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    """All committed epochs are captured before, even if there are fewer than ``every``."""
    for epoch in range(4):
        source.add(letters(epoch))
    writer = counts(source).writeStream.format("noop").outputMode("update").queryName("ending")
    query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    capture = ss.Checkpoint(query).follow(tmp_path / "s", every=100, spark=spark)
    assert query.awaitTermination(60)
    until(lambda: capture.status.state == "stopped")
    assert (capture.status.epoch, capture.status.behind, capture.status.error) == (3, 0, None)
    assert ss.open_store(tmp_path / "s")["ending"].captured() == [0, 1, 2, 3]


class Untidy(Capturer):
    """A capturer that fails to tidy the first time."""

    calls = 0

    def tidy(self) -> None:
        """Fail the first time."""
        self.calls += 1
        if self.calls == 1:
            raise StoreError("no room for a keyframe")
        super().tidy()


@pytest.mark.exhaustive
def test_an_error_while_tidying_does_not_stop_the_capture(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    """The status has the error until tidying succeeds; meanwhile, epochs are captured."""
    for epoch in range(2):
        source.add(letters(epoch))
    run(counts(source), tmp_path / "c")
    capturer = Untidy(spark, CheckpointFiles(tmp_path / "c", spark), Layout.at(tmp_path / "s"), "q")
    capture = Capture(capturer, CaptureInterval())
    until(lambda: capture.status.tidy_error is not None)
    status = capture.status
    assert status.tidy_error == "StoreError: no room for a keyframe"
    source.add(letters(2))
    run(counts(source), tmp_path / "c")
    assert capture.wait(epoch=2, timeout=300) == 2
    assert (capture.status.state, capture.status.error) == ("running", None)
    capture.stop()
    assert capturer.calls >= 2
    assert capture.status.tidy_error is None
    assert ss.open_store(tmp_path / "s")["q"].captured() == [0, 1, 2]


def test_jobs_run_in_a_separate_pool(spark: SparkSession, counted: tuple[Path, Path], tmp_path: Path) -> None:
    """With the fair scheduler, jobs of the query and of the capture cannot starve each other."""
    assert spark.conf.get("spark.scheduler.mode") == "FAIR"
    before = pools(spark)
    capture = ss.Checkpoint(counted[0]).follow(tmp_path / "s", "q", spark=spark)
    capture.wait(timeout=300)
    capture.stop()
    assert {pool for stage, pool in pools(spark).items() if stage not in before} == {"streamstate"}


def test_the_users_pool_is_restored(spark: SparkSession, counted: tuple[Path, Path], tmp_path: Path) -> None:
    """A capture in the user's thread resets the thread's scheduler pool."""
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", "mine")
    ss.Checkpoint(counted[0]).capture(tmp_path / "s", "q", spark=spark)
    assert spark.sparkContext.getLocalProperty("spark.scheduler.pool") == "mine"
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]  # unsets it


def pools(spark: SparkSession) -> dict[int, str]:
    """The scheduler pool of each stage that Spark has run, by stage id."""
    context = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()  # stages are reported some time after they ran
    store = context.statusStore()
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    no_quantiles = gateway.new_array(gateway.jvm.double, 0)
    stages = store.stageList(None, False, False, no_quantiles, None)
    infos = (stages.apply(index) for index in range(stages.size()))
    # The status store has a pool for skipped stages, too, although they did not run.
    return {int(info.stageId()): str(info.schedulingPool()) for info in infos if info.status().toString() == "COMPLETE"}
