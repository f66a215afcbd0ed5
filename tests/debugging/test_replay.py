"""A replay runs a range of epochs again, and compares each epoch with the original."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from stepping import counting, tree, untouched

import streamstate as ss
from streamstate.errors import EpochGoneError, ForkError, InvalidArgumentError, QueryError
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"


@pytest.mark.slow
def test_the_same_code_has_the_same_result(spark: SparkSession, counted: tuple[Path, Path], tmp_path: Path) -> None:
    """No epoch of the range differs, and the original is unchanged."""
    before = tree(counted[0])
    replay = ss.Checkpoint(counted[0]).replay(counting(spark, counted[0].parent), to=tmp_path / "again", epochs=(2, 4))
    assert [run.epoch for run in replay.steps.epochs] == [2, 3, 4]
    assert replay.same
    assert replay.comparison.first is None
    assert replay.replayed.name == "again"
    assert "No key differs" in repr(replay)
    assert "No key differs" in replay._repr_html_()
    assert untouched(before, counted[0])


def test_the_first_difference_of_changed_code(spark: SparkSession, counted: tuple[Path, Path], tmp_path: Path) -> None:
    """The comparison names the first epoch and key that differ; both histories are in the given store."""
    build = counting(spark, counted[0].parent, where="k <> 'only3'")
    replay = ss.Checkpoint(counted[0]).replay(
        build, to=tmp_path / "changed", epochs=range(2, 5), store=tmp_path / "store", name="less"
    )
    first = replay.comparison.first
    assert first is not None
    assert not replay.same
    assert (first.epoch, first.key) == (3, {"k": "only3"})
    store = ss.open_store(tmp_path / "store")
    assert sorted(store.queries()) == ["checkpoint", "less"]
    assert [(fork.name, fork.parent, fork.epoch) for fork in store["less"].forks()] == [("less", "checkpoint", 1)]


@pytest.mark.slow
def test_a_replay_from_epoch_0_starts_without_state(
    spark: SparkSession, counted: tuple[Path, Path], tmp_path: Path
) -> None:
    """It can have another number of partitions, which the first epoch fixes, with the same states."""
    build = counting(spark, counted[0].parent)
    replay = ss.Checkpoint(counted[0]).replay(build, to=tmp_path / "again", epochs=(0, 2), conf={SHUFFLE_PARTITIONS: 3})
    assert replay.same
    assert (replay.fork.epoch, replay.steps.epoch) == (-1, 2)
    assert CheckpointFiles(replay.fork).partitions(2) == 3
    assert replay.replayed.captured() == [0, 1, 2]


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"epochs": (3, 2)}, InvalidArgumentError, "Invalid epochs"),
        ({"epochs": range(0, 4, 2)}, InvalidArgumentError, "Invalid epochs"),
        ({"epochs": 3}, InvalidArgumentError, "Invalid epochs"),
        ({"epochs": "3..1"}, InvalidArgumentError, r"both ends included"),
        ({"epochs": (3, 9)}, EpochGoneError, "It has these epochs: 0 to 4"),
        ({"epochs": (2, 3), "conf": {SHUFFLE_PARTITIONS: 7}}, InvalidArgumentError, "first epoch fixed"),
        ({"epochs": (2, 3), "conf": {"spark.driver.memory": "1g"}}, InvalidArgumentError, "fixed when Spark starts"),
        ({"epochs": (0, 3), "edit": object()}, InvalidArgumentError, "no state to edit"),
        ({"epochs": (2, 3), "mode": "sideways"}, QueryError, "output mode"),
        ({"epochs": (0, 3), "mode": "sideways"}, QueryError, "output mode"),
    ],
)
def test_invalid_arguments_leave_nothing_behind(
    spark: SparkSession,
    counted: tuple[Path, Path],
    tmp_path: Path,
    arguments: dict[str, object],
    error: type[Exception],
    match: str,
) -> None:
    """No fork is left."""
    with pytest.raises(error, match=match):
        ss.Checkpoint(counted[0]).replay(counting(spark, counted[0].parent), to=tmp_path / "new", **arguments)  # type: ignore[arg-type]
    assert not (tmp_path / "new").exists()


def test_an_existing_checkpoint_is_refused(spark: SparkSession, counted: tuple[Path, Path], tmp_path: Path) -> None:
    """Its files stay unchanged."""
    (tmp_path / "new").mkdir()
    (tmp_path / "new/file").touch()
    for epochs in ((0, 1), (2, 3)):
        with pytest.raises(ForkError, match="already exists"):
            ss.Checkpoint(counted[0]).replay(counting(spark, counted[0].parent), to=tmp_path / "new", epochs=epochs)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["file"]


@pytest.mark.exhaustive
def test_a_replay_with_another_number_of_partitions(
    spark: SparkSession, counted: tuple[Path, Path], tmp_path: Path
) -> None:
    """A replay from a later epoch repartitions the state first, with the same result."""
    build = counting(spark, counted[0].parent)
    replay = ss.Checkpoint(counted[0]).replay(build, to=tmp_path / "spread", epochs=(2, 3), partitions=3)
    assert replay.same
    assert [(run.epoch, run.input) for run in replay.steps.epochs] == [(2, "original"), (3, "original")]
    assert CheckpointFiles(replay.fork).partitions(3) == 3
