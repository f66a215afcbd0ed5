"""Capturing from a checkpoint that is empty, purged, replaced, or on another file system."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from oracle import compare
from pyspark.sql import SparkSession

import streamstate as ss
from operators.queries import JOINS, OTHERS, WINDOWS
from operators.running import Run, checked
from streamstate.errors import CheckpointReplacedError, NameTakenError

KEEP_TWO = {"spark.sql.streaming.minBatchesToRetain": "2"}


@pytest.mark.exhaustive
def test_purged_epochs_are_a_gap(spark: SparkSession, tmp_path: Path) -> None:
    """Each table has a keyframe at the first remaining epoch."""
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
    # Spark has purged some of the captured epochs since.
    remaining = {int(path.name) for path in (run.checkpoint / "commits").iterdir() if path.name.isdigit()}
    assert remaining & set(history.captured())
    assert history.live().table("op0_left").count() > 0


@pytest.mark.slow
def test_a_capture_waits_for_the_first_epoch(spark: SparkSession, tmp_path: Path) -> None:
    """A capture can be started before its query."""
    run = Run(spark, tmp_path)
    capture = ss.Checkpoint(run.checkpoint).follow(run.store, "q", spark=spark)
    try:
        assert capture.status.state == "waiting"
        run.start(OTHERS["dropDuplicates"], epochs=range(2))
        assert capture.wait(1, timeout=300) >= 1
    finally:
        capture.stop()
    assert run.check() == len(run.history.captured()) == 2


def test_a_replaced_checkpoint_is_rejected(spark: SparkSession, tmp_path: Path) -> None:
    """If another query uses the path, a running capture fails, and so does a new one of the same name."""
    run = Run(spark, tmp_path)
    run.start(OTHERS["dropDuplicates"], epochs=range(1))
    capture = ss.Checkpoint(run.checkpoint).follow(run.store, "q", spark=spark)
    try:
        capture.wait(0, timeout=300)
        shutil.rmtree(run.checkpoint)
        run.start(OTHERS["dropDuplicates"], epochs=range(1, 2))
        with pytest.raises(Exception, match="another query's"):
            capture.wait(5, timeout=300)
        assert capture.status.state == "failed"
    finally:
        capture.stop()
    with pytest.raises(NameTakenError, match="deleted or replaced"):
        run.capture()
    assert run.history.captured() == [0]


def test_a_checkpoint_that_is_replaced_between_passes_is_rejected(spark: SparkSession, tmp_path: Path) -> None:
    """No epoch of the other query is captured."""
    from streamstate.snapshots.capture.capture import capturer_for

    run = Run(spark, tmp_path)
    run.start(OTHERS["dropDuplicates"], epochs=range(1))
    capturer = capturer_for(run.checkpoint, run.store, "q", spark)
    assert capturer.run().epochs == (0,)
    shutil.rmtree(run.checkpoint)
    run.start(OTHERS["dropDuplicates"], epochs=range(1, 3))
    with pytest.raises(CheckpointReplacedError, match="another name"):
        capturer.run()
    assert run.history.captured() == [0]


@pytest.mark.exhaustive
@pytest.mark.slow
def test_checkpoints_on_other_file_systems(spark: SparkSession, tmp_path: Path) -> None:
    """A checkpoint can be read with Hadoop's client, here from a viewfs mount, and given as a file: URI."""
    run = checked(spark, WINDOWS["tumbling window"], tmp_path, starts=(range(2),))
    mounts = spark.sparkContext._jsc.hadoopConfiguration()
    mounts.set(f"fs.viewfs.mounttable.{tmp_path.name.replace('_', '-')}.link./data", tmp_path.as_uri())
    remote = f"viewfs://{tmp_path.name.replace('_', '-')}/data/checkpoint"
    for number, uri in enumerate((remote, run.checkpoint.as_uri())):
        store = tmp_path / f"store{number}"
        report = ss.Checkpoint(uri).capture(store, "q", spark=spark)
        history = ss.open_store(store)["q"]
        assert list(report.epochs) == history.captured() == run.history.captured()
        assert compare(spark, run.checkpoint, history) == len(report.epochs)
        columns = ["epoch", "status", "offsets", "watermark", "changes"]
        assert history.epochs()[columns].equals(run.history.epochs()[columns])
        assert history.growth()["rows"].equals(run.history.growth()["rows"])
        assert history.epochs()["committed_at"].notna().all()
