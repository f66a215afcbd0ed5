"""Epochs of Spark's real-time mode are captured as any others are, and labelled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from oracle import compare
from pyspark.sql import SparkSession

import streamstate as ss
from streamstate.reports import Store

# A query in real-time mode needs a free slot for each of its tasks, so it has a session of its own.
PROGRAM = """
import sys, time
import streamstate as ss
from pyspark.sql import DataFrame, functions as F

settings = {
    "spark.master": "local[8]",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.realTimeMode.minBatchDuration": "1000",
    "spark.sql.streaming.realTimeMode.allowlistCheck": "false",
}
spark = ss.session(**settings)
jvm = spark._jvm
source = jvm.org.apache.spark.sql.execution.streaming.sources.LowLatencyMemoryStream.apply(
    spark._jsparkSession, 2, jvm.org.apache.spark.sql.Encoders.STRING()
)
frame = DataFrame(source.toDF(), spark).groupBy("value").agg(F.count("*").alias("n"))
writer = frame.writeStream.format("console").outputMode("update").option("checkpointLocation", sys.argv[1])
query = writer.trigger(realTime="1 second").start()
capture = ss.Checkpoint(query).follow(sys.argv[2], "q")
deadline = time.monotonic() + 120
while capture.committed() < 3 and time.monotonic() < deadline:
    keys = jvm.java.util.ArrayList()
    for key in "abc":
        keys.add(key)
    source.addData(jvm.scala.jdk.javaapi.CollectionConverters.asScala(keys).toSeq())
    time.sleep(0.5)
query.stop()
capture.wait(timeout=300)
"""


@pytest.mark.exhaustive
@pytest.mark.slow
def test_epochs_of_the_real_time_mode(spark: SparkSession, tmp_path: Path) -> None:
    """Every epoch equals Spark's reader, without its help, and has the mode."""
    checkpoint, store = tmp_path / "checkpoint", tmp_path / "store"
    subprocess.run([sys.executable, "-c", PROGRAM, str(checkpoint), str(store)], check=True, capture_output=True)
    history = ss.open_store(store)["q"]
    assert len(history.captured()) >= 4
    assert compare(spark, checkpoint, history) == len(history.captured())
    again = ss.Checkpoint(checkpoint).capture(tmp_path / "again", "q", verify="never", spark=spark)
    assert (list(again.epochs), again.by_spark) == (history.captured(), {})
    assert set(history.epochs()["mode"]) == {"real-time"}
    for file in checkpoint.rglob("*"):
        os.utime(file)
    ss.Checkpoint(checkpoint).capture(tmp_path / "copied", "q", spark=spark)
    assert set(ss.open_store(tmp_path / "copied")["q"].epochs()["mode"]) == {None}


def test_ordinary_epochs_have_no_mode(store: Store) -> None:
    """Spark plans their batches before it stores their state."""
    epochs = store["counts"].epochs()
    assert set(epochs["mode"]) == {None}
    assert json.loads(epochs["offsets"][0])
