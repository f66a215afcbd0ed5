"""A replay runs a range of epochs again, and is compared with the original epoch by epoch."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from stepping import counting, tree, untouched

import streamstate as ss
from streamstate.snapshots.checkpoint import Checkpoint
from streamstate.snapshots.errors import EpochGoneError, ForkError, InvalidArgumentError, QueryError

SPREAD = "spark.sql.shuffle.partitions"


def test_the_same_code_comes_out_the_same(spark: SparkSession, counted: tuple[Path, Path], tmp_path: Path) -> None:
    """At every epoch of the range; the original stays as it is."""
    before = tree(counted[0])
    replay = ss.replay(counting(spark, counted[0].parent), counted[0], tmp_path / "again", epochs=(2, 4))
    assert [one.epoch for one in replay.steps.epochs] == [2, 3, 4]
    assert replay.same
    assert replay.comparison.first is None
    assert replay.replayed.name == "again"
    assert "No key differs" in repr(replay)
    assert "No key differs" in replay._repr_html_()
    assert untouched(before, counted[0])


def test_changed_code_and_where_it_parts(spark: SparkSession, counted: tuple[Path, Path], tmp_path: Path) -> None:
    """The first epoch and key that differ; both are in the store that was given."""
    build = counting(spark, counted[0].parent, where="k <> 'only3'")
    replay = ss.replay(
        build, counted[0], tmp_path / "changed", epochs=range(2, 5), store=tmp_path / "store", name="less"
    )
    first = replay.comparison.first
    assert not replay.same
    assert (first.epoch, first.key) == (3, {"k": "only3"})
    store = ss.open_store(tmp_path / "store")
    assert sorted(store.queries()) == ["checkpoint", "less"]
    assert [(one.name, one.parent, one.epoch) for one in store["less"].forks()] == [("less", "checkpoint", 1)]


def test_from_epoch_0_on_it_begins_from_nothing(
    spark: SparkSession, counted: tuple[Path, Path], tmp_path: Path
) -> None:
    """With another number of partitions, to which the first epoch pins a query; the states are the same."""
    build = counting(spark, counted[0].parent)
    replay = ss.replay(build, counted[0], tmp_path / "again", epochs=(0, 2), conf={SPREAD: 3})
    assert replay.same
    assert (replay.fork.epoch, replay.steps.epoch) == (-1, 2)
    assert Checkpoint(replay.fork).partitions(2) == 3
    assert replay.replayed.captured() == [0, 1, 2]


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"epochs": (3, 2)}, InvalidArgumentError, "the first and the last"),
        ({"epochs": range(0, 4, 2)}, InvalidArgumentError, "counts up by one"),
        ({"epochs": 3}, InvalidArgumentError, "the first and the last"),
        ({"epochs": (3, 9)}, EpochGoneError, "those that it has: 0 to 4"),
        ({"epochs": (2, 3), "conf": {SPREAD: 7}}, InvalidArgumentError, "pinned to"),
        ({"epochs": (2, 3), "conf": {"spark.driver.memory": "1g"}}, InvalidArgumentError, "fixed when Spark starts"),
        ({"epochs": (0, 3), "edit": object()}, InvalidArgumentError, "no state to edit"),
        ({"epochs": (2, 3), "mode": "sideways"}, QueryError, "output mode"),
        ({"epochs": (0, 3), "mode": "sideways"}, QueryError, "output mode"),
    ],
)
def test_bad_input_leaves_nothing_behind(
    spark: SparkSession,
    counted: tuple[Path, Path],
    tmp_path: Path,
    arguments: dict[str, object],
    error: type[Exception],
    match: str,
) -> None:
    """No fork is there afterwards."""
    with pytest.raises(error, match=match):
        ss.replay(counting(spark, counted[0].parent), counted[0], tmp_path / "new", **arguments)  # type: ignore[arg-type]
    assert not (tmp_path / "new").exists()


def test_a_checkpoint_that_is_there(spark: SparkSession, counted: tuple[Path, Path], tmp_path: Path) -> None:
    """It is not written into."""
    (tmp_path / "new").mkdir()
    (tmp_path / "new/file").touch()
    for epochs in ((0, 1), (2, 3)):
        with pytest.raises(ForkError, match="is there already"):
            ss.replay(counting(spark, counted[0].parent), counted[0], tmp_path / "new", epochs=epochs)
    assert [one.name for one in (tmp_path / "new").iterdir()] == ["file"]


def test_over_another_number_of_partitions(spark: SparkSession, counted: tuple[Path, Path], tmp_path: Path) -> None:
    """From an epoch in the middle: the state is spread anew first, and comes out the same."""
    build = counting(spark, counted[0].parent)
    replay = ss.replay(build, counted[0], tmp_path / "spread", epochs=(2, 3), partitions=3)
    assert replay.same
    assert [(one.epoch, one.input) for one in replay.steps.epochs] == [(2, "original"), (3, "original")]
    assert Checkpoint(replay.fork).partitions(3) == 3
