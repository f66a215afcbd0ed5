"""Large captures: executors write the files, the driver commits them, and nobody can tell the difference."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from conftest import Source, counts, letters, run
from oracle import compare
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from test_capture import hours

import streamstate as ss
from streamstate.snapshots.executors.scale import ROWS_IN_DRIVER

MANIFEST = ["epoch", "status", "committed_at", "offsets", "watermark", "rows", "changes", "keyframes"]


@pytest.fixture
def large(spark: SparkSession) -> Iterator[None]:
    """Every pass is large, however few rows it has."""
    spark.conf.set(ROWS_IN_DRIVER, "0")
    yield
    spark.conf.unset(ROWS_IN_DRIVER)


def both_ways(spark: SparkSession, checkpoint: Path, folder: Path) -> tuple[ss.History, ss.History]:
    """The checkpoint captured by the driver and by the executors, both compared with Spark's reader."""
    histories = []
    for name, rows in (("driver", "1000000000"), ("executors", "0")):
        spark.conf.set(ROWS_IN_DRIVER, rows)
        ss.capture(checkpoint, folder / name, "q", spark=spark)
        histories.append(ss.open_store(folder / name)["q"])
        assert compare(spark, checkpoint, histories[-1]) > 0
    spark.conf.unset(ROWS_IN_DRIVER)
    small, large = histories
    pd.testing.assert_frame_equal(small.epochs()[MANIFEST], large.epochs()[MANIFEST])
    return small, large


def data_files(table: Path) -> list[Path]:
    """The data files that stand in a table's folder, committed or not."""
    return sorted(file for file in table.iterdir() if file.is_file())


def test_both_ways_give_the_same_history(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    """Keyed state: the same rows at every epoch, the same counts in the manifest; and executors did write it."""
    for epoch in range(4):
        source.add(letters(epoch))
    run(counts(source), tmp_path / "c")
    both_ways(spark, tmp_path / "c", tmp_path)
    assert len(data_files(tmp_path / "driver/q/op0")) == 1
    assert len(data_files(tmp_path / "executors/q/op0")) == 2


def test_deletes_are_deletes_both_ways(spark: SparkSession, tmp_path: Path) -> None:
    """Windows leave the state: their keys are deleted and no longer counted."""
    timed = Source(spark, tmp_path / "timed", "k string, v long, t timestamp")
    for epoch in range(5):
        timed.add(hours(epoch))
    windows = timed.stream().withWatermark("t", "1 hour").groupBy(F.window("t", "1 hour"), "k").agg(F.sum("v"))
    run(windows, tmp_path / "c")
    _small, large = both_ways(spark, tmp_path / "c", tmp_path)
    assert large.diff(1, large.live().epoch).counts["removed"] > 0


def test_passes_of_both_kinds_alternate(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    """Each takes up where the other left the log."""
    for epoch in range(6):
        source.add(letters(epoch))
        run(counts(source), tmp_path / "c")
        spark.conf.set(ROWS_IN_DRIVER, "0" if epoch % 3 else "1000000")
        assert ss.capture(tmp_path / "c", tmp_path / "s", "q", spark=spark).epochs == (epoch,)
    spark.conf.unset(ROWS_IN_DRIVER)
    assert compare(spark, tmp_path / "c", ss.open_store(tmp_path / "s")["q"]) == 6


def test_one_transaction_a_pass(spark: SparkSession, source: Source, tmp_path: Path, large: None) -> None:
    """All files of a table's pass, one a state partition, are one commit."""
    for epoch in range(3):
        source.add(letters(epoch))
    run(counts(source), tmp_path / "c")
    ss.capture(tmp_path / "c", tmp_path / "s", "q", spark=spark)
    commits = [one.name for one in (tmp_path / "s/q/op0/_delta_log").glob("*.json")]
    assert len(commits) == 2  # the table's creation, and the pass
