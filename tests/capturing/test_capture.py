"""Captured state tables equal those of Spark's own state reader at every epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from conftest import Source, counts, letters, run
from oracle import compare
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import streamstate as ss
from streamstate.errors import InvalidNameError, NameTakenError, NoStateError, NotACheckpointError
from streamstate.reports import Store


def hours(epoch: int, rows: int = 12) -> dict[str, list[Any]]:
    """The input of one epoch, with event times two hours after those of the previous one."""
    start = pd.Timestamp("2013-01-01", tz="UTC") + pd.Timedelta(hours=2 * epoch)
    times = [start + pd.Timedelta(minutes=10 * row) for row in range(rows)]
    return {"k": [f"k{row % 3}" for row in range(rows)], "v": list(range(rows)), "t": times}


@pytest.fixture
def timed(spark: SparkSession, tmp_path: Path) -> Source:
    """A source with event times and five epochs of input."""
    source = Source(spark, tmp_path / "timed", "k string, v long, t timestamp")
    for epoch in range(5):
        source.add(hours(epoch))
    return source


def test_every_epoch_equals_sparks_reader(spark: SparkSession, counted: tuple[Path, Path], store: Store) -> None:
    """A keyed aggregate with two value fields of the same name is captured."""
    assert store["counts"].captured() == [0, 1, 2, 3, 4]
    assert compare(spark, counted[0], store["counts"]) == 5


@pytest.mark.slow
def test_evicted_windows_are_deletes(spark: SparkSession, timed: Source, tmp_path: Path) -> None:
    """The rows of windows that expire by the watermark are removed."""
    windows = timed.stream().withWatermark("t", "1 hour").groupBy(F.window("t", "1 hour"), "k").agg(F.sum("v"))
    run(windows, tmp_path / "c")
    ss.Checkpoint(tmp_path / "c").capture(tmp_path / "s", "windows", spark=spark)
    history = ss.open_store(tmp_path / "s")["windows"]
    assert compare(spark, tmp_path / "c", history) == len(history.captured())
    assert history.diff(1, history.live().epoch).counts["removed"] > 0


@pytest.mark.exhaustive
@pytest.mark.slow
def test_both_sides_of_a_join_are_tables(spark: SparkSession, timed: Source, tmp_path: Path) -> None:
    """A stream-stream join has the tables op0_left and op0_right."""
    left = timed.stream().withWatermark("t", "1 hour").alias("a")
    right = timed.stream().withColumnRenamed("v", "w").withWatermark("t", "1 hour").alias("b")
    near = F.expr("a.k = b.k AND a.t >= b.t AND a.t <= b.t + INTERVAL 1 HOUR")
    run(left.join(right, near, "leftOuter"), tmp_path / "c", "append")
    ss.Checkpoint(tmp_path / "c").capture(tmp_path / "s", "joined", spark=spark)
    history = ss.open_store(tmp_path / "s")["joined"]
    assert history.tables() == ["op0_left", "op0_right"]
    assert compare(spark, tmp_path / "c", history) == 2 * len(history.captured())


def test_capturing_again_changes_nothing(counted: tuple[Path, Path], store: Store) -> None:
    """A repeated capture writes no rows and no epochs."""
    before = store["counts"].epochs()
    report = ss.Checkpoint(counted[0]).capture(counted[1], "counts")
    assert (report.epochs, report.rows) == ((), 0)
    pd.testing.assert_frame_equal(store["counts"].epochs(), before)


@pytest.mark.slow
def test_incremental_captures_equal_a_single_capture(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    """A capture after each run gives the same epochs as one capture at the end."""
    for epoch in range(3):
        source.add(letters(epoch))
        run(counts(source), tmp_path / "c")
        assert ss.Checkpoint(tmp_path / "c").capture(tmp_path / "steps", "q", spark=spark).epochs == (epoch,)
    ss.Checkpoint(tmp_path / "c").capture(tmp_path / "once", "q", spark=spark)
    steps, once = (ss.open_store(tmp_path / name)["q"] for name in ("steps", "once"))
    columns = ["epoch", "status", "committed_at", "offsets", "watermark", "rows", "changes", "keyframes"]
    pd.testing.assert_frame_equal(steps.epochs()[columns], once.epochs()[columns])
    assert compare(spark, tmp_path / "c", steps) == 3


def test_purged_first_epochs_are_gaps(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    """If Spark has purged the first epochs, the manifest records gaps. All remaining epochs are captured."""
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", "2")
    spark.conf.set("spark.sql.streaming.stateStore.maintenanceInterval", "100ms")
    try:
        for epoch in range(6):
            source.add(letters(epoch))
        run(counts(source), tmp_path / "c")
    finally:
        spark.conf.set("spark.sql.streaming.minBatchesToRetain", "100")
        spark.conf.unset("spark.sql.streaming.stateStore.maintenanceInterval")
    report = ss.Checkpoint(tmp_path / "c").capture(tmp_path / "s", "q", spark=spark)
    history = ss.open_store(tmp_path / "s")["q"]
    assert report.gaps == tuple(range(report.epochs[0]))
    assert report.gaps
    assert list(history.epochs()["status"]) == ["gap"] * len(report.gaps) + ["captured"] * len(report.epochs)
    assert compare(spark, tmp_path / "c", history) == len(report.epochs)
    with pytest.raises(LookupError, match=f"nearest captured: {report.epochs[0]} "):
        history.at(0)


@pytest.mark.parametrize("name", ["a/b", "..", 'say "x"', "it's", "two\nlines", "", "-x", "x" * 101])
def test_an_invalid_name_is_rejected(counted: tuple[Path, Path], tmp_path: Path, name: str) -> None:
    """Names must be valid as a folder and as an SQL identifier. No store is created."""
    with pytest.raises(InvalidNameError, match="letters, digits"):
        ss.Checkpoint(counted[0]).capture(tmp_path / "s", name)
    assert not (tmp_path / "s").exists()


def test_the_name_of_another_query_is_rejected(
    spark: SparkSession, counted: tuple[Path, Path], source: Source, tmp_path: Path
) -> None:
    """Names are unique, ignoring case."""
    source.add(letters(0))
    run(counts(source), tmp_path / "c")
    for name in ("counts", "Counts"):
        with pytest.raises(NameTakenError, match="another name"):
            ss.Checkpoint(tmp_path / "c").capture(counted[1], name, spark=spark)
    assert ss.open_store(counted[1]).queries() == ["counts"]


def test_a_path_that_is_not_a_checkpoint_is_rejected(tmp_path: Path) -> None:
    """Missing folders and folders without a checkpoint raise an error, and no store is created."""
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(NotACheckpointError, match="checkpointLocation"):
            ss.Checkpoint(path).capture(tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_a_query_without_state_is_rejected(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    """The error lists the operators that have state."""
    source.add(letters(0))
    run(source.stream(), tmp_path / "c", "append")
    with pytest.raises(NoStateError, match="aggregations"):
        ss.Checkpoint(tmp_path / "c").capture(tmp_path / "s", spark=spark)
    assert not (tmp_path / "s").exists()
