"""Beside Spark Connect, what Spark has to read or to compute for a store is what it is beside a classic session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from connect import capture_calls
from connect.conftest import outcome

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


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
