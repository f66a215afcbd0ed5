"""The notebook on epochs and consistency; what it teaches it asserts itself, so running it is most of the test."""

from __future__ import annotations

from pathlib import Path

import pytest

import streamstate as ss
from notebooks.running import Shown, of, run, shows_only_its_own

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first test runs all of it


@pytest.fixture(scope="module")
def consistency_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the notebook on consistency runs."""
    return tmp_path_factory.mktemp("consistency")


@pytest.fixture(scope="module")
def consistency(consistency_folder: Path) -> Shown:
    """The notebook on consistency; what it teaches it asserts itself, so running it is most of the test."""
    return run("01_epochs_and_consistency", consistency_folder)


def test_the_torn_picture_is_torn_and_no_snapshot_is(consistency: Shown, consistency_folder: Path) -> None:
    """Two reads of Spark's newest state disagree by a file; the store, opened afresh, balances at every epoch."""
    assert of(consistency, "at_first = passed()") == "{'operator 1': 7900, 'operator 0': 10452}"
    history = ss.open_store(consistency_folder / "streamstate-data" / "consistency" / "store")["departures"]
    for epoch in history.captured():
        snapshot = history.at(epoch)
        assert snapshot.table("op1").count() == sum(snapshot.table("op0").to_arrow()["count"].to_pylist())


def test_the_epochs_that_spark_purged_are_gaps(consistency: Shown, consistency_folder: Path) -> None:
    """The notebook comes too late for epochs 6 and 7, is told so by number, and goes on with a keyframe at 8."""
    assert "Epoch 6 of departures was gone" in of(consistency, "report.gaps[0]")
    epochs = ss.open_store(consistency_folder / "streamstate-data" / "consistency" / "store")["departures"].epochs()
    assert epochs[epochs["status"] == "gap"]["epoch"].to_list() == [6, 7]
    assert epochs.set_index("epoch")["keyframes"][8] == {"op0": 8, "op1": 8}


def test_a_power_cut_leaves_one_log_ahead_and_nothing_to_see(consistency: Shown) -> None:
    """As the prose says: torn on disk after the first attempt, invisible until the third."""
    shown = of(consistency, "power_cut(after=1)").splitlines()
    numbers = {line.rsplit(maxsplit=3)[0].strip(): line.split()[-3:] for line in shown}
    assert numbers["newest snapshot"] == ["4", "4", "5"]
    assert numbers["its books differ by"] == ["0", "0", "0"]
    assert [one == "0" for one in numbers["books in the logs differ by"]] == [False, True, True]


def test_the_notebook_on_consistency_shows_nothing_but_its_own(consistency: Shown) -> None:
    """What Spark and Java print would stand between the reader and the point; nor is a path of this machine shown."""
    assert shows_only_its_own(consistency)


@pytest.mark.exhaustive
def test_the_notebook_on_consistency_runs_again_where_it_ran(consistency: Shown, consistency_folder: Path) -> None:
    """It clears away what it left, and nothing else; the second run shows what the first did."""
    left = consistency_folder / "streamstate-data" / "other"
    left.mkdir()
    again = run("01_epochs_and_consistency", consistency_folder)
    assert of(again, "power_cut(after=1)") == of(consistency, "power_cut(after=1)")
    assert left.is_dir()
