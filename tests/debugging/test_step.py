"""A step runs one epoch of a fork with the original's input, and has the original's result."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from operators.processors import PANDAS_STATE, TRANSFORM
from operators.queries import JOINS, OTHERS, WINDOWS
from operators.running import CHANGELOG_OFF, FORMAT_1, HDFS, Run, rows, with_settings
from oracle import spark_rows
from pyspark.sql import SparkSession
from sampling import sampled
from stepping import builder, check_steps, counting

import streamstate as ss
from streamstate.errors import ForkError
from streamstate.replay.stepping.next_epoch import with_own_conf
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles

pytestmark = pytest.mark.slow

PROVIDERS = {"RocksDB, format 2": {}, "RocksDB, format 1": FORMAT_1, "HDFS": HDFS, "whole states": CHANGELOG_OFF}
BUILT_IN = WINDOWS | OTHERS | {f"join, {how}": query for how, query in JOINS.items()}
PYTHON = {
    "rows, processing time, TTL and timers": TRANSFORM["rows, processing time, TTL and timers"],
    "pandas, event time and timers": TRANSFORM["pandas, event time and timers"],
    "groups in pandas, event time": PANDAS_STATE["event-time timeout"],
}
PROVED = "join, left_outer"


@pytest.mark.parametrize("provider", sampled(PROVIDERS, 1))
def test_a_step_equals_the_original(spark: SparkSession, tmp_path: Path, provider: str) -> None:
    """The states at three epochs are equal, key by key, with every state store provider and format."""
    run, query = Run(spark, tmp_path), BUILT_IN[PROVED]
    run.start(query, PROVIDERS[provider])
    check_steps(spark, run, query, PROVIDERS[provider])


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", sampled([name for name in BUILT_IN if name != PROVED], 1))
def test_every_operator_steps(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Windows, deduplication, limits, joins, self-joins and several operators in one query can be stepped."""
    run, query = Run(spark, tmp_path), BUILT_IN[name]
    run.start(query, epochs=range(3))
    check_steps(spark, run, query, at=0, steps=2)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", sampled(PYTHON, 1))
def test_python_state_steps(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Variables, timers and timeouts have the processing time of the original's epoch."""
    run, query = Run(spark, tmp_path), PYTHON[name]
    run.start(query, epochs=range(3))
    check_steps(spark, run, query, at=0, steps=2)


@pytest.mark.exhaustive
def test_epochs_without_data_are_separate_steps(spark: SparkSession, tmp_path: Path) -> None:
    """The fork has the same epochs as the original: a step runs no extra epoch without data."""
    run, query = Run(spark, tmp_path), WINDOWS["tumbling window"]
    session = with_settings(spark)
    frame = query.build(run.inputs.stream(session))
    writer = frame.writeStream.format("noop").outputMode("update").option("checkpointLocation", str(run.checkpoint))
    running = writer.start()
    try:
        for epoch in range(3):
            run.inputs.add(rows(epoch))
            running.processAllAvailable()
    finally:
        running.stop()
    original = CheckpointFiles(run.checkpoint)
    last = original.committed()[-1]
    without_data = [epoch for epoch in range(1, last + 1) if _offsets(original, epoch) == _offsets(original, epoch - 1)]
    assert without_data
    report = check_steps(spark, run, query, at=0, steps=last)
    assert [result.epoch for result in report.epochs if not result.input_rows] == without_data
    planned = [original.planned(result.epoch) for result in report.epochs]
    assert [result.watermark for result in report.epochs] == [plan.watermark if plan else None for plan in planned]


def _offsets(checkpoint: CheckpointFiles, epoch: int) -> tuple[str | None, ...]:
    planned = checkpoint.planned(epoch)
    assert planned is not None
    return planned.offsets


@pytest.mark.exhaustive
def test_steps_across_compactions_of_the_source_log(spark: SparkSession, tmp_path: Path) -> None:
    """The source log is compacted at its tenth and twentieth batch, and the original has deleted the old entries."""
    settings = {"spark.sql.shuffle.partitions": "1"}
    run, query = Run(spark, tmp_path), OTHERS["distinct"]
    run.start_with(query, [rows(epoch, count=3) for epoch in range(22)], settings)
    # Spark deletes compacted entries after ten minutes.
    for batch in range(19):
        (run.checkpoint / f"sources/0/{batch}").unlink(missing_ok=True)
    fork = ss.Checkpoint(run.checkpoint).fork(tmp_path / "fork", at=3)
    report = ss.Checkpoint(fork).step(builder(run, query, settings), epochs=50, mode=query.mode)
    assert (report.stopped, report.epoch, len(report.epochs)) == ("end", 21, 18)
    log = {file.name for file in Path(fork, "sources/0").iterdir() if not file.name.startswith(".")}
    assert {"9.compact", "19.compact", "21"} <= log
    for epoch in (9, 10, 20, 21):
        assert spark_rows(spark, fork.path, "op0", epoch) == spark_rows(spark, run.checkpoint, "op0", epoch)


def test_a_repartitioning_is_repeated(spark: SparkSession, counted: tuple[Path, Path], tmp_path: Path) -> None:
    """If the original only repartitioned its state in an epoch, so does the fork."""
    build = counting(spark, counted[0].parent)
    original = ss.Checkpoint(counted[0]).fork(tmp_path / "original", at=2)
    original.rescale(3, spark=spark)
    fork = ss.Checkpoint(original).fork(tmp_path / "fork", at=2)
    report = ss.Checkpoint(fork).step(build, original=original)
    assert [(result.epoch, result.input) for result in report.epochs] == [(3, "none")]
    assert CheckpointFiles(fork).partitions(3) == 3
    assert spark_rows(spark, fork.path, "op0", 3) == spark_rows(spark, counted[0], "op0", 2)


def test_a_fork_continues_with_new_input(spark: SparkSession, tmp_path: Path) -> None:
    """New input is allowed after the original's end. The fork can no longer follow the original then."""
    run, query = Run(spark, tmp_path), OTHERS["distinct"]
    run.start(query, epochs=range(2))
    build, fork = builder(run, query), ss.Checkpoint(run.checkpoint).fork(tmp_path / "fork", at=0)
    ended = ss.Checkpoint(fork).step(build, epochs=2, mode="append")
    assert (ended.stopped, ended.epoch) == ("end", 1)
    run.inputs.add(rows(2))
    run.inputs.add(rows(3))
    more = ss.Checkpoint(fork).step(build, new_input=True, mode="append")
    assert [(result.epoch, result.input, result.input_rows) for result in more.epochs] == [(2, "new", 22)]
    no_input = ss.Checkpoint(fork).step(build, new_input=True, mode="append")
    assert (no_input.stopped, no_input.epoch, CheckpointFiles(fork).begun()[-1]) == ("end", 2, 2)
    run.start(query, epochs=range(0))
    assert CheckpointFiles(run.checkpoint).committed()[-1] == 3
    with pytest.raises(ForkError, match="has read other input"):
        ss.Checkpoint(fork).step(build, mode="append")


def test_a_captured_fork_starts_where_it_was_forked(
    spark: SparkSession, counted: tuple[Path, Path], tmp_path: Path
) -> None:
    """Epochs before the fork are not gaps. The store records the parent, and the report has the input rows."""
    ss.Checkpoint(counted[0]).capture(tmp_path / "store", "counts", spark=spark)
    fork = ss.Checkpoint(counted[0]).fork(tmp_path / "fork", at=2)
    report = ss.Checkpoint(fork).step(counting(spark, counted[0].parent), store=tmp_path / "store", name="what_if")
    history = ss.open_store(tmp_path / "store")["what_if"]
    epochs = history.epochs()
    assert epochs[["epoch", "status"]].to_numpy().tolist() == [[2, "captured"], [3, "captured"]]
    assert epochs["input_rows"].to_list()[1] == report.epochs[0].input_rows
    assert [(branch.name, branch.parent, branch.epoch) for branch in history.forks()] == [("what_if", "counts", 2)]
    assert report.history.name == "what_if"
    capture = ss.Checkpoint(fork).follow(tmp_path / "followed", "f", spark=spark)
    try:
        assert capture.wait(timeout=300) == 3
    finally:
        capture.stop()
    assert ss.open_store(tmp_path / "followed")["f"].epochs()["epoch"].to_list() == [2, 3]


def test_results_go_to_the_forks_own_sink(spark: SparkSession, tmp_path: Path) -> None:
    """A given sink has a folder for each epoch."""
    run, query = Run(spark, tmp_path), WINDOWS["tumbling window, append"]
    run.start(query, epochs=range(4))
    fork = ss.Checkpoint(run.checkpoint).fork(tmp_path / "fork", at=1)
    sink = f"parquet:{tmp_path}/out"
    build = builder(run, query)
    report = ss.Checkpoint(fork).step(build, epochs=1, mode="append", sink=sink)
    assert ss.Checkpoint(fork).step(build, mode="append", sink=sink).epoch == report.epoch + 1 == 3
    assert {row["epoch"] for row in spark.read.parquet(str(tmp_path / "out")).select("epoch").distinct().collect()} == {
        2,
        3,
    }


def test_an_epochs_plan_keeps_the_forks_settings() -> None:
    """Offsets and processing time are the original's, settings are the fork's; the watermark is as requested."""
    original = 'v1\n{"batchWatermarkMs":70,"batchTimestampMs":9,"conf":{"p":"2"}}\n{"logOffset":4}\n-'
    fork = 'v1\n{"batchWatermarkMs":50,"batchTimestampMs":8,"conf":{"p":"3"}}\n{"logOffset":3}\n-'
    commit = 'v1\n{"nextBatchWatermarkMs":60}'
    for own, watermark in ((True, 60), (False, 70)):
        version, head, *sources = with_own_conf(original, fork, commit, own_watermark=own, pinned={}).split("\n")
        assert json.loads(head) == {"batchWatermarkMs": watermark, "batchTimestampMs": 9, "conf": {"p": "3"}}
        assert (version, sources) == ("v1", ['{"logOffset":4}', "-"])
    assert with_own_conf(original, original, commit, own_watermark=False, pinned={}) == original
    first = with_own_conf(original, None, None, own_watermark=True, pinned={"p": "5"})
    assert json.loads(first.split("\n")[1])["conf"] == {"p": "5"}
