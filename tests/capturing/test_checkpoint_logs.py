"""Within a pass, a checkpoint's logs are read once."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from streamstate.snapshots.checkpoint import Checkpoint


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    """A checkpoint without an epoch."""
    (tmp_path / "commits").mkdir()
    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").write_text('{"id": "query"}', encoding="utf-8")
    return Checkpoint(tmp_path)


def commit(checkpoint: Checkpoint, epoch: int, milliseconds: int = 1) -> None:
    """Plan and commit an epoch."""
    planned = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": milliseconds, "conf": {}})
    Path(checkpoint.path, "offsets", str(epoch)).write_text(f"v1\n{planned}\n0", encoding="utf-8")
    Path(checkpoint.path, "commits", str(epoch)).write_text("v1\n{}", encoding="utf-8")


def elsewhere(read: Callable[[], list[int]]) -> list[int]:
    """What another thread reads."""
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.extend(read()))
    thread.start()
    thread.join()
    return found


def test_a_log_is_read_once_within_the_block(checkpoint: Checkpoint) -> None:
    """What is new shows after it, to other threads, and when it is asked for."""
    commit(checkpoint, 0)
    with checkpoint.read_once() as read_anew:
        before = checkpoint.planned(0)
        assert checkpoint.committed() == [0]
        commit(checkpoint, 0, milliseconds=2)
        commit(checkpoint, 1)
        assert checkpoint.committed() == [0]
        assert checkpoint.planned(0) == before
        assert elsewhere(checkpoint.committed) == [0, 1]
        read_anew()
        assert checkpoint.committed() == [0, 1]
        assert checkpoint.planned(0) != before
        commit(checkpoint, 2)
    assert checkpoint.committed() == [0, 1, 2]
