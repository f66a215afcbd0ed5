"""A fork is what its original was at an epoch, key by key, and never more than that."""

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
from streamstate.snapshots.checkpoint import Checkpoint
from streamstate.snapshots.forks.making import Making
from streamstate.snapshots.forks.transfer import HadoopTransfer

pytestmark = pytest.mark.slow

SNAPSHOTS = {
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
    "spark.sql.streaming.stateStore.maintenanceInterval": "200ms",
}
PROVIDERS = {"RocksDB, format 2": {}, "RocksDB, format 1": FORMAT_1, "HDFS": HDFS}
BUILT_IN = WINDOWS | OTHERS | {f"join, {how}": query for how, query in JOINS.items()}


def check_forks(spark: SparkSession, run: Run, query: Query, epochs: range) -> None:
    """A fork at each epoch equals the original there, and making it changes nothing of the original."""
    before = tree(run.checkpoint)
    for epoch in epochs:
        fork = ss.fork(run.checkpoint, run.folder / f"fork{epoch}", at=epoch)
        assert Checkpoint(fork).committed() == [epoch]
        for table in query.tables:
            assert spark_rows(spark, fork.checkpoint, table, epoch) == spark_rows(spark, run.checkpoint, table, epoch)
    # Spark's maintenance may write whole states of a query that has ended.
    assert untouched(before, run.checkpoint)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("name", sampled(["join, left_outer", "tumbling window"], 1))
def test_a_fork_equals_the_original(spark: SparkSession, tmp_path: Path, provider: str, name: str) -> None:
    """At every epoch, whichever way the state is kept."""
    run, query = Run(spark, tmp_path), BUILT_IN[name]
    run.start(query, PROVIDERS[provider], SNAPSHOTS)
    check_forks(spark, run, query, range(5))


# Every operator is forked, and compared before it goes on, in the tests of steps.
@pytest.mark.parametrize("name", sampled(["session window", "two aggregations", "join, self"], 1))
def test_operators_fork_at_any_epoch(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Windows whose state goes, several operators in one query, a stream that is read twice."""
    run, query = Run(spark, tmp_path), BUILT_IN[name]
    run.start(query, SNAPSHOTS, epochs=range(4))
    check_forks(spark, run, query, range(1, 4, 2))


@pytest.mark.parametrize("name", sampled(["rows, processing time, TTL and timers", "pandas, event time and timers"], 1))
def test_python_state_forks(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Variables, TTL and timers; Spark writes down where their schemas are, and the fork has its own."""
    run, query = Run(spark, tmp_path), TRANSFORM[name]
    run.start(query, SNAPSHOTS, epochs=range(3))
    check_forks(spark, run, query, range(1, 2))
    described = (tmp_path / "fork1/state/0/_metadata/v2").iterdir()
    text = "".join(file.read_text() for file in described if not file.name.startswith("."))
    assert f"{tmp_path}/fork1/state/0/_stateSchema" in text
    assert str(run.checkpoint) not in text


def test_state_of_groups_in_pandas_forks(spark: SparkSession, tmp_path: Path) -> None:
    """ApplyInPandasWithState."""
    run, query = Run(spark, tmp_path), next(iter(PANDAS_STATE.values()))
    run.start(query, SNAPSHOTS, epochs=range(3))
    check_forks(spark, run, query, range(1, 2))


@pytest.mark.parametrize("conf", [CHANGELOG_OFF, CHANGELOG_OFF | FORMAT_1], ids=["format 2", "format 1"])
def test_without_changelogs(spark: SparkSession, tmp_path: Path, conf: dict[str, str]) -> None:
    """Each version is a whole state."""
    run, query = Run(spark, tmp_path), BUILT_IN["tumbling window"]
    run.start(query, conf)
    check_forks(spark, run, query, range(5))


def test_a_join_in_one_store_forks(spark: SparkSession, tmp_path: Path) -> None:
    """State format 3 of joins keeps both sides in one store."""
    run, query = Run(spark, tmp_path), BUILT_IN["join, inner"]
    run.start(query, in_format(3), SNAPSHOTS)
    check_forks(spark, run, query, range(1, 5, 3))


def test_a_fork_of_a_running_query(spark: SparkSession, tmp_path: Path) -> None:
    """Its files are only read, and it goes on."""
    run, query = Run(spark, tmp_path), BUILT_IN["tumbling window"]
    run.start(query, SNAPSHOTS, epochs=range(2))
    session = with_settings(spark, SNAPSHOTS)
    writer = query.build(run.inputs.stream(session)).writeStream.format("noop").outputMode(query.mode)
    running = writer.option("checkpointLocation", str(run.checkpoint)).start()
    try:
        fork = ss.fork(run.checkpoint, tmp_path / "fork", at=1, verify="rows", spark=spark)
        assert running.isActive
        run.inputs.add(rows(2))
        running.processAllAvailable()
    finally:
        running.stop()
    for table in query.tables:
        assert spark_rows(spark, fork.checkpoint, table, 1) == spark_rows(spark, run.checkpoint, table, 1)


def test_on_other_file_systems_a_fork_is_a_copy(spark: SparkSession, tmp_path: Path) -> None:
    """Hadoop's client copies the files that make up the state, and no others."""
    run, query = Run(spark, tmp_path), BUILT_IN["tumbling window"]
    run.start(query, SNAPSHOTS, epochs=range(4))
    original, target = Checkpoint(run.checkpoint, spark), str(tmp_path / "fork")
    fork = Making(original, target, HadoopTransfer(spark), spark).made(2, "rows")
    assert fork.linked_bytes == 0 < fork.new_bytes
    for table in query.tables:
        assert spark_rows(spark, target, table, 2) == spark_rows(spark, run.checkpoint, table, 2)
