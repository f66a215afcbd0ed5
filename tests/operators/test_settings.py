"""Settings of the state store: providers, changelog checkpointing, checkpoint formats, partitions and restarts."""

from __future__ import annotations

from pathlib import Path

import pytest
from oracle import compare
from pyspark.sql import SparkSession
from sampling import sampled

import streamstate as ss
from operators.queries import WINDOWS, aggregated
from operators.running import CHANGELOG_OFF, FORMAT_1, HDFS, Run, checked
from streamstate.snapshots.spark.state_reader import StateReader

pytestmark = pytest.mark.slow

SETTINGS = {
    "RocksDB, changelog, format 1": FORMAT_1,
    "RocksDB, changelog off, format 2": CHANGELOG_OFF,
    "RocksDB, changelog off, format 1": CHANGELOG_OFF | FORMAT_1,
    "HDFS": HDFS,
}
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled=true"


@pytest.mark.parametrize("name", sampled(SETTINGS, 1))
def test_providers_and_formats(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Each equals Spark's reader. The report advises changelog checkpointing if it is off."""
    run = checked(spark, WINDOWS["sliding window"], tmp_path, SETTINGS[name])
    advice = {line for report in run.reports for line in report.advice}
    assert all(CHANGELOG in line for line in advice)
    assert {line.split(":")[0] for line in advice} == ({"op0"} if "off" in name else set())


@pytest.mark.exhaustive
def test_only_changes_are_logged_without_a_change_feed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """States are compared instead, so that the log has the same changes as with a change feed, or fewer."""
    run = checked(spark, WINDOWS["tumbling window"], tmp_path)
    with_feed = run.history
    monkeypatch.setattr(StateReader, "has_feed", lambda *_: False)
    ss.Checkpoint(run.checkpoint).capture(tmp_path / "without", "q", spark=spark)
    without = ss.open_store(tmp_path / "without")["q"]
    assert with_feed.captured() == without.captured()
    assert compare(spark, run.checkpoint, without) == len(with_feed.captured())
    expected = [changes["op0"] for changes in with_feed.epochs()["changes"]]
    actual = [changes["op0"] for changes in without.epochs()["changes"]]
    assert all(fewer <= changes for fewer, changes in zip(actual, expected, strict=True))
    assert sum(actual) < with_feed.growth()["rows"].sum()


@pytest.mark.parametrize("before", [True, pytest.param(False, marks=pytest.mark.exhaustive)])
def test_repartitioned_operators(spark: SparkSession, tmp_path: Path, before: bool) -> None:
    """The epoch of the repartition has no changes, whether or not earlier epochs were captured before it."""
    run = Run(spark, tmp_path)
    query = WINDOWS["sliding window"]
    run.start(query, epochs=range(2))
    if before:
        run.reports.append(run.capture())
    spark._streamingCheckpointManager.repartition(str(run.checkpoint), 3, False)
    run.start(query, epochs=range(2, 4))
    run.reports.append(run.capture())
    history = run.history
    assert run.check() == len(history.captured()) > 4
    changes = dict(zip(history.captured(), history.epochs()["changes"], strict=True))
    unchanged = [epoch for epoch in history.captured() if changes[epoch]["op0"] == 0]
    assert len(unchanged) == 1
    assert history.diff(unchanged[0] - 1, unchanged[0]).counts == {"added": 0, "removed": 0, "changed": 0}
    assert not any(report.advice for report in run.reports)


@pytest.mark.exhaustive
def test_many_restarts(spark: SparkSession, tmp_path: Path) -> None:
    """A query that restarts after every epoch equals Spark's reader."""
    checked(spark, WINDOWS["tumbling window"], tmp_path, starts=[range(epoch, epoch + 1) for epoch in range(4)])


def test_zeros_are_equal_without_a_change_feed(spark: SparkSession, tmp_path: Path) -> None:
    """If states are compared, a change from zero to negative zero is not a change, as in Spark."""
    signs = aggregated("last(if(v >= 11, double('-0.0'), double('0.0')))")
    run = Run(spark, tmp_path)
    run.start(signs, CHANGELOG_OFF, epochs=range(2))
    run.capture()
    history = run.history
    assert [rows["op0"] for rows in history.epochs()["changes"]][1] < history.live().table().count()
