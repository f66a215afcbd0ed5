"""Queries over Delta sinks that are killed between the sink's commit and Spark's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from spark_settings import SHARED

import streamstate as ss
from services.delta.conftest import Table
from services.delta.test_sinks import content
from streamstate.errors import InvalidArgumentError, PromotionError, QueryError
from streamstate.reports import Running
from streamstate.snapshots.spark.own_settings import with_settings

PROGRAM = """
import json, os, signal, sys, threading
from pathlib import Path
import streamstate as ss
from services.delta.test_killed_commits import first_rows

settings, source, out, checkpoint, version = json.loads(sys.argv[1])
spark = ss.session(**settings)
java = spark.sparkContext._gateway.proc.pid

def kill():
    log = Path(out, "_delta_log", f"{version:020}.json")
    while not log.exists():
        pass
    os.kill(java, signal.SIGKILL)
    os._exit(9)

threading.Thread(target=kill, daemon=True).start()
writer = first_rows(spark, source).writeStream.format("delta").outputMode("append")
writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start(out).awaitTermination()
"""


def first_rows(spark: SparkSession, source: str) -> DataFrame:
    """The first row of each number."""
    return spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(source).dropDuplicates(["v"])


def kill_after_sink(source: str, out: Path, checkpoint: Path, settings: dict[str, str]) -> int:
    """Run the query in another process until the sink has an epoch and Spark has not; return that epoch."""
    for version in range(1, 6):  # Spark may be quicker
        given = json.dumps([settings, source, str(out), str(checkpoint), version])
        subprocess.run(
            [sys.executable, "-c", PROGRAM, given],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            timeout=300,
            check=False,
        )
        if not (checkpoint / "commits" / str(version)).exists():
            return version
    raise AssertionError("Spark committed each epoch before it was killed")


@pytest.mark.parametrize("checkpoint_format", [pytest.param("1", marks=pytest.mark.exhaustive), "2"])
def test_a_query_killed_after_its_sinks_commit_goes_on(
    table: Table, tmp_path: Path, service_settings: dict[str, str], checkpoint_format: str
) -> None:
    """In format 2 by a fork that runs the epoch and takes over; in format 1 by itself. No row is lost or doubled."""
    out, cp = tmp_path / "out", tmp_path / "cp"
    form = {"spark.sql.streaming.stateStore.checkpointFormatVersion": checkpoint_format}
    settings = SHARED | service_settings | form | {"spark.jars": os.environ["STREAMSTATE_JARS"]}
    for number in range(6):
        table.append(2 * number, 2 * number + 3)
    epoch = kill_after_sink(table.path, out, cp, settings)

    def run() -> Running:
        running = ss.start(
            first_rows(table.spark, table.path), "first", tmp_path / "store", checkpoint=cp, mode="append",
            sink=f"delta:{out}", trigger="available-now", partitions=2,
        )  # fmt: skip
        running.wait(timeout=300)
        return running

    checkpoint = ss.Checkpoint(cp)
    if checkpoint_format == "2":
        with pytest.raises(QueryError, match="CheckpointInfo length: 0"):
            run()
        [note] = [
            found.text
            for found in checkpoint.doctor().findings
            if f"Epoch {epoch} has written its state and is not committed" in found.text
        ]
        assert "promote it over the checkpoint with sink='delta:PATH'" in note
        report = checkpoint.check(lambda: first_rows(table.spark, table.path), mode="append")
        assert "unfinished" in [finding.kind for finding in report.findings]
        fork = checkpoint.fork(tmp_path / "fork")
        assert fork.step(lambda: first_rows(table.spark, table.path), mode="append").epoch == epoch
        with pytest.raises(PromotionError, match="was begun but not committed"):
            fork.promote(over=checkpoint)
        with pytest.raises(PromotionError, match="has no epoch of this query"):
            fork.promote(over=checkpoint, sink=f"delta:{table.path}")
        with pytest.raises(InvalidArgumentError, match="expected 'delta:PATH'"):
            fork.promote(over=checkpoint, sink=f"delta:{tmp_path}/none")
        assert fork.promote(over=checkpoint, sink=f"delta:{out}").epoch == epoch
    with with_settings(table.spark, form):
        running = run()
    assert content(out) == Counter({(f"k{v % 3}", v): 1 for v in range(13)})
    assert running.history.live().table().count() == 13
