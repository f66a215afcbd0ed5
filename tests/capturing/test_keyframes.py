"""Keyframes come at the same epochs however a store is made, and a store with them reads as one without."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import streamstate as ss
from streamstate.errors import DamagedStoreError
from streamstate.reports import Store
from streamstate.snapshots.capture.epoch_commit import Capturer
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.store import keyframes as keyframe_files
from streamstate.snapshots.store.keyframes import keyframe_rows
from streamstate.snapshots.store.layout import Layout

EPOCHS = 5


@pytest.fixture(autouse=True)
def small_keyframes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keyframes of a few rows are worth writing."""
    monkeypatch.setattr(keyframe_files, "SMALLEST_KEYFRAME", 0)


class Growing:
    """A copy of a checkpoint whose epochs are committed when a test says so."""

    def __init__(self, checkpoint: Path, folder: Path) -> None:
        self.path = Path(shutil.copytree(checkpoint, folder / "checkpoint"))
        self._hidden = folder / "commits"
        self._hidden.mkdir()
        for commit in (self.path / "commits").iterdir():
            commit.rename(self._hidden / commit.name)

    def commit(self, epoch: int) -> None:
        """Commit the next epoch."""
        (self._hidden / str(epoch)).rename(self.path / "commits" / str(epoch))


@pytest.fixture
def growing(counted: tuple[Path, Path], tmp_path: Path) -> Growing:
    """The recorded query before its first epoch."""
    return Growing(counted[0], tmp_path)


def keyframes(store: Path) -> dict[int, int]:
    """The epochs with a keyframe in the log of the only table, and how many rows each has."""
    return keyframe_rows(ss.open_store(store)["q"].recorded.changelog("op0").version)


def named(store: Path) -> list[int | None]:
    """The keyframe from which the manifest has each epoch read."""
    return [entry.tables["op0"].keyframe for entry in ss.open_store(store)["q"].recorded.entries()]


def check_equal(store: Path, expected: Store) -> None:
    """Every epoch has the rows of a store without keyframes, whichever is read first."""
    for epoch in range(EPOCHS):
        rows = ss.open_store(store)["q"].at(epoch).table().to_arrow()
        assert rows.equals(expected["counts"].at(epoch).table().to_arrow())


def in_one_call(growing: Growing, store: Path) -> None:
    """Capture all epochs in one call, most of them in one pass."""
    for epoch in range(EPOCHS):
        growing.commit(epoch)
    assert ss.Checkpoint(growing.path).capture(store, "q").epochs == tuple(range(EPOCHS))


def in_many_calls(growing: Growing, store: Path) -> None:
    """Capture each epoch in a call of its own."""
    for epoch in range(EPOCHS):
        growing.commit(epoch)
        ss.Checkpoint(growing.path).capture(store, "q")


def by_follow(growing: Growing, store: Path) -> None:
    """Follow the query from its first epoch."""
    growing.commit(0)
    capture = ss.Checkpoint(growing.path).follow(store, "q")
    for epoch in range(1, EPOCHS):
        capture.wait(epoch - 1, 60)
        growing.commit(epoch)
    capture.wait(EPOCHS - 1, 60)
    capture.stop()
    assert capture.status.error is capture.status.tidy_error is None


@pytest.mark.parametrize("make", [in_one_call, in_many_calls, by_follow])
def test_keyframes_follow_from_the_changes_alone(
    growing: Growing, tmp_path: Path, store: Store, make: Callable[[Growing, Path], None]
) -> None:
    """Seven changes an epoch, of seven rows at first: two epochs pay for a keyframe."""
    made = tmp_path / "store"
    make(growing, made)
    assert keyframes(made) == {1: 9, 3: 11}
    assert named(made) == [None, None, 1, 1, 3]
    check_equal(made, store)


def test_the_manifest_counts_keyframes_inside_a_pass(growing: Growing, tmp_path: Path) -> None:
    """An epoch and its keyframe become visible together, so its rows need not be counted again."""
    in_one_call(growing, tmp_path / "store")
    rows = [entry.rows for entry in ss.open_store(tmp_path / "store")["q"].recorded.entries()]
    assert rows == [7, 9, None, 11, None]


class Killed(Capturer):
    """A capture that ends between the commit of its changelog and that of the manifest."""

    def _entries(self, *_: Any) -> Any:
        raise KeyboardInterrupt


def test_a_pass_that_was_killed_after_its_keyframes_is_completed(
    growing: Growing, tmp_path: Path, store: Store
) -> None:
    """The next capture takes over what the log has, and every keyframe that it names is there."""
    made = tmp_path / "store"
    growing.commit(0)
    ss.Checkpoint(growing.path).capture(made, "q")
    for epoch in range(1, EPOCHS):
        growing.commit(epoch)
    killed = Killed(None, CheckpointFiles(growing.path), Layout.at(made), "q")
    killed._epochs_a_pass = EPOCHS
    with pytest.raises(KeyboardInterrupt):
        killed.run()
    assert keyframe_rows(ss.open_store(made)["q"].recorded.changelog("op0").version).keys() >= {1, 3}
    ss.Checkpoint(growing.path).capture(made, "q")
    assert set(named(made)) - {None} <= keyframes(made).keys()
    check_equal(made, store)


def test_a_keyframe_that_cannot_be_written_holds_up_no_epoch(growing: Growing, tmp_path: Path) -> None:
    """Folding it reads the log; a damaged file there concerns the epochs in it, not those to come."""
    made = tmp_path / "store"
    capturer = Capturer(None, CheckpointFiles(growing.path), Layout.at(made), "q")
    growing.commit(0)
    capturer.run()
    [file] = (made / "q" / "op0").glob("*.parquet")
    file.write_bytes(file.read_bytes()[:-100] + bytes(100))
    for epoch in range(1, EPOCHS):
        growing.commit(epoch)
    while capturer.run().epochs:
        pass
    assert named(made) == [None] * EPOCHS
    with pytest.raises(DamagedStoreError):
        capturer.tidy()
    assert not capturer.keyframe_due


def test_a_keyframe_that_another_capture_made_unnecessary_is_not_named(
    growing: Growing, tmp_path: Path, store: Store
) -> None:
    """A slow capture finds a newer keyframe in the log, so its own is not written, and no epoch may be read from it."""
    made = tmp_path / "store"
    slow, quick = (Capturer(None, CheckpointFiles(growing.path), Layout.at(made), "q") for _ in range(2))
    for epoch in range(2):
        growing.commit(epoch)
        slow.run()
    for epoch in range(2, 4):
        growing.commit(epoch)
        quick.run()
    quick.tidy()
    slow.tidy()
    growing.commit(4)
    slow.run()
    check_equal(made, store)
