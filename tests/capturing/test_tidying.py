"""A capture tidies its store while no epochs wait: keyframes, merging, and removing what is no longer read."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

import streamstate as ss
from streamstate.reports import Store
from streamstate.snapshots.capture import epoch_commit, table_capture
from streamstate.snapshots.capture.epoch_commit import Capturer
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.store import keyframes
from streamstate.snapshots.store.changelog import KEYFRAME
from streamstate.snapshots.store.delta import maintenance
from streamstate.snapshots.store.layout import Layout


@pytest.fixture
def capturer(counted: tuple[Path, Path], tmp_path: Path) -> Capturer:
    """A capture without Spark."""
    return Capturer(None, CheckpointFiles(counted[0]), Layout.at(tmp_path), "q")


def test_a_large_keyframe_needs_no_spark(
    capturer: Capturer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    """Executors would write it, but no session is started for it."""
    monkeypatch.setattr(keyframes, "SMALLEST_KEYFRAME", 0)
    monkeypatch.setattr(table_capture, "_DEFAULT_ROWS_IN_DRIVER", 1)
    for epoch in range(4):
        capturer.run(upto=epoch)
        capturer.tidy()
    history = ss.open_store(tmp_path)["q"]
    files = history.recorded.changelog("op0").version.files("_epoch")
    assert any(file.only_change == KEYFRAME for file in files)
    for epoch in range(4):
        assert history.at(epoch).table().to_arrow().equals(store["counts"].at(epoch).table().to_arrow())


def test_a_capture_that_follows_removes_old_files(
    capturer: Capturer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Merged files stay for their grace period; a sweep comes now and then."""
    monkeypatch.setattr(maintenance, "_MANY", 2)
    monkeypatch.setattr(maintenance.sweep, "__defaults__", (timedelta(0),))
    folder = tmp_path / "q" / "op0"
    for epoch in range(4):
        capturer.run(upto=epoch)
        capturer.tidy()
    assert len(list(folder.glob("*.parquet"))) > 1
    monkeypatch.setattr(epoch_commit, "_SWEEP_SECONDS", 0)
    capturer.tidy()
    assert len(list(folder.glob("*.parquet"))) == 1
    assert len(list((tmp_path / "q" / "_epochs").glob("*.parquet"))) == 1
    assert ss.open_store(tmp_path)["q"].captured() == [0, 1, 2, 3]
