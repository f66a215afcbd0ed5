"""Attaching: only the checkpoint is needed, whatever happened to it before and wherever it lies."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from oracle import compare
from pyspark.sql import SparkSession

import streamstate as ss
from operators.queries import JOINS, OTHERS, WINDOWS
from operators.running import Run, checked
from streamstate.snapshots.errors import CheckpointReplacedError, NameTakenError

KEEP_TWO = {"spark.sql.streaming.minBatchesToRetain": "2"}


def test_early_epochs_that_are_gone_are_a_gap(spark: SparkSession, tmp_path: Path) -> None:
    """Each of the tables starts with a keyframe at the first epoch that is left, and goes on by changes."""
    run = Run(spark, tmp_path)
    query = JOINS["self"]
    run.start(query, KEEP_TWO, epochs=range(4))
    report = run.capture()
    assert report.gaps == tuple(range(report.epochs[0]))
    assert report.gaps
    run.start(query, KEEP_TWO, epochs=range(4, 5))
    assert run.capture().gaps == ()
    history = run.history
    first = history.epochs().set_index("epoch").loc[report.epochs[0]]
    assert first["keyframes"] == dict.fromkeys(query.tables, report.epochs[0])
    # Spark itself has purged some of the captured epochs by now: what is left is compared.
    left = {int(path.name) for path in (run.checkpoint / "commits").iterdir() if path.name.isdigit()}
    assert left & set(history.captured())
    assert history.live().table("op0_left").count() > 0


def test_an_empty_checkpoint_is_waited_for(spark: SparkSession, tmp_path: Path) -> None:
    """Following begins before the query does."""
    run = Run(spark, tmp_path)
    capture = ss.follow(run.checkpoint, run.store, "q", spark=spark)
    try:
        assert capture.status.state == "waiting"
        run.start(OTHERS["dropDuplicates"], epochs=range(2))
        assert capture.wait(1, timeout=120) >= 1
    finally:
        capture.stop()
    assert run.check() == len(run.history.captured()) == 2


def test_a_replaced_checkpoint_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Another query under the same name and path, whether it is captured anew or was being followed."""
    run = Run(spark, tmp_path)
    run.start(OTHERS["dropDuplicates"], epochs=range(1))
    capture = ss.follow(run.checkpoint, run.store, "q", spark=spark)
    try:
        capture.wait(0, timeout=120)
        shutil.rmtree(run.checkpoint)
        run.start(OTHERS["dropDuplicates"], epochs=range(1, 2))
        with pytest.raises(Exception, match="another query's"):
            capture.wait(5, timeout=60)
        assert capture.status.state == "failed"
    finally:
        capture.stop()
    with pytest.raises(NameTakenError, match="deleted or replaced"):
        run.capture()
    assert run.history.captured() == [0]


def test_a_checkpoint_that_is_replaced_between_passes_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """No epoch of the other query becomes visible."""
    from streamstate.snapshots.capture import capturer_for

    run = Run(spark, tmp_path)
    run.start(OTHERS["dropDuplicates"], epochs=range(1))
    capturer = capturer_for(run.checkpoint, run.store, "q", spark)
    assert capturer.run().epochs == (0,)
    shutil.rmtree(run.checkpoint)
    run.start(OTHERS["dropDuplicates"], epochs=range(1, 3))
    with pytest.raises(CheckpointReplacedError, match="another name"):
        capturer.run()
    assert run.history.captured() == [0]


def test_any_file_system_that_spark_reads(spark: SparkSession, tmp_path: Path) -> None:
    """Through Hadoop's client (a mount table stands for a remote file system) and as a file: URI."""
    run = checked(spark, WINDOWS["tumbling window"], tmp_path, starts=(range(2),))
    mounts = spark.sparkContext._jsc.hadoopConfiguration()
    mounts.set(f"fs.viewfs.mounttable.{tmp_path.name.replace('_', '-')}.link./data", tmp_path.as_uri())
    remote = f"viewfs://{tmp_path.name.replace('_', '-')}/data/checkpoint"
    for number, uri in enumerate((remote, run.checkpoint.as_uri())):
        store = tmp_path / f"store{number}"
        report = ss.capture(uri, store, "q", spark=spark)
        history = ss.open_store(store)["q"]
        assert list(report.epochs) == history.captured() == run.history.captured()
        assert compare(spark, run.checkpoint, history) == len(report.epochs)
        columns = ["epoch", "status", "offsets", "watermark", "rows", "changes"]
        assert history.epochs()[columns].equals(run.history.epochs()[columns])
        assert history.epochs()["committed_at"].notna().all()
