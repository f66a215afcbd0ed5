"""``Running.rescale`` changes the partitions of a running query, whose capture goes on and whose handle stays."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Source, counts, letters
from oracle import compare
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from sampling import sampled

import streamstate as ss
from streamstate.errors import InvalidArgumentError, QueryError, RescaleError
from streamstate.launch import rescaling as running_rescale
from streamstate.launch.launch import Launch
from streamstate.launch.load_policy import check_policy
from streamstate.launch.rescaling import finish_epoch
from streamstate.launch.running import Running
from streamstate.operations.rescaling import rescale as rescaling
from streamstate.operations.rescaling.rollback import NOTE, Unfinished, recover_rescale
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles


@pytest.fixture
def start(spark: SparkSession, source: Source, tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Starts the query ``counts`` with two partitions and two captured epochs."""
    started: list[Running] = []

    def starting(frame: DataFrame | None = None, **options: Any) -> Running:
        for epoch in range(2):
            source.add(letters(epoch))
        checkpoint, store = tmp_path / "checkpoint", tmp_path / "store"
        query = counts(source) if frame is None else frame
        running = ss.start(query, "counts", store, checkpoint=checkpoint, partitions=2, **options)
        started.append(running)
        running.wait(epoch=1, timeout=300)
        return running

    yield starting
    for running in started:
        running.stop()


def partitions(running: Running) -> int | None:
    """The number of partitions of a query's state."""
    checkpoint = CheckpointFiles(running.checkpoint.path)
    return checkpoint.partitions(checkpoint.committed()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("supervised", [pytest.param(False, marks=pytest.mark.exhaustive), True])
def test_a_running_query_is_rescaled(
    start: Callable[..., Running], source: Source, spark: SparkSession, *, supervised: bool
) -> None:
    """The same handle and capture go on; no epoch is missing, and every captured state equals Spark's."""
    running = start(restart=ss.BackOff()) if supervised else start()
    capture = running.capture
    source.add(letters(2))
    report = running.rescale(5)
    assert report.partitions == (2, 5)
    source.add(letters(3))
    assert running.wait(epoch=report.epoch + 1, timeout=300) > report.epoch
    assert (running.state, running.capture, partitions(running)) == ("running", capture, 5)
    captured = running.history.captured()
    assert captured == [*range(captured[-1] + 1)]
    assert compare(spark, running.checkpoint.path, running.history) == len(captured)
    assert [*report.phases] == [
        "stopping",
        "checking",
        "listing files",
        "repartitioning",
        "verifying",
        "starting",
        "first epoch",
    ]
    assert report.seconds_standing is not None
    assert report.seconds_standing >= sum(report.phases.values()) - report.phases["stopping"]
    if supervised:
        assert running.supervised is not None
        assert (running.supervised.over, running.supervised.restarts) == (False, 0)


@pytest.mark.slow
def test_epochs_that_were_captured_after_the_stop_have_their_load(
    start: Callable[..., Running], source: Source
) -> None:
    """The capture was behind when the query was stopped; Spark's report on those epochs is that of the earlier run."""
    running = start()
    running.capture.pause()
    source.add(letters(2))
    assert running.query is not None
    running.query.processAllAvailable()
    report = running.rescale(5)
    source.add(letters(3))
    running.wait(epoch=report.epoch + 1, timeout=300)
    rows = running.history.load().to_pandas().set_index("epoch")["rows"]
    assert report.epoch >= 2
    assert rows.drop(report.epoch).notna().all()


@pytest.mark.slow
def test_a_query_with_a_file_sink_is_refused(start: Callable[..., Running], source: Source, tmp_path: Path) -> None:
    """The sink's log would lack the epoch of the rescale, and Spark would fail when it merges the log."""
    running = start(source.stream().dropDuplicates(["k"]), sink=f"parquet:{tmp_path / 'out'}", mode="append")
    with pytest.raises(QueryError, match="writes files with Spark's parquet sink"):
        running.rescale(5)
    assert running.launch is not None
    notes = check_policy(ss.Policy(latency="5s", partitions=(2, 4)), running.launch)
    assert "The state cannot be repartitioned: it stays at 2 partitions." in notes
    for epoch in range(2, 11):  # ten epochs, after which Spark merges the sink's log
        source.add(letters(epoch))
    assert running.wait(epoch=10, timeout=300) >= 10
    assert (running.state, partitions(running)) == ("running", 2)


def lost(*_: Any) -> int:
    """A step of a rescale that fails."""
    raise OSError("executor lost")


@pytest.mark.parametrize("step", sampled(["repartition", "compare_states"], 1))
def test_a_failure_starts_the_query_again(
    start: Callable[..., Running], source: Source, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """It has its old partitions, and is captured as before."""
    running = start()
    with monkeypatch.context() as patched:
        patched.setattr(rescaling, step, lost)
        with pytest.raises(RescaleError, match="executor lost"):
            running.rescale(5)
    source.add(letters(2))
    assert running.wait(epoch=2, timeout=300) == 2
    assert (running.state, partitions(running)) == ("running", 2)


def test_a_start_that_fails_is_rolled_back(
    start: Callable[..., Running], source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verified state is given up, because the query did not start with it."""
    running = start()
    starting = Launch.start

    def failing(launch: Launch) -> Any:
        if launch.partitions == 5:
            raise QueryError("no such topic")
        return starting(launch)

    monkeypatch.setattr(Launch, "start", failing)
    with pytest.raises(RescaleError, match="no such topic"):
        running.rescale(5)
    source.add(letters(2))
    assert running.wait(epoch=2, timeout=300) == 2
    assert (running.state, partitions(running)) == ("running", 2)


def test_what_is_refused_does_not_stop_the_query(start: Callable[..., Running]) -> None:
    """The current number, an invalid one, and a stopped query are refused."""
    running = start()
    query = running.query
    with pytest.raises(InvalidArgumentError, match="already has 2 partitions"):
        running.rescale(2)
    with pytest.raises(InvalidArgumentError, match="Invalid partitions=0"):
        running.rescale(0)
    assert running.query is query
    assert running.state == "running"
    running.stop()
    with pytest.raises(QueryError, match=r"is stopped.*\n.*Checkpoint\("):
        running.rescale(3)


@pytest.mark.slow
def test_an_interrupted_epoch_is_finished_first(
    start: Callable[..., Running], source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An epoch that takes too long to wait for is run again to its end, with its old partitions; none is missing."""
    gate = tmp_path / "gate"
    gate.touch()

    @F.udf("string")
    def waiting(key: str) -> str:
        while not gate.exists():
            time.sleep(0.01)
        return key

    running = start(source.stream().withColumn("k", waiting("k")).groupBy("k").count())
    checkpoint = CheckpointFiles(running.checkpoint.path)
    gate.unlink()
    source.add(letters(2))
    while checkpoint.begun()[-1] < 2:
        time.sleep(0.01)

    def finishing(*args: Any) -> None:
        assert checkpoint.committed()[-1] == 1
        gate.touch()
        finish_epoch(*args)

    monkeypatch.setattr(running_rescale, "_PATIENCE", 0.0)
    monkeypatch.setattr(running_rescale, "finish_epoch", finishing)
    report = running.rescale(4)
    assert report.epoch == 3
    assert running.wait(epoch=3, timeout=300) == 3
    assert running.history.captured() == [0, 1, 2, 3]


def test_an_epoch_begun_with_verified_state_keeps_it(
    start: Callable[..., Running], source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before the record is removed, the rescale is kept: the sink may have the epoch's results."""
    running = start()
    with monkeypatch.context() as patched:
        patched.setattr(Unfinished, "done", lambda *_: None)
        report = running.rescale(5)
        source.add(letters(2))
        running.wait(epoch=report.epoch + 1, timeout=300)
    running.stop()
    checkpoint = CheckpointFiles(running.checkpoint.path)
    begun = checkpoint.begun()[-1]
    assert begun > report.epoch
    for name in (str(begun), f".{begun}.crc"):
        Path(checkpoint.path, "commits", name).unlink(missing_ok=True)
    assert recover_rescale(CheckpointFiles(checkpoint.path), None) is None
    assert not Path(checkpoint.path, NOTE).exists()
    assert checkpoint.begun()[-1] == begun


_KILLED = """
    import os, sys
    from pathlib import Path
    import streamstate as ss
    from streamstate.launch import rescaling as running_rescale
    from streamstate.launch.launch import Launch
    from streamstate.operations.rescaling import rescale as rescaling

    folder, step = Path(sys.argv[1]), sys.argv[2]
    spark = ss.session()

    def killed(name, function):
        def call(*args, **kwargs):
            if name == step and moment == "before":
                os._exit(9)
            result = function(*args, **kwargs)
            if name == step:
                os._exit(9)
            return result
        return call

    moment = sys.argv[3]
    frame = spark.readStream.schema("k string, v long").parquet(str(folder / "input")).groupBy("k").sum("v")
    running = ss.start(frame, "sums", folder / "store", checkpoint=folder / "checkpoint", partitions=2)
    running.wait(epoch=0, timeout=300)
    for name in ("repartition", "compare_states"):
        setattr(rescaling, name, killed(name, getattr(rescaling, name)))
    Launch.start = killed("start", Launch.start)
    running.rescale(4)
    os._exit(0)
"""


@pytest.mark.slow  # a process with Spark for each moment
@pytest.mark.parametrize(
    ("step", "moment", "expected"),
    [
        pytest.param("repartition", "before", 2, marks=pytest.mark.exhaustive),
        ("repartition", "after", 2),
        pytest.param("compare_states", "after", 2, marks=pytest.mark.exhaustive),
        ("start", "before", 2),
    ],
)
def test_a_killed_process_is_recovered(
    spark: SparkSession, source: Source, tmp_path: Path, step: str, moment: str, expected: int
) -> None:
    """The next start restores the old partitions; the state is that of all input, and no epoch is missing."""
    source.add(letters(0))
    script = tmp_path / "killed.py"
    script.write_text(textwrap.dedent(_KILLED))
    environment = {**os.environ, "PYTHONPATH": ""}
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), step, moment], env=environment, timeout=300, check=False
    )
    assert done.returncode == 9
    assert (tmp_path / "checkpoint" / NOTE).exists()
    source.add(letters(1))
    frame = source.stream().groupBy("k").sum("v")
    running = ss.start(frame, "sums", tmp_path / "store", checkpoint=tmp_path / "checkpoint")
    try:
        running.wait(epoch=1, timeout=300)
        assert partitions(running) == expected
        assert running.history.captured() == [0, 1]
        assert compare(spark, running.checkpoint.path, running.history) == 2
    finally:
        running.stop()
