"""The notebook on epochs and consistency. It asserts what it teaches, so running it is most of the test."""

from __future__ import annotations

from pathlib import Path

import pytest

import streamstate as ss
from notebooks.running import RUNS, Shown, latest_run, output_of, run_again, shows_no_noise

pytestmark = [pytest.mark.slow, pytest.mark.notebook, pytest.mark.timeout(5400)]  # may run all of it


@pytest.fixture(scope="module")
def consistency() -> Shown:
    """The outputs of the notebook on consistency."""
    return latest_run("01_epochs_and_consistency")


@pytest.fixture(scope="module")
def consistency_folder(consistency: Shown) -> Path:
    """The folder in which the notebook on consistency ran."""
    return RUNS / "01_epochs_and_consistency"


def test_reads_of_the_newest_state_are_torn_and_snapshots_are_not(consistency: Shown, consistency_folder: Path) -> None:
    """Two reads of Spark's newest state disagree by a file; the reopened store balances at every epoch."""
    assert output_of(consistency, "at_first = passed()") == "{'operator 1': 7900, 'operator 0': 10452}"
    history = ss.open_store(consistency_folder / "streamstate-data" / "consistency" / "store")["departures"]
    for epoch in history.captured():
        snapshot = history.at(epoch)
        assert snapshot.table("op1").count() == sum(snapshot.table("op0").to_arrow()["count"].to_pylist())


def test_the_epochs_that_spark_purged_are_gaps(consistency: Shown, consistency_folder: Path) -> None:
    """Capture starts too late for epochs 6 and 7, reports them by number, and continues with a keyframe at 8."""
    assert "Epoch 6 of departures was gone" in output_of(consistency, "report.gaps[0]")
    epochs = ss.open_store(consistency_folder / "streamstate-data" / "consistency" / "store")["departures"].epochs()
    assert epochs[epochs["status"] == "gap"]["epoch"].to_list() == [6, 7]
    assert epochs.set_index("epoch")["keyframes"][8] == {"op0": 8, "op1": 8}


def test_a_power_cut_leaves_one_log_ahead_and_nothing_visible(consistency: Shown) -> None:
    """As the text says: torn on disk after the first attempt, invisible until the third."""
    shown = output_of(consistency, "power_cut(after=1)").splitlines()
    numbers = {line.rsplit(maxsplit=3)[0].strip(): line.split()[-3:] for line in shown}
    assert numbers["newest snapshot"] == ["4", "4", "5"]
    assert numbers["its books differ by"] == ["0", "0", "0"]
    assert [number == "0" for number in numbers["books in the logs differ by"]] == [False, True, True]


def test_the_notebook_on_consistency_waits_for_its_reader(consistency: Shown) -> None:
    """Predictions and the reader's own checks are not answered yet, and nothing is revealed."""
    said = [text for source, text in consistency if "P01." in source and "P01.progress" not in source]
    assert {text.split()[0] for text in said} == {"…"}
    assert len(said) == 6


def test_the_notebook_on_consistency_shows_no_noise(consistency: Shown) -> None:
    """There is no output of Spark or Java, and no local path."""
    assert shows_no_noise(consistency)


@pytest.mark.exhaustive
def test_the_notebook_on_consistency_can_run_again_in_its_folder(consistency: Shown, consistency_folder: Path) -> None:
    """It removes only what it created; the second run shows the same as the first."""
    left = consistency_folder / "streamstate-data" / "other"
    left.mkdir(exist_ok=True)
    again = run_again("01_epochs_and_consistency", consistency_folder)
    assert output_of(again, "power_cut(after=1)") == output_of(consistency, "power_cut(after=1)")
    assert left.is_dir()
