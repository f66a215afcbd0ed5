"""Beside Spark Connect, what Spark has to read or to compute for a store is what it is beside a classic session."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from recorded.unpacked import unpacked

from connect import capture_calls
from connect.conftest import outcome

_WITHOUT_WORKER = """
import sys
import streamstate as ss
from connect.user_program import session
session("nowhere")
sys.modules["rocksdict"] = None
try:
    ss.Checkpoint(sys.argv[1]).capture(sys.argv[2], "q")
except ss.StreamStateError as error:
    print(f"{type(error).__name__}: {error}")
capture = ss.Checkpoint(sys.argv[1]).follow(sys.argv[2], "q")
capture.join(60)
print(f"{capture.status.state}: {capture.status.error}")
"""


def test_without_a_worker_the_error_names_what_spark_has_to_read(tmp_path: Path) -> None:
    """A capture raises it, and a follower ends with it."""
    checkpoint = unpacked("3.5", tmp_path) / "RocksDB" / "aggregation"  # snapshots alone, which rocksdict reads too
    command = [sys.executable, "-c", _WITHOUT_WORKER, str(checkpoint), str(tmp_path / "store")]
    tests = str(Path(__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": tests, "STREAMSTATE_WORKER_PYTHON": shutil.which("false") or ""}
    seen = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=True).stdout
    said = "Spark has to read op0: .*\nThe call needs a classic Spark session, and the worker process for it did not"
    assert re.match(f"SparkConnectError: {said}", seen)
    assert re.search(f"failed: {said}", seen)


@pytest.fixture(scope="module")
def folder(recorded_query: Path, spark: Any) -> Path:
    """The folder of the recorded query, and a checkpoint of the same query that only Spark can read."""
    own = spark.newSession()
    for key, value in capture_calls.UNKNOWN.items():
        own.conf.set(key, value)
    writer = capture_calls.building(own, recorded_query / "input")().writeStream.format("noop").outputMode("update")
    writer = writer.option("checkpointLocation", str(recorded_query / "unknown")).trigger(availableNow=True)
    writer.start().awaitTermination()
    return recorded_query


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_worker_captures_what_spark_has_to_read(
    folder: Path, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reports, the status of a follower, and the rows of every epoch; also where only Hadoop's client can read."""
    for name in ("classic", "client"):
        (tmp_path / name).mkdir()
    setting, value = capture_calls.mounted(folder)
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--conf spark.hadoop.{setting}={value} pyspark-shell")
    client = outcome("user_program.py", "nowhere", folder, tmp_path / "client", "captures")
    spark.sparkContext._jsc.hadoopConfiguration().set(setting, value)
    classic = capture_calls.answers(spark, folder, tmp_path / "classic")
    assert classic["report"][3]["op0"]  # Spark has read
    assert client == json.loads(json.dumps(classic))
