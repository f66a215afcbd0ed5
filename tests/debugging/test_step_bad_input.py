"""Invalid steps are refused before anything is written, and failed steps leave the fork unchanged."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from input_files import in_turn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from stepping import counting, tree, untouched

import streamstate as ss
from streamstate.errors import (
    EpochGoneError,
    ForkError,
    InvalidArgumentError,
    InvalidSQLError,
    NotReplayableError,
    QueryError,
    UnknownColumnError,
)
from streamstate.replay.stepping.fork_folder import LOCK_FILE
from streamstate.replay.stepping.run_batch import active_queries
from streamstate.reports import Fork
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.fork_record import FORK_FILE

pytestmark = pytest.mark.slow

Build = Callable[[], DataFrame]


@pytest.fixture
def fork(counted: tuple[Path, Path], tmp_path: Path) -> Iterator[Fork]:
    """A fork at epoch 1 of five epochs. The original must be unchanged after the test."""
    before = tree(counted[0])
    yield ss.Checkpoint(counted[0]).fork(tmp_path / "fork", at=1)
    assert untouched(before, counted[0])


@pytest.fixture
def build(spark: SparkSession, counted: tuple[Path, Path]) -> Build:
    """The original's code."""
    return counting(spark, counted[0].parent)


def refused(build: Build, fork: Fork, error: type[Exception], match: str, **arguments: Any) -> None:
    """Check that a step raises an error and leaves the fork unchanged."""
    before = tree(Path(fork))
    with pytest.raises(error, match=match):
        fork.step(build, **arguments)
    assert tree(Path(fork)) == before
    assert not Path(fork, LOCK_FILE).exists()


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"epochs": 0}, InvalidArgumentError, "Invalid epochs=0: expected an integer of at least 1"),
        ({"until": 7}, InvalidArgumentError, "until=7"),
        ({"until": "n >"}, InvalidSQLError, "does not parse"),
        ({"until": "missing > 1"}, UnknownColumnError, "missing"),
        ({"until": "max(count) > 1"}, InvalidSQLError, "one row at a time"),
        ({"until": {"other": 1}}, UnknownColumnError, "Key columns: op0: k"),
        ({"sink": "memory"}, InvalidArgumentError, "original's sink"),
        ({"mode": "sideways"}, QueryError, "output mode"),
    ],
)
def test_invalid_arguments_are_refused(
    build: Build, fork: Fork, arguments: dict[str, Any], error: type[Exception], match: str
) -> None:
    """No epoch runs. The message says what is expected."""
    refused(build, fork, error, match, **arguments)


def test_a_sink_with_other_files_is_refused(build: Build, fork: Fork, tmp_path: Path) -> None:
    """It may be the original's sink."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out/part-0.parquet").touch()
    refused(build, fork, ForkError, "may be the original's sink", sink=f"parquet:{tmp_path}/out")


def test_only_forks_are_stepped(build: Build, counted: tuple[Path, Path], tmp_path: Path) -> None:
    """Other queries, copies of a checkpoint and the original itself are refused."""
    with pytest.raises(ForkError, match="is not a fork"):
        ss.Checkpoint(counted[0]).step(build)
    with pytest.raises(ForkError, match="the original itself"):
        ss.Checkpoint(counted[0]).step(build, original=counted[0])
    shutil.copytree(counted[0], tmp_path / "copy")
    with pytest.raises(ForkError, match="it is a copy"):
        ss.Checkpoint(tmp_path / "copy").step(build, original=counted[0])


def test_forks_that_name_each_other_as_parents_are_refused(build: Build, fork: Fork, tmp_path: Path) -> None:
    """The search for the original ends with an error."""
    second = fork.fork(tmp_path / "second")
    record = Path(fork, FORK_FILE)
    record.write_text(record.read_text().replace(str(fork.original), str(second)))
    refused(build, second, ForkError, "name each other as their parents")


def test_a_fork_whose_query_is_running_is_refused(build: Build, fork: Fork) -> None:
    """A step would stop that query."""
    writer = build().writeStream.format("noop").outputMode("update").option("checkpointLocation", str(fork))
    query = writer.start()
    try:
        query.processAllAvailable()
        with pytest.raises(QueryError, match="is running"):
            fork.step(build)
    finally:
        query.stop()


def test_a_fork_that_another_process_steps_is_refused(build: Build, fork: Fork) -> None:
    """The lock of a dead process is taken over."""
    Path(fork, LOCK_FILE).write_text(f'{{"process": {os.getppid()}, "host": "{os.uname().nodename}"}}')
    with pytest.raises(QueryError, match=f"by process {os.getppid()}"):
        fork.step(build)
    Path(fork, LOCK_FILE).write_text(f'{{"process": 999999999, "host": "{os.uname().nodename}"}}')
    assert fork.step(build).epoch == 2


def test_other_sources_are_refused(spark: SparkSession, build: Build, fork: Fork) -> None:
    """The sources must match the original's in number and kind."""
    rate = spark.readStream.format("rate")
    socket = spark.readStream.format("socket").options(host="localhost", port="1")
    refused(lambda: spark.range(3), fork, InvalidArgumentError, "is not streaming")
    refused(build(), fork, InvalidArgumentError, "expected a function")  # type: ignore[arg-type]
    refused(lambda: rate.load().groupBy("value").count(), fork, ForkError, "another kind")
    refused(lambda: build().union(build()), fork, ForkError, "2 sources")
    refused(lambda: socket.load().groupBy("value").count(), fork, NotReplayableError, "a socket")


def test_a_source_that_deletes_its_input_is_refused(
    spark: SparkSession, counted: tuple[Path, Path], fork: Fork
) -> None:
    """The files are also the original's input."""
    reader = spark.readStream.schema("k string, v long").option("cleanSource", "delete")
    refused(
        lambda: reader.parquet(str(counted[0].parent / "input")).groupBy("k").count(),
        fork,
        NotReplayableError,
        "cleanSource",
    )


def test_code_whose_state_does_not_fit_is_refused(
    spark: SparkSession, counted: tuple[Path, Path], build: Build, fork: Fork
) -> None:
    """The message explains Spark's error. The fork is unchanged, and the original code can still step it."""
    changed = counting(spark, counted[0].parent, "min(v) AS least")
    refused(changed, fork, QueryError, "does not fit")
    refused(lambda: changed().dropDuplicates(["k"]), fork, QueryError, "The fork is unchanged", mode="append")
    assert fork.step(build).epoch == 2


def test_an_error_in_the_query(build: Build, fork: Fork) -> None:
    """It is raised with its cause. With until="error", it is in the report instead."""

    @F.udf("long")
    def fails(value: int) -> int:
        raise ValueError(f"cannot take {value}")

    def broken() -> DataFrame:
        return build().withColumn("n", fails("n"))

    before = tree(Path(fork))
    with pytest.raises(QueryError, match="ValueError: cannot take") as raised:
        fork.step(broken)
    assert raised.value.__cause__ is not None
    report = fork.step(broken, epochs=3, until="error")
    assert (report.stopped, report.epoch, report.epochs) == ("error", 1, ())
    assert isinstance(report.error, QueryError)
    assert tree(Path(fork)) == before
    assert fork.step(build).epoch == 2


@pytest.mark.parametrize("late", [pytest.param(2, marks=pytest.mark.exhaustive), 3])
def test_a_step_whose_python_process_comes_too_late_is_started_again(
    build: Build, fork: Fork, tmp_path: Path, late: int
) -> None:
    """Twice; a busy machine needs longer for such a process than Spark waits. Then the step fails."""
    starts = tmp_path / "starts"
    starts.touch()

    @F.udf("long")
    def too_late(value: int) -> int:
        with starts.open("a") as opened:
            opened.write(".")
        if starts.stat().st_size <= late:
            raise RuntimeError("Python worker failed to connect back.")
        return value

    def slow() -> DataFrame:
        return build().coalesce(1).withColumn("n", too_late("n"))

    if late == 2:
        assert fork.step(slow).epoch == 2
    else:
        refused(slow, fork, QueryError, "failed to connect back")
    assert starts.stat().st_size >= 3


@pytest.mark.slow
def test_an_interrupt_stops_the_query(spark: SparkSession, build: Build, fork: Fork, tmp_path: Path) -> None:
    """The fork is unchanged, and can be stepped again."""
    running = str(tmp_path / "running")

    @F.udf("long")
    def never(value: int) -> int:
        Path(running).touch()
        while True:
            threading.Event().wait(60)

    def interrupt() -> None:
        while not Path(running).exists():
            threading.Event().wait(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    before, handler = tree(Path(fork)), signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=interrupt, daemon=True).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            fork.step(lambda: build().withColumn("n", never("n")))
    finally:
        signal.signal(signal.SIGINT, handler)
    assert fork.query_id not in active_queries(spark)
    assert tree(Path(fork)) == before
    assert fork.step(build).epoch == 2


def test_files_of_a_killed_step_are_removed(build: Build, fork: Fork, counted: tuple[Path, Path]) -> None:
    """The next step removes them."""
    shutil.copy(counted[0] / "offsets/2", Path(fork, "offsets/2"))
    (Path(fork) / "state/0/0/3_00000000-0000-0000-0000-000000000000.changelog").write_bytes(b"half")
    report = fork.step(build)
    assert (report.stopped, report.epoch) == ("done", 2)
    assert not [*Path(fork).rglob("3_00000000*")]


@pytest.fixture
def copied(counted: tuple[Path, Path], tmp_path: Path) -> Path:
    """A copy of the original that tests can damage. It shares the input files of ``counted``."""
    shutil.copytree(counted[0], tmp_path / "original")
    return tmp_path / "original"


def test_a_step_to_a_purged_epoch_is_refused(build: Build, copied: Path, tmp_path: Path) -> None:
    """The message names the remaining epochs."""
    fork = ss.Checkpoint(copied).fork(tmp_path / "fork", at=1)
    for epoch in range(3):
        (copied / f"offsets/{epoch}").unlink()
    refused(build, fork, EpochGoneError, "epochs 3 to 4 are left")


def test_a_step_to_an_uncommitted_epoch(build: Build, copied: Path, tmp_path: Path) -> None:
    """It can be run as the last epoch, and the report says that the original never committed it."""
    (copied / "commits/4").unlink()
    fork = ss.Checkpoint(copied).fork(tmp_path / "fork", at=3)
    report = fork.step(build, epochs=2)
    assert [(run.epoch, run.input) for run in report.epochs] == [(4, "planned")]
    assert report.stopped == "end"
    assert "never committed" in repr(report)


def test_missing_input_files_are_named(spark: SparkSession, tmp_path: Path) -> None:
    """The step runs once they are restored."""
    (tmp_path / "input").mkdir()
    build = counting(spark, tmp_path)
    for number in range(3):
        rows = pd.DataFrame({"k": ["a", "b"], "v": [number, 1]})
        rows.to_parquet(tmp_path / f"input/a file {number}.parquet")
        in_turn(tmp_path / f"input/a file {number}.parquet", number)
    writer = build().writeStream.format("noop").outputMode("update")
    writer.option("checkpointLocation", str(tmp_path / "original")).trigger(
        availableNow=True
    ).start().awaitTermination()
    fork = ss.Checkpoint(tmp_path / "original").fork(tmp_path / "fork", at=0)
    (tmp_path / "input/a file 1.parquet").rename(tmp_path / "away")
    refused(build, fork, NotReplayableError, "input/a file 1.parquet")
    (tmp_path / "away").rename(tmp_path / "input/a file 1.parquet")
    assert fork.step(build).epoch == 1
    assert CheckpointFiles(fork).committed() == [0, 1]
