"""``ss.rescale``: another number of partitions for a stopped query's state, verified, or taken back to the byte."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from operators.queries import JOINS, OTHERS, WINDOWS, aggregated, in_format
from operators.running import HDFS, Query, Run
from pyspark.sql import SparkSession
from sampling import sampled

import streamstate as ss
from streamstate.recovery import rescale as rescaling
from streamstate.recovery.unfinished import NOTE, Unfinished, recover
from streamstate.snapshots.checkpoint import Checkpoint
from streamstate.snapshots.errors import (
    CheckpointError,
    InvalidArgumentError,
    NoStateError,
    NotACheckpointError,
    QueryError,
    RescaleError,
    UnsupportedStateError,
)
from streamstate.snapshots.same_state import Comparison, StateAt, TableDifference, differing

SUMS = aggregated("count(v)", "sum(v)")


def tree(folder: Path) -> dict[str, str]:
    """Every file and folder and what is in it."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "/"
        for path in folder.rglob("*")
    }


@pytest.fixture(scope="module")
def stopped(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A stopped query with two partitions and two epochs; tests change copies of its checkpoint only."""
    run = Run(spark, tmp_path_factory.mktemp("stopped"))
    run.start(SUMS, epochs=range(2))
    return run


@pytest.fixture
def copy(stopped: Run, tmp_path: Path) -> Path:
    """A copy of its checkpoint."""
    return Path(shutil.copytree(stopped.checkpoint, tmp_path / "checkpoint"))


@pytest.mark.parametrize("partitions", [1, 5])
def test_in_and_out(spark: SparkSession, stopped: Run, copy: Path, partitions: int) -> None:
    """The state is the same in fewer or more partitions, one epoch later; the report says how it is spread."""
    said: list[tuple[str, float]] = []
    report = ss.rescale(copy, partitions, spark=spark, progress=lambda line, share: said.append((line, share)))
    assert (report.partitions, report.epoch) == ((2, partitions), 2)
    assert [len(report.spread_before["op0"]), len(report.spread_after["op0"])] == [2, partitions]
    assert report.rows["op0"] == sum(report.spread_before["op0"]) == sum(report.spread_after["op0"]) > 5
    assert differing(spark, StateAt(str(stopped.checkpoint), 1), StateAt(str(copy), 2), exact=True) == []
    assert not (copy / NOTE).exists()
    assert [share for _, share in said] == sorted(share for _, share in said)
    assert said[-1] == ("done", 1.0)
    assert report.seconds >= report.seconds_spreading + report.seconds_verifying > 0
    assert report.skew[1] >= 1
    assert f"2 partitions became {partitions} in epoch 2" in repr(report)
    assert "<li>op0: " in report._repr_html_()


CONTINUED: dict[str, tuple[Query, dict[str, str]]] = {
    "window": (WINDOWS["session window"], {}),
    "deduplication": (OTHERS["dropDuplicatesWithinWatermark"], {}),
    "two aggregations": (OTHERS["two aggregations"], {}),
    **{f"join, format {version}": (JOINS["full_outer"], in_format(version)) for version in (2, 3)},
}


@pytest.mark.slow  # two queries each
@pytest.mark.parametrize("name", sampled(CONTINUED, 1))
def test_the_query_goes_on(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """After more input the state equals that of the same query that was never rescaled."""
    query, settings = CONTINUED[name]
    run = Run(spark, tmp_path)
    run.start(query, settings, epochs=range(2))
    rescaled, never = run.checkpoint, tmp_path / "never"
    shutil.copytree(rescaled, never)
    ss.rescale(rescaled, 3, spark=spark)
    run.start(query, settings, epochs=range(2, 4))
    run.checkpoint = never
    run.start(query, settings, epochs=range(0))
    ends = [StateAt(str(one), Checkpoint(one).committed()[-1]) for one in (rescaled, never)]
    assert ends[0].epoch == ends[1].epoch + 1
    assert differing(spark, *ends) == []


def test_capture_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    """The epoch of the rescale is captured like any other, and changes no key."""
    run = Run(spark, tmp_path)
    run.start(SUMS, epochs=range(2))
    run.capture()
    report = ss.rescale(run.checkpoint, 4, spark=spark)
    run.start(SUMS, epochs=range(2, 3))
    run.capture()
    assert run.history.captured() == [0, 1, 2, 3]
    assert run.check() == 4
    assert run.history.diff(report.epoch - 1, report.epoch).counts == {"added": 0, "removed": 0, "changed": 0}


def broken(error: BaseException) -> Callable[..., Any]:
    """Does not even begin."""

    def raising(*_: Any) -> Any:
        raise error

    return raising


def half_done(error: BaseException) -> Callable[..., Any]:
    """Lets Spark write the new state, then takes the commit away and fails, as a lost driver does."""
    real = rescaling.repartition

    def halfway(spark: SparkSession, checkpoint: Checkpoint, before: Any, partitions: int) -> int:
        epoch = real(spark, checkpoint, before, partitions)
        for name in (f"{epoch}", f".{epoch}.crc"):
            Path(checkpoint.path, "commits", name).unlink()
        raise error

    return halfway


def different(*_: Any) -> Comparison:
    """Finds a key that was lost."""
    lost = TableDifference("op0", "1 rows are only in the one, 0 only in the other", 9, 8, 1, 0, ('{"k":"k1"}',))
    return Comparison((lost,), {}, {})


FAULTS: dict[str, tuple[str, Callable[..., Any], type[BaseException]]] = {
    "before Spark writes": ("repartition", broken(OSError("disk full")), RescaleError),
    "before the commit": ("repartition", half_done(OSError("driver lost")), RescaleError),
    "while it is verified": ("verify", broken(OSError("executor lost")), RescaleError),
    "another state": ("verify", different, RescaleError),
    "interrupted before the commit": ("repartition", half_done(KeyboardInterrupt()), KeyboardInterrupt),
    "interrupted while it is verified": ("verify", broken(KeyboardInterrupt()), KeyboardInterrupt),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_failure_leaves_every_byte(
    spark: SparkSession, copy: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Whatever fails, and whoever interrupts: the checkpoint is as it was, and can be rescaled."""
    before = tree(copy)
    step, fault, error = FAULTS[name]
    with monkeypatch.context() as patched:
        patched.setattr(rescaling, step, fault)
        with pytest.raises(error) as raised:
            ss.rescale(copy, 4, spark=spark)
    assert tree(copy) == before
    if error is RescaleError:
        assert "as it was, with 2 partitions" in str(raised.value)


def test_a_lost_key_is_named(spark: SparkSession, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of a state that is not the same names its rows."""
    monkeypatch.setattr(rescaling, "verify", different)
    with pytest.raises(RescaleError, match=r'was not the same:\nop0: 1 rows.*\n  - \{"k":"k1"\}\nAll of it was taken'):
        ss.rescale(copy, 4, spark=spark)


@pytest.mark.parametrize("step", ["repartition", "verify"])
def test_a_killed_rescale_is_taken_back_by_the_next(
    spark: SparkSession, copy: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A note stays where the process was killed; the next rescale, with any number, begins from what was before."""
    before = tree(copy)
    fault = {"repartition": half_done(OSError()), "verify": broken(OSError())}[step]
    with monkeypatch.context() as patched:
        patched.setattr(rescaling, step, fault)
        patched.setattr(rescaling, "recover", lambda *_: None)
        with pytest.raises(RescaleError):
            ss.rescale(copy, 4, spark=spark)
    assert (copy / NOTE).exists()
    left = Path(shutil.copytree(copy, copy.with_name("left")))
    found = recover(Checkpoint(left), None)
    assert found is not None
    assert (found.epoch, found.partitions, found.wanted) == (1, 2, 4)
    assert tree(left) == before
    assert recover(Checkpoint(left), None) is None
    assert ss.rescale(copy, 3, spark=spark).partitions == (2, 3)


def test_a_query_that_went_on_keeps_its_partitions(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where epochs were committed after a killed rescale, only its note goes."""
    run = Run(spark, tmp_path)
    run.start(SUMS, epochs=range(1))
    monkeypatch.setattr(Unfinished, "done", lambda *_: None)
    ss.rescale(run.checkpoint, 3, spark=spark)
    run.start(SUMS, epochs=range(1, 2))
    monkeypatch.undo()
    assert (run.checkpoint / NOTE).exists()
    assert recover(Checkpoint(run.checkpoint), None) is None
    assert not (run.checkpoint / NOTE).exists()
    assert Checkpoint(run.checkpoint).committed() == [0, 1, 2]


def test_a_note_that_cannot_be_read(copy: Path) -> None:
    """It says what the note is and what to do."""
    (copy / NOTE).write_text("{")
    with pytest.raises(CheckpointError, match=r"cannot be read.*\n.*delete the file"):
        recover(Checkpoint(copy), None)


@pytest.mark.parametrize("number", [0, -1, 2.0, True, "8"])
def test_numbers_that_cannot_be_meant(copy: Path, number: Any) -> None:
    """They are refused before Spark is asked."""
    with pytest.raises(InvalidArgumentError, match="a whole number from 1 on"):
        ss.rescale(copy, number)


def test_what_cannot_be_rescaled(spark: SparkSession, copy: Path, tmp_path: Path) -> None:
    """The number it has, what is no checkpoint, an epoch that was begun: told plainly, and nothing is written."""
    before = tree(copy)
    with pytest.raises(InvalidArgumentError, match="has 2 partitions already"):
        ss.rescale(copy, 2, spark=spark)
    with pytest.raises(NotACheckpointError):
        ss.rescale(tmp_path / "nowhere", 2, spark=spark)
    assert tree(copy) == before
    for log in ("commits", "offsets"):
        shutil.copytree(copy, tmp_path / log)
    (tmp_path / "commits" / "commits" / "1").unlink()
    with pytest.raises(CheckpointError, match=r"Epoch 1 of .* was begun and not committed.*\nStart the query once"):
        ss.rescale(tmp_path / "commits", 4, spark=spark)
    shutil.rmtree(tmp_path / "offsets" / "state")
    with pytest.raises(NoStateError):
        ss.rescale(tmp_path / "offsets", 4, spark=spark)


REFUSED = {
    "HDFS": (SUMS, HDFS, "in RocksDB only"),
    "no key": (OTHERS["global aggregation"], {}, "in one partition"),
    "limit": (OTHERS["limit"], {}, "in one partition"),
    "joins of format 4": (JOINS["self"], in_format(4), "state format 4"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_state_that_spark_cannot_spread(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """It is refused before anything is written."""
    query, settings, words = REFUSED[name]
    run = Run(spark, tmp_path)
    run.start(query, settings, epochs=range(1))
    before = tree(run.checkpoint)
    with pytest.raises(UnsupportedStateError, match=words):
        ss.rescale(run.checkpoint, 4, spark=spark)
    assert tree(run.checkpoint) == before


def test_a_running_query(spark: SparkSession, stopped: Run, copy: Path) -> None:
    """It has to be stopped first."""
    frame = SUMS.build(stopped.inputs.stream(spark))
    writer = frame.writeStream.format("noop").outputMode("update").option("checkpointLocation", str(copy))
    query = writer.start()
    try:
        with pytest.raises(QueryError, match=r"is running.*\nStop it first"):
            ss.rescale(copy, 4, spark=spark.newSession())
    finally:
        query.stop()
