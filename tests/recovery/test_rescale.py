"""``Checkpoint.rescale`` repartitions a stopped query's state and verifies every key, or restores the checkpoint."""

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
from streamstate.errors import (
    CheckpointError,
    InvalidArgumentError,
    NoStateError,
    NotACheckpointError,
    QueryError,
    RescaleError,
    UnsupportedStateError,
)
from streamstate.operations.rescaling import rescale as rescaling
from streamstate.operations.rescaling.rollback import NOTE, Unfinished, recover_rescale
from streamstate.replay.repartition import repartition
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.spark.state_comparison import StateAt, StateComparison, TableDifference, state_differences

SUMS = aggregated("count(v)", "sum(v)")


def tree(folder: Path) -> dict[str, str]:
    """All files and folders below a folder, with a digest of the files' contents."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "/"
        for path in folder.rglob("*")
    }


@pytest.fixture(scope="module")
def stopped(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A stopped query with two partitions and two epochs. Tests change copies of its checkpoint."""
    run = Run(spark, tmp_path_factory.mktemp("stopped"))
    run.start(SUMS, epochs=range(2))
    return run


@pytest.fixture
def copy(stopped: Run, tmp_path: Path) -> Path:
    """A copy of the checkpoint of ``stopped``."""
    return Path(shutil.copytree(stopped.checkpoint, tmp_path / "checkpoint"))


@pytest.mark.slow
@pytest.mark.parametrize("partitions", [1, 5])
def test_scaling_in_and_out(spark: SparkSession, stopped: Run, copy: Path, partitions: int) -> None:
    """The state is the same with fewer or more partitions, one epoch later. The report has the rows per partition."""
    steps: list[tuple[str, float]] = []
    report = ss.Checkpoint(copy).rescale(
        partitions, spark=spark, progress=lambda line, share: steps.append((line, share))
    )
    assert (report.partitions, report.epoch) == ((2, partitions), 2)
    assert [len(report.spread_before["op0"]), len(report.spread_after["op0"])] == [2, partitions]
    assert report.rows["op0"] == sum(report.spread_before["op0"]) == sum(report.spread_after["op0"]) > 5
    assert state_differences(spark, StateAt(str(stopped.checkpoint), 1), StateAt(str(copy), 2), exact=True) == []
    assert not (copy / NOTE).exists()
    assert [share for _, share in steps] == sorted(share for _, share in steps)
    assert steps[-1] == ("done", 1.0)
    assert report.seconds >= report.seconds_spreading + report.seconds_verifying > 0
    assert report.skew[1] >= 1
    assert f"from 2 to {partitions} partitions in epoch 2" in repr(report)
    assert "<li>op0: " in report._repr_html_()


CONTINUED: dict[str, tuple[Query, dict[str, str]]] = {
    "window": (WINDOWS["session window"], {}),
    "deduplication": (OTHERS["dropDuplicatesWithinWatermark"], {}),
    "two aggregations": (OTHERS["two aggregations"], {}),
    **{f"join, format {version}": (JOINS["full_outer"], in_format(version)) for version in (2, 3)},
}


@pytest.mark.exhaustive
@pytest.mark.slow  # two queries each
@pytest.mark.parametrize("name", sampled(CONTINUED, 1))
def test_the_query_continues(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """After more input, the state equals that of the same query without the rescale."""
    query, settings = CONTINUED[name]
    run = Run(spark, tmp_path)
    run.start(query, settings, epochs=range(2))
    rescaled, unchanged = run.checkpoint, tmp_path / "unchanged"
    shutil.copytree(rescaled, unchanged)
    ss.Checkpoint(rescaled).rescale(3, spark=spark)
    run.start(query, settings, epochs=range(2, 4))
    run.checkpoint = unchanged
    run.start(query, settings, epochs=range(0))
    states = [StateAt(str(path), CheckpointFiles(path).committed()[-1]) for path in (rescaled, unchanged)]
    assert states[0].epoch == states[1].epoch + 1
    assert state_differences(spark, *states) == []


@pytest.mark.exhaustive
def test_capture_continues(spark: SparkSession, tmp_path: Path) -> None:
    """The epoch of the rescale is captured, and changes no key."""
    run = Run(spark, tmp_path)
    run.start(SUMS, epochs=range(2))
    run.capture()
    report = ss.Checkpoint(run.checkpoint).rescale(4, spark=spark)
    run.start(SUMS, epochs=range(2, 3))
    run.capture()
    assert run.history.captured() == [0, 1, 2, 3]
    assert run.check() == 4
    assert run.history.diff(report.epoch - 1, report.epoch).counts == {"added": 0, "removed": 0, "changed": 0}


def broken(error: BaseException) -> Callable[..., Any]:
    """A step that raises an error immediately."""

    def raising(*_: Any) -> Any:
        raise error

    return raising


def half_done(error: BaseException) -> Callable[..., Any]:
    """A step in which Spark writes the new state, but fails before the commit."""

    def halfway(spark: SparkSession, checkpoint: CheckpointFiles, last: int, partitions: int) -> int:
        epoch = repartition(spark, checkpoint, last, partitions)
        for name in (f"{epoch}", f".{epoch}.crc"):
            Path(checkpoint.path, "commits", name).unlink()
        raise error

    return halfway


def different(*_: Any) -> StateComparison:
    """A verification that finds a lost key."""
    lost = TableDifference("op0", "1 rows are only in the one, 0 only in the other", 9, 8, 1, 0, ('{"k":"k1"}',))
    return StateComparison((lost,), {}, {})


FAULTS: dict[str, tuple[str, Callable[..., Any], type[BaseException]]] = {
    "before Spark writes": ("repartition", broken(OSError("disk full")), RescaleError),
    "before the commit": ("repartition", half_done(OSError("driver lost")), RescaleError),
    "during verification": ("compare_states", broken(OSError("executor lost")), RescaleError),
    "a different state": ("compare_states", different, RescaleError),
    "interrupted before the commit": ("repartition", half_done(KeyboardInterrupt()), KeyboardInterrupt),
    "interrupted during verification": ("compare_states", broken(KeyboardInterrupt()), KeyboardInterrupt),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_failure_leaves_the_checkpoint_unchanged(
    spark: SparkSession, copy: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Every file has its old content. The error says that the query can continue."""
    before = tree(copy)
    step, fault, error = FAULTS[name]
    with monkeypatch.context() as patched:
        patched.setattr(rescaling, step, fault)
        with pytest.raises(error) as raised:
            ss.Checkpoint(copy).rescale(4, spark=spark)
    assert tree(copy) == before
    if error is RescaleError:
        assert "query can continue from it" in str(raised.value)


def test_a_lost_key_is_named(spark: SparkSession, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the repartitioned state differs, the error names the rows."""
    monkeypatch.setattr(rescaling, "compare_states", different)
    with pytest.raises(
        RescaleError,
        match=r'different after repartitioning:\nop0: 1 rows.*\n  - \{"k":"k1"\}\nThe change was rolled back',
    ):
        ss.Checkpoint(copy).rescale(4, spark=spark)


@pytest.mark.parametrize("step", ["repartition", "compare_states"])
def test_a_killed_rescale_is_rolled_back_by_the_next(
    spark: SparkSession, copy: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A killed process leaves a record of its rescale. The next rescale restores the checkpoint first."""
    before = tree(copy)
    fault = {"repartition": half_done(OSError()), "compare_states": broken(OSError())}[step]
    with monkeypatch.context() as patched:
        patched.setattr(rescaling, step, fault)
        patched.setattr(rescaling, "recover_rescale", lambda *_: None)
        with pytest.raises(RescaleError):
            ss.Checkpoint(copy).rescale(4, spark=spark)
    assert (copy / NOTE).exists()
    killed = Path(shutil.copytree(copy, copy.with_name("killed")))
    unfinished = recover_rescale(CheckpointFiles(killed), None)
    assert unfinished is not None
    assert (unfinished.epoch, unfinished.partitions, unfinished.target) == (1, 2, 4)
    assert tree(killed) == before
    assert recover_rescale(CheckpointFiles(killed), None) is None
    assert ss.Checkpoint(copy).rescale(3, spark=spark).partitions == (2, 3)


def test_a_query_that_continued_keeps_its_partitions(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If epochs were committed after a rescale was killed, only its record is removed."""
    run = Run(spark, tmp_path)
    run.start(SUMS, epochs=range(1))
    monkeypatch.setattr(Unfinished, "done", lambda *_: None)
    ss.Checkpoint(run.checkpoint).rescale(3, spark=spark)
    run.start(SUMS, epochs=range(1, 2))
    monkeypatch.undo()
    assert (run.checkpoint / NOTE).exists()
    assert recover_rescale(CheckpointFiles(run.checkpoint), None) is None
    assert not (run.checkpoint / NOTE).exists()
    assert CheckpointFiles(run.checkpoint).committed() == [0, 1, 2]


def test_an_unreadable_record_is_an_error(copy: Path) -> None:
    """The message suggests deleting the file."""
    (copy / NOTE).write_text("{")
    with pytest.raises(CheckpointError, match=r"cannot be read.*\n.*delete the file"):
        recover_rescale(CheckpointFiles(copy), None)


@pytest.mark.parametrize("number", [0, -1, 2.0, True, "8"])
def test_an_invalid_number_of_partitions_is_refused(copy: Path, number: Any) -> None:
    """The error says that an integer of at least 1 is expected."""
    with pytest.raises(InvalidArgumentError, match=r"Invalid partitions=.*an integer of at least 1"):
        ss.Checkpoint(copy).rescale(number)


def test_an_invalid_rescale_is_refused(spark: SparkSession, copy: Path, tmp_path: Path) -> None:
    """The current number of partitions, missing checkpoints, epochs in progress and missing state are refused."""
    before = tree(copy)
    with pytest.raises(InvalidArgumentError, match="already has 2 partitions"):
        ss.Checkpoint(copy).rescale(2, spark=spark)
    with pytest.raises(NotACheckpointError):
        ss.Checkpoint(tmp_path / "nowhere").rescale(2, spark=spark)
    assert tree(copy) == before
    for log in ("commits", "offsets"):
        shutil.copytree(copy, tmp_path / log)
    (tmp_path / "commits" / "commits" / "1").unlink()
    with pytest.raises(
        CheckpointError, match=r"Epoch 1 of .* was begun but not committed.*\nStart the query with the same sink"
    ):
        ss.Checkpoint(tmp_path / "commits").rescale(4, spark=spark)
    shutil.rmtree(tmp_path / "offsets" / "state")
    with pytest.raises(NoStateError):
        ss.Checkpoint(tmp_path / "offsets").rescale(4, spark=spark)


REFUSED = {
    "HDFS": (SUMS, HDFS, "only repartition state in RocksDB"),
    "no key": (OTHERS["global aggregation"], {}, "a single partition"),
    "limit": (OTHERS["limit"], {}, "a single partition"),
    "joins of format 4": (JOINS["self"], in_format(4), "state format 4"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_state_is_refused(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """State that Spark cannot repartition is refused before anything is written."""
    query, settings, message = REFUSED[name]
    run = Run(spark, tmp_path)
    run.start(query, settings, epochs=range(1))
    before = tree(run.checkpoint)
    with pytest.raises(UnsupportedStateError, match=message):
        ss.Checkpoint(run.checkpoint).rescale(4, spark=spark)
    assert tree(run.checkpoint) == before


def test_a_running_query_is_refused(spark: SparkSession, stopped: Run, copy: Path) -> None:
    """The error says how to stop it."""
    frame = SUMS.build(stopped.inputs.stream(spark))
    writer = frame.writeStream.format("noop").outputMode("update").option("checkpointLocation", str(copy))
    query = writer.start()
    try:
        with pytest.raises(QueryError, match=r"is running.*\nStop it first"):
            ss.Checkpoint(copy).rescale(4, spark=spark.newSession())
    finally:
        query.stop()
