"""Epochs of a repartitioned checkpoint that Spark cannot read: messages give the reason and the nearest epochs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from operators.queries import aggregated
from operators.running import Query, Run
from oracle import compare
from pyspark.sql import DataFrame, SparkSession

import streamstate as ss
from streamstate.errors import CaptureError, EpochGoneError

SUMS = aggregated("sum(v)")
KEYLESS = Query(lambda stream: stream.groupBy().count(), ("op0",))
GIVEN_UP = r"never finished, and Spark dropped it when it repartitioned the state in epoch 3"


@pytest.fixture(scope="module")
def given_up(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A query whose epoch 2 was not committed when Spark repartitioned the state in epoch 3."""
    run = Run(spark, tmp_path_factory.mktemp("given_up"))
    run.start(SUMS, epochs=range(3))
    for name in ("2", ".2.crc"):
        (run.checkpoint / "commits" / name).unlink(missing_ok=True)
    spark._streamingCheckpointManager.repartition(str(run.checkpoint), 3, False)
    return run


def test_an_abandoned_epoch_is_a_gap(spark: SparkSession, given_up: Run) -> None:
    """The epochs before and after it are captured, with the right state."""
    report = given_up.capture()
    assert (report.epochs, report.gaps) == ((0, 1, 3), (2,))
    assert compare(spark, given_up.checkpoint, given_up.history) == 3


@pytest.mark.exhaustive
@pytest.mark.slow
def test_epochs_before_an_unreadable_one_are_captured(spark: SparkSession, tmp_path: Path) -> None:
    """They are captured although one pass reads several epochs together."""
    run = Run(spark, tmp_path)
    run.start(SUMS, epochs=range(5))
    for file in (run.checkpoint / "state" / "0").glob("*/4_*"):
        file.write_bytes(b"damaged")
    with pytest.raises(CaptureError, match="cannot be read"):
        run.capture()
    assert run.history.captured() == [0, 1, 2]


def test_a_fork_at_an_abandoned_epoch_is_refused(spark: SparkSession, given_up: Run, tmp_path: Path) -> None:
    """The error says that the epoch never finished, and names the nearest ones."""
    with pytest.raises(EpochGoneError, match=rf"Epoch 2 of .* {GIVEN_UP}\.\nIt holds .* nearest: 1, 3\."):
        ss.Checkpoint(given_up.checkpoint).fork(tmp_path / "f", at=2, spark=spark)


def test_a_step_to_an_abandoned_epoch_is_refused(spark: SparkSession, given_up: Run, tmp_path: Path) -> None:
    """The error says where to fork instead. An audit of the epoch is refused too."""
    ss.Checkpoint(given_up.checkpoint).fork(tmp_path / "f", at=1, spark=spark)

    def build() -> DataFrame:
        return SUMS.build(given_up.inputs.stream(spark))

    with pytest.raises(EpochGoneError, match=rf"{GIVEN_UP}\.\nFork at epoch 3 or later"):
        ss.Checkpoint(tmp_path / "f").step(build, spark=spark)
    with pytest.raises(EpochGoneError, match=rf"cannot be replayed: 2\. Epoch 2 .* {GIVEN_UP}\.\n.*nearest: 1, 3\."):
        ss.Checkpoint(given_up.checkpoint).audit(build, epochs=(1, 2), spark=spark)


def test_a_fork_at_an_incomplete_repartitioning_is_refused(spark: SparkSession, given_up: Run, tmp_path: Path) -> None:
    """The message does not call the epoch purged."""
    copy = Path(shutil.copytree(given_up.checkpoint, tmp_path / "c"))
    for file in (copy / "state" / "0" / "0").glob("4_*.zip"):
        file.unlink()
    with pytest.raises(EpochGoneError, match=r"only repartitioned the state to 3 .* Spark cannot read it") as error:
        ss.Checkpoint(copy).fork(tmp_path / "f", at=3, spark=spark)
    assert "nearest: 1)" in str(error.value)
    assert "purged" not in str(error.value)


def test_a_fork_before_a_repartitioning_that_lost_state_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """After a repartitioning, Spark reads the state of an aggregation without a key from the wrong partition."""
    run = Run(spark, tmp_path)
    run.start(KEYLESS, epochs=range(2))
    epoch = run.history.live().epoch if run.capture().epochs else -1
    spark._streamingCheckpointManager.repartition(str(run.checkpoint), 3, False)
    reason = (
        rf"when it repartitioned the state to 3 partitions in epoch {epoch + 1}\.\nFork at .*nearest: {epoch + 1}\)"
    )
    with pytest.raises(EpochGoneError, match=reason):
        ss.Checkpoint(run.checkpoint).fork(tmp_path / "f", at=epoch, spark=spark)
