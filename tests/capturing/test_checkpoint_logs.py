"""A checkpoint's logs: within a pass they are read once, and a torn file is named."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from streamstate.errors import DamagedCheckpointError, NotACheckpointError
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles

TORN = (b"", b"v", b"v1", b'v1\n{"batchWater', b'v1\n{"batchWatermarkMs":0}\n{"logOff', b"\0" * 40, b"\xff\xfe")
"""What a crash while a plan is written, or a bad disk, leaves of it."""


@pytest.fixture
def checkpoint(tmp_path: Path) -> CheckpointFiles:
    """A checkpoint without an epoch."""
    (tmp_path / "commits").mkdir()
    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").write_text('{"id": "query"}', encoding="utf-8")
    return CheckpointFiles(tmp_path)


def commit(checkpoint: CheckpointFiles, epoch: int, milliseconds: int = 1) -> None:
    """Plan and commit an epoch."""
    planned = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": milliseconds, "conf": {}})
    Path(checkpoint.path, "offsets", str(epoch)).write_text(f"v1\n{planned}\n0", encoding="utf-8")
    Path(checkpoint.path, "commits", str(epoch)).write_text("v1\n{}", encoding="utf-8")


def elsewhere(read: Callable[[], list[int]]) -> list[int]:
    """Return what another thread reads."""
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.extend(read()))
    thread.start()
    thread.join()
    return found


def test_a_log_is_read_once_within_the_block(checkpoint: CheckpointFiles) -> None:
    """New entries are seen after it, by other threads, and on request."""
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


def tear(checkpoint: CheckpointFiles, name: str, content: bytes) -> None:
    """Write what is left of a file."""
    Path(checkpoint.path, name).write_bytes(content)


@pytest.mark.parametrize("content", TORN)
def test_a_torn_plan_is_named_if_its_epoch_is_committed(checkpoint: CheckpointFiles, content: bytes) -> None:
    """The error says which file it is; comparing epochs goes on without it."""
    for epoch in range(3):
        commit(checkpoint, epoch)
    tear(checkpoint, "offsets/1", content)
    with pytest.raises(DamagedCheckpointError, match=r"is damaged: .*/offsets/1 .*\n"):
        checkpoint.planned(1)
    assert checkpoint.readable_plan(1) is None
    assert not checkpoint.repartitioned(2)


@pytest.mark.parametrize("content", TORN)
def test_a_torn_plan_is_ignored_if_its_epoch_was_never_committed(checkpoint: CheckpointFiles, content: bytes) -> None:
    """The driver died while it wrote the plan, so nothing has read or written by it."""
    commit(checkpoint, 0)
    tear(checkpoint, "offsets/1", content)
    assert checkpoint.planned(1) is None
    assert not checkpoint.skipped(0)


@pytest.mark.parametrize("content", [b"", b"v", b'v1\n{"nextBatch', b"\0" * 40, b"\xff\xfe"])
def test_a_torn_commit_is_named_if_it_is_the_newest(checkpoint: CheckpointFiles, content: bytes) -> None:
    """Spark reads no other, so an older one only says nothing."""
    commit(checkpoint, 0)
    tear(checkpoint, "commits/0", content)
    for read in (checkpoint.next_watermark, checkpoint.unique_ids, checkpoint.format_version):
        with pytest.raises(DamagedCheckpointError, match=r"is damaged: .*/commits/0 "):
            read(0)
    commit(checkpoint, 1)
    assert checkpoint.next_watermark(0) is None
    assert checkpoint.unique_ids(0) == {}


@pytest.mark.parametrize("content", [None, b"", b'{"id', b"{}", b"\xff\xfe"])
def test_damaged_metadata_of_a_query_is_no_missing_checkpoint(
    checkpoint: CheckpointFiles, content: bytes | None
) -> None:
    """If a query has planned an epoch, the error names the file; otherwise there is no checkpoint."""
    metadata = Path(checkpoint.path, "metadata")
    metadata.unlink() if content is None else metadata.write_bytes(content)
    with pytest.raises(NotACheckpointError):
        _ = CheckpointFiles(checkpoint.path).query_id
    commit(checkpoint, 0)
    with pytest.raises(DamagedCheckpointError, match=r"is damaged: .*/metadata .*\n.*\"id\""):
        _ = CheckpointFiles(checkpoint.path).query_id
