"""Keeping up: how often a capture captures, what it does when nothing waits, and when it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from conftest import Source, counts, letters, run
from oracle import compare
from pyspark.sql import SparkSession

import streamstate as ss
from streamstate.snapshots.capture import Capturer
from streamstate.snapshots.checkpoint import Checkpoint
from streamstate.snapshots.errors import InvalidArgumentError, StoreError
from streamstate.snapshots.follow import Capture
from streamstate.snapshots.pace import Every, Pace


def until(condition: Callable[[], bool], timeout: float = 60) -> None:
    """Wait for a condition, and fail where it does not come."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come"
        threading.Event().wait(0.02)


@pytest.mark.parametrize(
    ("every", "pace"),
    [
        (1, Pace()),
        (5, Pace(epochs=5)),
        ("10s", Pace(seconds=10)),
        ("500ms", Pace(seconds=0.5)),
        ("2m", Pace(seconds=120)),
        (timedelta(minutes=1), Pace(seconds=60)),
    ],
)
def test_a_number_counts_epochs_and_a_span_is_time(every: Every, pace: Pace) -> None:
    """As a number, a text with a unit or a timedelta."""
    assert Pace.of(every) == pace


@pytest.mark.parametrize("every", [0, -1, 1.5, True, "10", "soon", "0s", timedelta(0), None])
def test_what_is_neither_is_refused(every: object) -> None:
    """With what would be right."""
    with pytest.raises(InvalidArgumentError, match=r"whole number of epochs|longer than nothing"):
        Pace.of(every)  # type: ignore[arg-type]


def test_what_waits_is_due_by_number_or_by_time() -> None:
    """Either way nothing is due while nothing waits."""
    assert [Pace(epochs=3).due(waiting, 0) for waiting in (0, 2, 3, 9)] == [False, False, True, True]
    assert [Pace(seconds=10).due(1, elapsed) for elapsed in (0, 9.9, 10)] == [False, False, True]
    assert not Pace(seconds=10).due(0, 99)


def test_captured_every_so_many_seconds(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    """The first capture is at once, the next waits for its time; stopping waits for nothing; no epoch is left out."""
    for epoch in range(4):
        source.add(letters(epoch))
    run(counts(source), tmp_path / "c")
    capture = ss.follow(tmp_path / "c", tmp_path / "s", "q", every="1h", spark=spark)
    assert capture.wait(timeout=60) == 3
    source.add(letters(4))
    run(counts(source), tmp_path / "c")
    until(lambda: capture.status.behind == 1)
    assert capture.status.epoch == 3
    capture.stop()
    assert compare(spark, tmp_path / "c", ss.open_store(tmp_path / "s")["q"]) == 5


def test_a_capture_ends_with_its_query(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    """All that it committed is captured first, although less waits than ``every`` asks for."""
    for epoch in range(4):
        source.add(letters(epoch))
    writer = counts(source).writeStream.format("noop").outputMode("update").queryName("ending")
    query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    capture = ss.follow(query, tmp_path / "s", every=100, spark=spark)
    assert query.awaitTermination(60)
    until(lambda: capture.status.state == "stopped")
    assert (capture.status.epoch, capture.status.behind, capture.status.error) == (3, 0, None)
    assert ss.open_store(tmp_path / "s")["ending"].captured() == [0, 1, 2, 3]


class Untidy(Capturer):
    """A capturer whose first tidying fails."""

    tidied = 0

    def tidy(self) -> None:
        """Fail once."""
        self.tidied += 1
        if self.tidied == 1:
            raise StoreError("no room for a keyframe")
        super().tidy()


def test_trouble_with_tidying_is_shown_and_stops_nothing(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    """It stays in the status until tidying has worked; epochs are captured all the same."""
    for epoch in range(2):
        source.add(letters(epoch))
    run(counts(source), tmp_path / "c")
    capturer = Untidy(spark, Checkpoint(tmp_path / "c", spark), str(tmp_path / "s"), "q")
    capture = Capture(capturer, Pace())
    until(lambda: capture.status.tidy_error is not None)
    trouble = capture.status
    assert trouble.tidy_error == "StoreError: no room for a keyframe"
    source.add(letters(2))
    run(counts(source), tmp_path / "c")
    assert capture.wait(epoch=2, timeout=60) == 2
    assert (capture.status.state, capture.status.error) == ("running", None)
    capture.stop()
    assert capturer.tidied >= 2
    assert capture.status.tidy_error is None
    assert ss.open_store(tmp_path / "s")["q"].captured() == [0, 1, 2]


def test_jobs_run_in_a_pool_of_their_own(spark: SparkSession, counted: tuple[Path, Path], tmp_path: Path) -> None:
    """Under the fair scheduler, so that neither the query's jobs nor the capture's starve the other's."""
    assert spark.conf.get("spark.scheduler.mode") == "FAIR"
    before = pools(spark)
    capture = ss.follow(counted[0], tmp_path / "s", "q", spark=spark)
    capture.wait(timeout=60)
    capture.stop()
    assert {pool for stage, pool in pools(spark).items() if stage not in before} == {"streamstate"}


def test_the_users_jobs_stay_where_they_were(spark: SparkSession, counted: tuple[Path, Path], tmp_path: Path) -> None:
    """A capture in the user's own thread leaves no pool behind in it."""
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", "mine")
    ss.capture(counted[0], tmp_path / "s", "q", spark=spark)
    assert spark.sparkContext.getLocalProperty("spark.scheduler.pool") == "mine"
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]  # takes it away


def pools(spark: SparkSession) -> dict[int, str]:
    """The scheduler pool of each stage that Spark has run, by the stage's number."""
    context = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()  # which tells of stages some time after they ran
    store = context.statusStore()
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    no_quantiles = gateway.new_array(gateway.jvm.double, 0)
    stages = store.stageList(None, False, False, no_quantiles, None)
    found = (stages.apply(at) for at in range(stages.size()))
    # A stage that was skipped ran in none, whatever the store says.
    return {int(one.stageId()): str(one.schedulingPool()) for one in found if one.status().toString() == "COMPLETE"}
