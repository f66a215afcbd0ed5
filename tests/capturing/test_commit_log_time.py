"""A follower lists the commit log only if its folder may have changed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.commit_times import CommitLogTime

LONG = 1000.0


@pytest.fixture
def commits(tmp_path: Path) -> Path:
    """The folder of a commit log that was last modified a while ago."""
    folder = tmp_path / "commits"
    folder.mkdir()
    os.utime(folder, (time.time() - 10, time.time() - 10))
    return folder


@pytest.fixture
def log(commits: Path) -> CommitLogTime:
    """Looks at the folder; nobody has looked yet."""
    return CommitLogTime(CheckpointFiles(commits.parent))


def test_a_folder_is_as_it_was_until_a_file_comes(log: CommitLogTime, commits: Path) -> None:
    """Before the first look, nothing is known."""
    assert not log.unchanged(LONG)
    log.looked()
    assert log.unchanged(LONG)
    (commits / "0").touch()
    assert not log.unchanged(LONG)


def test_a_folder_that_changed_just_now_may_change_again(log: CommitLogTime, commits: Path) -> None:
    """Its time may be the same then."""
    (commits / "0").touch()
    log.looked()
    assert not log.unchanged(LONG)


def test_the_time_is_not_trusted_for_long(log: CommitLogTime) -> None:
    """Not every file system tells it."""
    log.looked()
    assert not log.unchanged(0.0)


def test_a_log_that_has_no_folder_is_always_listed(tmp_path: Path) -> None:
    """It may come, and an object store has no folders."""
    for path in (str(tmp_path / "none"), "s3://bucket/none"):
        log = CommitLogTime(CheckpointFiles(path))
        log.looked()
        assert not log.unchanged(LONG)
