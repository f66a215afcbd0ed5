"""The state of a fork equals the original's at the forked epoch, and has no later epochs."""

from __future__ import annotations

from pathlib import Path

import pytest
from operators.processors import PANDAS_STATE, TRANSFORM
from operators.queries import JOINS, OTHERS, WINDOWS, in_format
from operators.running import CHANGELOG_OFF, FORMAT_1, HDFS, Query, Run, rows, with_settings
from oracle import spark_rows
from pyspark.sql import SparkSession
from sampling import sampled
from stepping import tree, untouched

import streamstate as ss
from streamstate.replay.forks.make_fork import ForkBuilder
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.hadoop_files import HadoopFiles

pytestmark = pytest.mark.slow

SNAPSHOTS = {
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
    "spark.sql.streaming.stateStore.maintenanceInterval": "200ms",
}
PROVIDERS = {"HDFS": HDFS, "RocksDB, format 1": FORMAT_1, "RocksDB, format 2": {}}
BUILT_IN = WINDOWS | OTHERS | {f"join, {how}": query for how, query in JOINS.items()}


def check_forks(spark: SparkSession, run: Run, query: Query, epochs: range) -> None:
    """A fork at each epoch equals the original at that epoch, and the original is unchanged."""
    before = tree(run.checkpoint)
    for epoch in epochs:
        fork = ss.Checkpoint(run.checkpoint).fork(run.folder / f"fork{epoch}", at=epoch)
        assert CheckpointFiles(fork).committed() == [epoch]
        for table in query.tables:
            assert spark_rows(spark, fork.path, table, epoch) == spark_rows(spark, run.checkpoint, table, epoch)
    # Spark's maintenance may write snapshots even after the query has ended.
    assert untouched(before, run.checkpoint)


@pytest.mark.parametrize("provider", sampled(PROVIDERS, 1))
@pytest.mark.parametrize("name", sampled(["join, left_outer", "tumbling window"], 1))
def test_a_fork_equals_the_original(spark: SparkSession, tmp_path: Path, provider: str, name: str) -> None:
    """Their rows are the same at every epoch, with every state store provider and format."""
    run, query = Run(spark, tmp_path), BUILT_IN[name]
    run.start(query, PROVIDERS[provider], SNAPSHOTS)
    check_forks(spark, run, query, range(5))


# The tests of stepping fork every operator, and compare the forks before the first step.
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["session window", "two aggregations", "join, self"])
def test_operators_fork_at_any_epoch(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Session windows that expire, queries of several operators, and self-joins can be forked."""
    run, query = Run(spark, tmp_path), BUILT_IN[name]
    run.start(query, SNAPSHOTS, epochs=range(4))
    check_forks(spark, run, query, range(1, 4, 2))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", sampled(["rows, processing time, TTL and timers", "pandas, event time and timers"], 1))
def test_a_fork_of_transform_with_state(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Variables, TTL and timers are forked. The schema paths in the fork's metadata lead to its own files."""
    run, query = Run(spark, tmp_path), TRANSFORM[name]
    run.start(query, SNAPSHOTS, epochs=range(3))
    check_forks(spark, run, query, range(1, 2))
    files = (tmp_path / "fork1/state/0/_metadata/v2").iterdir()
    text = "".join(file.read_text() for file in files if not file.name.startswith("."))
    assert f"{tmp_path}/fork1/state/0/_stateSchema" in text
    assert str(run.checkpoint) not in text


@pytest.mark.exhaustive
def test_a_fork_of_apply_in_pandas_with_state(spark: SparkSession, tmp_path: Path) -> None:
    """Its rows equal those of the original."""
    run, query = Run(spark, tmp_path), next(iter(PANDAS_STATE.values()))
    run.start(query, SNAPSHOTS, epochs=range(3))
    check_forks(spark, run, query, range(1, 2))


@pytest.mark.parametrize("name", sampled(["format 1", "format 2"], 1))
def test_a_fork_without_changelogs(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """If changelog checkpointing is off, each version is a RocksDB snapshot."""
    conf = CHANGELOG_OFF if name == "format 2" else CHANGELOG_OFF | FORMAT_1
    run, query = Run(spark, tmp_path), BUILT_IN["tumbling window"]
    run.start(query, conf)
    check_forks(spark, run, query, range(5))


@pytest.mark.exhaustive
def test_a_fork_of_a_join_with_state_format_3(spark: SparkSession, tmp_path: Path) -> None:
    """In this format, both sides of the join share one state store."""
    run, query = Run(spark, tmp_path), BUILT_IN["join, inner"]
    run.start(query, in_format(3), SNAPSHOTS)
    check_forks(spark, run, query, range(1, 5, 3))


def test_a_fork_of_a_running_query(spark: SparkSession, tmp_path: Path) -> None:
    """The query keeps running, and the fork equals it at the forked epoch."""
    run, query = Run(spark, tmp_path), BUILT_IN["tumbling window"]
    run.start(query, SNAPSHOTS, epochs=range(2))
    session = with_settings(spark, SNAPSHOTS)
    writer = query.build(run.inputs.stream(session)).writeStream.format("noop").outputMode(query.mode)
    running = writer.option("checkpointLocation", str(run.checkpoint)).start()
    try:
        fork = ss.Checkpoint(run.checkpoint).fork(tmp_path / "fork", at=1, verify="rows", spark=spark)
        assert running.isActive
        run.inputs.add(rows(2))
        running.processAllAvailable()
    finally:
        running.stop()
    for table in query.tables:
        assert spark_rows(spark, fork.path, table, 1) == spark_rows(spark, run.checkpoint, table, 1)


def test_a_fork_on_other_file_systems_is_a_copy(spark: SparkSession, tmp_path: Path) -> None:
    """No file is linked if the fork is made with Hadoop's client."""
    run, query = Run(spark, tmp_path), BUILT_IN["tumbling window"]
    run.start(query, SNAPSHOTS, epochs=range(4))
    original, target = CheckpointFiles(run.checkpoint, spark), str(tmp_path / "fork")
    fork = ForkBuilder(original, target, HadoopFiles(spark), spark).build(2, "rows")
    assert fork.linked_bytes == 0 < fork.new_bytes
    for table in query.tables:
        assert spark_rows(spark, target, table, 2) == spark_rows(spark, run.checkpoint, table, 2)
