"""Ctrl+C ends a command within seconds: with one line, status 130, and nothing half-made."""

from __future__ import annotations

from pathlib import Path

import pytest
from terminal_process import in_terminal

WITHIN = 30.0
"""Seconds; two on an idle machine."""

JOB = """
import time
from pyspark.sql import SparkSession, functions as F

def slow(v):
    time.sleep(100)
    return v

def build():
    letters = SparkSession.builder.getOrCreate().readStream.schema("k string, v long")
    letters = letters.option("maxFilesPerTrigger", 1).parquet({folder!r})
    figures = F.count("*").alias("n"), F.avg("v").alias("mean"), F.max("v").alias("most")
    return letters.withColumn("v", F.udf(slow, "long")("v")).groupBy("k").agg(*figures)
"""


@pytest.mark.slow
def test_an_interrupted_restore_leaves_no_checkpoint(counted: tuple[Path, Path], tmp_path: Path) -> None:
    """Neither the checkpoint nor the folder in which it is made stays."""
    with in_terminal(tmp_path, "restore", counted[1], "counts", "--to", tmp_path / "made" / "restored") as process:
        process.wait_for("starting Spark")
        process.wait_for("writing the state")
        seconds = process.interrupt()
        status, output, lines = process.end()
    assert (status, output, lines) == (130, "", "Interrupted. No checkpoint was made.")
    assert seconds < WITHIN
    assert list((tmp_path / "made").iterdir()) == []


@pytest.mark.slow
def test_an_interrupted_rehearsal_cancels_the_job(counted: tuple[Path, Path], tmp_path: Path) -> None:
    """A query whose Python code sleeps ends, too."""
    (tmp_path / "job.py").write_text(JOB.format(folder=str(counted[1].parent / "input")), encoding="utf-8")
    with in_terminal(tmp_path, "check", counted[0], "job.py:build", "--replay", "2") as process:
        process.wait_for("rehearsing epoch 3")
        process.wait_for("[00:03]")
        seconds = process.interrupt()
        status, output, lines = process.end()
    assert (status, output, lines) == (130, "", "Interrupted. The query is unchanged.")
    assert seconds < WITHIN
