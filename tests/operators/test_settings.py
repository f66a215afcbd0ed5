"""The settings that change how Spark keeps state: providers, changelog, checkpoint formats, partitions, restarts."""

from __future__ import annotations

from pathlib import Path

import pytest
from oracle import compare
from pyspark.sql import SparkSession
from sampling import sampled

import streamstate as ss
from operators.queries import WINDOWS, aggregated
from operators.running import CHANGELOG_OFF, FORMAT_1, HDFS, Run, checked
from streamstate.snapshots.state_reader import StateReader

pytestmark = pytest.mark.slow

SETTINGS = {
    "RocksDB, changelog, format 1": FORMAT_1,
    "RocksDB, changelog off, format 2": CHANGELOG_OFF,
    "RocksDB, changelog off, format 1": CHANGELOG_OFF | FORMAT_1,
    "HDFS": HDFS,
}
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled=true"


@pytest.mark.parametrize("name", sampled(SETTINGS, 3))
def test_providers_and_formats(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Each gives the same tables; only what makes capture cheaper is said, and only where it is true."""
    run = checked(spark, WINDOWS["sliding window"], tmp_path, SETTINGS[name])
    advised = {line for report in run.reports for line in report.advice}
    assert all(CHANGELOG in line for line in advised)
    assert {line.split(":")[0] for line in advised} == ({"op0"} if "off" in name else set())


def test_only_changes_are_logged_without_a_change_feed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole states are compared, so that the log is the same as with a change feed but for unchanged rows."""
    run = checked(spark, WINDOWS["tumbling window"], tmp_path)
    feed = run.history
    monkeypatch.setattr(StateReader, "has_feed", lambda *_: False)
    ss.capture(run.checkpoint, tmp_path / "whole", "q", spark=spark)
    whole = ss.open_store(tmp_path / "whole")["q"]
    assert feed.captured() == whole.captured()
    assert compare(spark, run.checkpoint, whole) == len(feed.captured())
    changes = [(a["op0"], b["op0"]) for a, b in zip(feed.epochs()["changes"], whole.epochs()["changes"], strict=True)]
    assert all(by_whole <= by_feed for by_feed, by_whole in changes)
    assert sum(by_whole for _, by_whole in changes) < sum(feed.epochs()["rows"].map(lambda rows: rows["op0"]))


@pytest.mark.parametrize("steps", [True, False], ids=["captured between", "captured at once"])
def test_repartitioned_operators(spark: SparkSession, tmp_path: Path, steps: bool) -> None:
    """The batch that repartitions is read whole and alone, those around it by their changes; no row changes."""
    run = Run(spark, tmp_path)
    query = WINDOWS["sliding window"]
    run.start(query, epochs=range(2))
    if steps:
        run.reports.append(run.capture())
    spark._streamingCheckpointManager.repartition(str(run.checkpoint), 3, False)
    run.start(query, epochs=range(2, 4))
    run.reports.append(run.capture())
    history = run.history
    assert run.check() == len(history.captured()) > 4
    changes = dict(zip(history.captured(), history.epochs()["changes"], strict=True))
    quiet = [epoch for epoch in history.captured() if changes[epoch]["op0"] == 0]
    assert len(quiet) == 1
    assert history.diff(quiet[0] - 1, quiet[0]).counts == {"added": 0, "removed": 0, "changed": 0}
    assert not any(report.advice for report in run.reports)


def test_many_restarts(spark: SparkSession, tmp_path: Path) -> None:
    """Each start is another run of the same query."""
    checked(spark, WINDOWS["tumbling window"], tmp_path, starts=[range(epoch, epoch + 1) for epoch in range(4)])


def test_zeros_are_equal_where_whole_states_are_compared(spark: SparkSession, tmp_path: Path) -> None:
    """IEEE 754's two zeros are equal, in Spark as in the comparison: a change of the sign alone is no change."""
    signs = aggregated("last(if(v >= 11, double('-0.0'), double('0.0')))")
    run = Run(spark, tmp_path)
    run.start(signs, CHANGELOG_OFF, epochs=range(2))
    run.capture()
    history = run.history
    assert [rows["op0"] for rows in history.epochs()["changes"]][1] < history.live().table().count()
