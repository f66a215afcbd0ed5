"""What cannot be stepped is said before anything is written, and the fork stands where it stood."""

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
from streamstate.debugger.lock import LOCK_FILE
from streamstate.debugger.one_epoch import active_queries
from streamstate.snapshots.checkpoint import Checkpoint
from streamstate.snapshots.errors import (
    EpochGoneError,
    ForkError,
    InvalidArgumentError,
    InvalidSQLError,
    NotReplayableError,
    QueryError,
    UnknownColumnError,
)

Build = Callable[[], DataFrame]


@pytest.fixture
def fork(counted: tuple[Path, Path], tmp_path: Path) -> Iterator[ss.Fork]:
    """A fork at epoch 1 of five; the original is as it was when the test has ended."""
    before = tree(counted[0])
    yield ss.fork(counted[0], tmp_path / "fork", at=1)
    assert untouched(before, counted[0])


@pytest.fixture
def build(spark: SparkSession, counted: tuple[Path, Path]) -> Build:
    """The original's code."""
    return counting(spark, counted[0].parent)


def refused(build: Build, fork: ss.Fork, error: type[Exception], match: str, **arguments: Any) -> None:
    """A step that is refused, or fails, changes nothing of the fork."""
    before = tree(Path(fork))
    with pytest.raises(error, match=match):
        ss.step(build, fork, **arguments)
    assert tree(Path(fork)) == before
    assert not Path(fork, LOCK_FILE).exists()


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"epochs": 0}, InvalidArgumentError, "from 1 on"),
        ({"until": 7}, InvalidArgumentError, "until=7"),
        ({"until": "n >"}, InvalidSQLError, "does not parse"),
        ({"until": "missing > 1"}, UnknownColumnError, "missing"),
        ({"until": "max(count) > 1"}, InvalidSQLError, "one row at a time"),
        ({"until": {"other": 1}}, UnknownColumnError, "Key columns: op0: k"),
        ({"sink": "memory"}, InvalidArgumentError, "original's sink"),
        ({"mode": "sideways"}, QueryError, "output mode"),
    ],
)
def test_arguments_that_cannot_be_meant(
    build: Build, fork: ss.Fork, arguments: dict[str, Any], error: type[Exception], match: str
) -> None:
    """Each is found before an epoch runs, and the message says what would be right."""
    refused(build, fork, error, match, **arguments)


def test_a_sink_of_another_query(build: Build, fork: ss.Fork, tmp_path: Path) -> None:
    """A fork writes only where nobody else has written."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out/part-0.parquet").touch()
    refused(build, fork, ForkError, "may be the original's sink", sink=f"parquet:{tmp_path}/out")


def test_what_is_no_fork(build: Build, counted: tuple[Path, Path], tmp_path: Path) -> None:
    """A query that is no fork is never stepped, nor a copy of one, nor the original as its own fork."""
    with pytest.raises(ForkError, match="is no fork"):
        ss.step(build, counted[0])
    with pytest.raises(ForkError, match="the original itself"):
        ss.step(build, counted[0], original=counted[0])
    shutil.copytree(counted[0], tmp_path / "copy")
    with pytest.raises(ForkError, match="it is a copy of it"):
        ss.step(build, tmp_path / "copy", original=counted[0])


def test_a_fork_whose_query_is_running(build: Build, fork: ss.Fork) -> None:
    """Stepping it would end that query."""
    writer = build().writeStream.format("noop").outputMode("update").option("checkpointLocation", str(fork))
    query = writer.start()
    try:
        query.processAllAvailable()
        with pytest.raises(QueryError, match="is running"):
            ss.step(build, fork)
    finally:
        query.stop()


def test_a_fork_that_another_process_steps(build: Build, fork: ss.Fork) -> None:
    """The file that a living process has left is heeded; that of a dead one is not."""
    Path(fork, LOCK_FILE).write_text(f'{{"process": {os.getppid()}, "host": "{os.uname().nodename}"}}')
    with pytest.raises(QueryError, match=f"by process {os.getppid()}"):
        ss.step(build, fork)
    Path(fork, LOCK_FILE).write_text(f'{{"process": 999999999, "host": "{os.uname().nodename}"}}')
    assert ss.step(build, fork).epoch == 2


def test_other_sources(spark: SparkSession, build: Build, fork: ss.Fork) -> None:
    """The sources' number and kinds are those of the original."""
    rate = spark.readStream.format("rate")
    socket = spark.readStream.format("socket").options(host="localhost", port="1")
    refused(lambda: spark.range(3), fork, InvalidArgumentError, "does not stream")
    refused(lambda: rate.load().groupBy("value").count(), fork, ForkError, "another kind")
    refused(lambda: build().union(build()), fork, ForkError, "2 sources")
    refused(lambda: socket.load().groupBy("value").count(), fork, NotReplayableError, "a socket")


def test_files_that_would_be_taken_away(spark: SparkSession, counted: tuple[Path, Path], fork: ss.Fork) -> None:
    """They are the original's input too."""
    reader = spark.readStream.schema("k string, v long").option("cleanSource", "delete")
    refused(
        lambda: reader.parquet(str(counted[0].parent / "input")).groupBy("k").count(),
        fork,
        NotReplayableError,
        "cleanSource",
    )


def test_a_state_that_does_not_fit(
    spark: SparkSession, counted: tuple[Path, Path], build: Build, fork: ss.Fork
) -> None:
    """Spark's error is told plainly; the fork stands where it stood, and the right code goes on from there."""
    changed = counting(spark, counted[0].parent, "min(v) AS least")
    refused(changed, fork, QueryError, "does not fit")
    refused(lambda: changed().dropDuplicates(["k"]), fork, QueryError, "stands where it stood", mode="append")
    assert ss.step(build, fork).epoch == 2


def test_an_error_in_the_query(build: Build, fork: ss.Fork) -> None:
    """It is raised with its cause; with until="error" it is reported."""

    @F.udf("long")
    def fails(value: int) -> int:
        raise ValueError(f"cannot take {value}")

    def broken() -> DataFrame:
        return build().withColumn("n", fails("n"))

    before = tree(Path(fork))
    with pytest.raises(QueryError, match="ValueError: cannot take") as raised:
        ss.step(broken, fork)
    assert raised.value.__cause__ is not None
    report = ss.step(broken, fork, epochs=3, until="error")
    assert (report.stopped, report.epoch, report.epochs) == ("error", 1, ())
    assert isinstance(report.error, QueryError)
    assert tree(Path(fork)) == before
    assert ss.step(build, fork).epoch == 2


def test_an_interrupt(spark: SparkSession, build: Build, fork: ss.Fork, tmp_path: Path) -> None:
    """The query is stopped, and the fork stands at a committed epoch."""
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
            ss.step(lambda: build().withColumn("n", never("n")), fork)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert fork.query_id not in active_queries(spark)
    assert tree(Path(fork)) == before
    assert ss.step(build, fork).epoch == 2


def test_a_step_that_was_killed(build: Build, fork: ss.Fork, counted: tuple[Path, Path]) -> None:
    """What it left is taken back by the next one."""
    shutil.copy(counted[0] / "offsets/2", Path(fork, "offsets/2"))
    (Path(fork) / "state/0/0/3_00000000-0000-0000-0000-000000000000.changelog").write_bytes(b"half")
    report = ss.step(build, fork)
    assert (report.stopped, report.epoch) == ("done", 2)
    assert not [*Path(fork).rglob("3_00000000*")]


@pytest.fixture
def copied(counted: tuple[Path, Path], tmp_path: Path) -> Path:
    """An original of one's own, to be damaged: the files that it read are those of ``counted``."""
    shutil.copytree(counted[0], tmp_path / "original")
    return tmp_path / "original"


def test_an_epoch_that_is_purged(build: Build, copied: Path, tmp_path: Path) -> None:
    """The message names those that are left."""
    fork = ss.fork(copied, tmp_path / "fork", at=1)
    for epoch in range(3):
        (copied / f"offsets/{epoch}").unlink()
    refused(build, fork, EpochGoneError, "epochs 3 to 4")


def test_an_epoch_that_was_only_planned(build: Build, copied: Path, tmp_path: Path) -> None:
    """It can be stepped, and the report says that the original never committed it; after it there is none."""
    (copied / "commits/4").unlink()
    fork = ss.fork(copied, tmp_path / "fork", at=3)
    report = ss.step(build, fork, epochs=2)
    assert [(one.epoch, one.input) for one in report.epochs] == [(4, "planned")]
    assert report.stopped == "end"
    assert "never committed" in repr(report)


def test_input_that_is_gone(spark: SparkSession, tmp_path: Path) -> None:
    """The files are named; once they are back, the step runs."""
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
    fork = ss.fork(tmp_path / "original", tmp_path / "fork", at=0)
    (tmp_path / "input/a file 1.parquet").rename(tmp_path / "away")
    refused(build, fork, NotReplayableError, "input/a file 1.parquet")
    (tmp_path / "away").rename(tmp_path / "input/a file 1.parquet")
    assert ss.step(build, fork).epoch == 1
    assert Checkpoint(fork).committed() == [0, 1]
