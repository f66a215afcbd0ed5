"""The nouns where Spark runs: restarting, supervising, replaying and going back."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Source, counts, letters
from pyspark.sql import SparkSession

import streamstate as ss

pytestmark = pytest.mark.slow


def test_a_running_query_and_its_checkpoint(source: Source, tmp_path: Path) -> None:
    """Restart, supervise, replay without a folder, fork, step and restore, from one handle."""
    source.add(letters(0))
    source.add(letters(1))
    running = ss.start(counts(source), "counts", tmp_path / "store", trigger="available-now", partitions=2)
    assert running.wait(timeout=300) == 1
    assert ss.Checkpoint(running.query).path == running.checkpoint.path  # type: ignore[arg-type]
    source.add(letters(2))
    again = running.restart()
    assert (again.wait(timeout=300), running.newest) == (2, again)
    source.add(letters(3))
    supervised = again.supervise(ss.BackOff(restarts=1))
    assert supervised.supervised is not None
    assert supervised.wait(timeout=300) == 3
    supervised.stop()
    checkpoint = supervised.checkpoint
    replay = checkpoint.replay(lambda: counts(source), epochs="2..3")
    assert replay.same
    assert (replay.fork.epoch, replay.fork.original) == (1, checkpoint)
    fork = checkpoint.fork(tmp_path / "fork", at=1)
    assert fork.step(lambda: counts(source), epochs=2).epoch == 3
    restored = supervised.history.at(2).restore(to=tmp_path / "restored")
    assert (restored.epoch, restored.original) == (2, checkpoint)
    assert restored.step(lambda: counts(source)).epoch == 3


def test_a_query_of_this_process_names_itself(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    """Its name is the default in a store, not that of the folder."""
    source.add(letters(0))
    writer = counts(source).writeStream.format("noop").outputMode("update").queryName("named")
    query = writer.option("checkpointLocation", str(tmp_path / "folder")).start()
    query.processAllAvailable()
    assert ss.Checkpoint(query).capture(tmp_path / "store", verify="never").query == "named"
    query.stop()
    assert spark.streams.active == []
