"""The checkpoints of a pipeline's flows: a version for each full refresh, captured one after another."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import streamstate as ss
from streamstate.command_line.program import main
from streamstate.errors import NotACheckpointError
from streamstate.reports import Capture

IN_STORAGE = "_checkpoints/spark_catalog/default/seen/first"


def version(counted: Path, flow: Path, number: int, *, epochs: int = 5) -> Path:
    """A version of a flow, with epochs of the recorded query, as Spark starts it: its metadata come last."""
    target = flow / str(number)
    shutil.copytree(counted, target, ignore=shutil.ignore_patterns("metadata"))
    for operator in counted.glob("state/*/_metadata/metadata"):
        shutil.copy(operator, target / operator.relative_to(counted))
    for epoch in range(epochs, 5):
        commit(counted, target, epoch, undo=True)
    (target / "metadata").write_text(json.dumps({"id": f"version-{number}"}))
    return target


def commit(counted: Path, target: Path, epoch: int, *, undo: bool = False) -> None:
    """Commit an epoch of the recorded query, or undo it."""
    if undo:
        (target / "commits" / str(epoch)).unlink()
    else:
        shutil.copy(counted / "commits" / str(epoch), target / "commits" / str(epoch))


def wait_for_version(capture: Capture, name: str) -> None:
    """Wait until a capture has gone on with a version."""
    with capture._changed:
        assert capture._changed.wait_for(lambda: capture._status.name == name, 60)


def test_following_a_flow_goes_on_with_its_next_version(counted: tuple[Path, Path], tmp_path: Path) -> None:
    """What the old version committed last is captured first, also if too few epochs wait; each has its history."""
    flow = tmp_path / IN_STORAGE
    old = version(counted[0], flow, 0, epochs=3)
    capture = ss.Checkpoint(flow).follow(tmp_path / "store", every=2)
    assert capture.wait(epoch=1, timeout=60) >= 1
    commit(counted[0], old, 3)
    version(counted[0], flow, 1)
    wait_for_version(capture, "seen_first_v1")
    assert capture.wait(epoch=3, timeout=60) >= 3
    capture.stop()
    assert capture.checkpoint == str(flow / "1")
    store = ss.open_store(tmp_path / "store")
    assert {name: store[name].captured() for name in store} == {
        "seen_first": [0, 1, 2, 3],
        "seen_first_v1": [0, 1, 2, 3, 4],
    }


def test_following_again_captures_what_is_left_of_older_versions(counted: tuple[Path, Path], tmp_path: Path) -> None:
    """Under the given name; a version without state, or whose state is lost, does not hold up the next."""
    flow = tmp_path / IN_STORAGE
    shutil.rmtree(version(counted[0], flow, 0) / "state")
    version(counted[0], flow, 1)
    (version(counted[0], flow, 2) / "offsets" / "2").write_text("v1")
    version(counted[0], flow, 3)
    capture = ss.Checkpoint(flow).follow(tmp_path / "store", "first")
    wait_for_version(capture, "first_v3")
    assert capture.wait(timeout=60) == 4
    capture.stop()
    store = ss.open_store(tmp_path / "store")
    captured = {name: store[name].captured() for name in store}
    assert captured.pop("first_v2")[:2] == [0, 1]
    assert captured == {"first_v1": [0, 1, 2, 3, 4], "first_v3": [0, 1, 2, 3, 4]}


def test_a_folder_above_checkpoints_is_an_error_that_names_them(counted: tuple[Path, Path], tmp_path: Path) -> None:
    """That of a flow, too, for what acts on one checkpoint; an empty folder has none to name."""
    for number in (0, 1):
        version(counted[0], tmp_path / IN_STORAGE, number)
    with pytest.raises(NotACheckpointError, match=r"folder above checkpoints.\nPass one of them: first/0, first/1\."):
        ss.Checkpoint((tmp_path / IN_STORAGE).parent).doctor()
    with pytest.raises(NotACheckpointError, match=r"Pass one of them: 0, 1\."):
        ss.Checkpoint(tmp_path / IN_STORAGE).capture(tmp_path / "store")
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotACheckpointError, match="no readable 'metadata' file"):
        _ = ss.Checkpoint(tmp_path / "empty").query_id


def test_a_large_folder_is_searched_for_a_moment(tmp_path: Path) -> None:
    """Of a thousand folders some are looked at, level by level."""
    for number in range(1000):
        (tmp_path / f"{number:04}" / "deep").mkdir(parents=True)
    for number in (5, 999):
        (tmp_path / f"{number:04}" / "offsets").mkdir()
        (tmp_path / f"{number:04}" / "metadata").write_text('{"id": "1"}')
    with pytest.raises(NotACheckpointError):
        _ = ss.Checkpoint(tmp_path).query_id


def test_the_command_follows_a_flow(
    counted: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder above several flows is refused at once, with their names."""
    version(counted[0], tmp_path / IN_STORAGE, 0)
    assert main(["follow", str((tmp_path / IN_STORAGE).parent), "--store", str(tmp_path / "store")]) == 1
    assert "Pass one of them: first/0. streamstate find lists them all." in capsys.readouterr().err
