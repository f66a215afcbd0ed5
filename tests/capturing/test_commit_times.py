"""An epoch's commit time is the modification time of its commit file, unless it is implausible."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
from pathlib import Path

import pytest
from synthetic import START

import streamstate as ss
from streamstate.reports import Store
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.commit_times import CommitTimes

SECOND = dt.timedelta(seconds=1)


def planned(folder: Path, *seconds: float) -> Path:
    """A checkpoint with only the offset log and the commit log; each epoch is planned at a number of seconds."""
    for log in ("offsets", "commits"):
        (folder / log).mkdir()
    for epoch, second in enumerate(seconds):
        head = {"batchTimestampMs": round((START + second * SECOND).timestamp() * 1000), "conf": {}}
        (folder / "offsets" / str(epoch)).write_text(f"v1\n{json.dumps(head)}\n0", encoding="utf-8")
    return folder


def commit(folder: Path, epoch: int, second: float) -> None:
    """Commit an epoch at a number of seconds."""
    file = folder / "commits" / str(epoch)
    file.write_text("v1\n{}", encoding="utf-8")
    timestamp = (START + second * SECOND).timestamp()
    os.utime(file, (timestamp, timestamp))


def times(folder: Path, *, forked: bool = False) -> list[tuple[float, str | None]]:
    """The time of each committed epoch in seconds, and its source."""
    commit_times = CommitTimes(CheckpointFiles(folder), forked=forked)
    results = [commit_times.of(epoch) for epoch in CheckpointFiles(folder).committed()]
    return [((timestamp - START) / SECOND, source) for timestamp, source in results if timestamp is not None]


def test_file_times_between_the_plans_are_used(tmp_path: Path) -> None:
    """In a checkpoint that was not copied, each commit is between its epoch's plan and the next one."""
    folder = planned(tmp_path, 0, 10, 20)
    for epoch, second in enumerate((4, 20, 23)):
        commit(folder, epoch, second)
    assert times(folder) == [(4, "commit"), (20, "commit"), (23, "commit")]


def test_times_in_whole_seconds_are_accepted(tmp_path: Path) -> None:
    """Object stores truncate times to seconds, so that a commit may appear to precede its plan."""
    folder = planned(tmp_path, 0.9, 5)
    commit(folder, 0, 0)
    assert times(folder) == [(0, "commit")]


@pytest.mark.parametrize(
    "copied", [(90, 90, 90), (92, 90, 91), (90, 91, 92)], ids=["at once", "in any order", "one by one"]
)
def test_planned_times_are_used_in_a_copy(tmp_path: Path, copied: tuple[float, ...]) -> None:
    """In a copy, commit files are newer than the plans of the following epochs."""
    folder = planned(tmp_path, 0, 10, 20)
    for epoch, second in enumerate(copied):
        commit(folder, epoch, second)
    assert times(folder) == [(0, "offsets"), (10, "offsets"), (20, "offsets")]


def test_planned_times_are_used_if_files_are_older(tmp_path: Path) -> None:
    """Files that are unpacked from an archive may all have the same old time."""
    folder = planned(tmp_path, 100, 110)
    for epoch in range(2):
        commit(folder, epoch, 0)
    assert times(folder) == [(100, "offsets"), (110, "offsets")]


def test_a_query_that_continues_in_a_copy(tmp_path: Path) -> None:
    """New epochs have the times of their commit files, copied epochs those of their plans."""
    folder = planned(tmp_path, 0, 10, 100, 110)
    for epoch, second in enumerate((90, 90, 104, 113)):
        commit(folder, epoch, second)
    assert times(folder) == [(0, "offsets"), (10, "offsets"), (104, "commit"), (113, "commit")]


def test_later_epochs_do_not_change_the_time_of_an_epoch(tmp_path: Path) -> None:
    """The time is the same whether or not the epoch is the newest."""
    folder = planned(tmp_path, 0, 10, 20, 30)
    newest = []
    for epoch, second in enumerate((4, 14, 24, 34)):
        commit(folder, epoch, second)
        newest.append(times(folder)[-1])
    assert newest == times(folder) == [(4, "commit"), (14, "commit"), (24, "commit"), (34, "commit")]


def test_planned_times_of_a_fork_are_ignored(tmp_path: Path) -> None:
    """The plans of a fork's steps are copied from the original, which ran much earlier."""
    folder = planned(tmp_path, 0, 10, 20)
    for epoch, second in enumerate((90, 91, 92)):
        commit(folder, epoch, second)
    assert times(folder, forked=True) == [(90, "commit"), (91, "commit"), (92, "commit")]


def test_a_repeated_planned_time_is_ignored(tmp_path: Path) -> None:
    """A plan that is not later than the previous one is no upper bound for the previous commit."""
    folder = planned(tmp_path, 0, 0, 20)
    for epoch, second in enumerate((4, 8, 23)):
        commit(folder, epoch, second)
    assert times(folder) == [(4, "commit"), (8, "commit"), (23, "commit")]


def test_epochs_record_the_source_of_their_times(counted: tuple[Path, Path], store: Store, tmp_path: Path) -> None:
    """Epochs of a copied checkpoint have planned times, and can be found by timestamp."""
    assert set(store["counts"].epochs()["time_source"]) == {"commit"}
    copy = shutil.copytree(counted[0], tmp_path / "copy", copy_function=shutil.copyfile)
    ss.Checkpoint(copy).capture(tmp_path / "store", "copied")
    history = ss.open_store(tmp_path / "store")["copied"]
    epochs = history.epochs()
    assert set(epochs["time_source"]) == {"offsets"}
    assert epochs["committed_at"].is_monotonic_increasing
    assert epochs["committed_at"].is_unique
    assert history.at(timestamp=epochs["committed_at"].iloc[2].to_pydatetime()).epoch == 2
