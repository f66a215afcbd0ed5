"""``checkpoints``: every checkpoint under a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

import streamstate as ss
from streamstate.errors import InvalidArgumentError


def made(folder: Path) -> Path:
    """A folder that looks like a checkpoint."""
    (folder / "offsets").mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"1"}')
    return folder


def found(root: Path) -> list[Path]:
    """The paths of the checkpoints, relative to the root."""
    return [Path(checkpoint).relative_to(root.absolute()) for checkpoint in ss.checkpoints(root)]


def test_at_any_depth_and_sorted(tmp_path: Path) -> None:
    """Also those of pipelines, and of a query inside another one's folder."""
    for name in ("b", "a", "pipeline/checkpoints/flow/0", "a/inner"):
        made(tmp_path / name)
    (tmp_path / "metadata").write_text("none of a checkpoint")
    assert found(tmp_path) == [Path(name) for name in ("a", "a/inner", "b", "pipeline/checkpoints/flow/0")]
    assert [checkpoint.name for checkpoint in ss.checkpoints(tmp_path)] == ["a", "inner", "b", "0"]


def test_the_root_itself(tmp_path: Path) -> None:
    """A checkpoint is under itself."""
    assert found(made(tmp_path)) == [Path()]


def test_state_and_tables_are_not_searched(tmp_path: Path) -> None:
    """Spark's own folders hold none, nor do Delta tables."""
    made(made(tmp_path / "query") / "state" / "0")
    made(tmp_path / "table" / "part")
    (tmp_path / "table" / "_delta_log").mkdir()
    assert found(tmp_path) == [Path("query")]


def test_links_that_lead_back_are_followed_once(tmp_path: Path) -> None:
    """A circle of links ends."""
    made(tmp_path / "real" / "query")
    (tmp_path / "real" / "back").symlink_to(tmp_path)
    assert found(tmp_path) == [Path("real/query")]


def test_a_folder_is_needed(tmp_path: Path) -> None:
    """None is found in an empty one."""
    assert ss.checkpoints(tmp_path) == []
    with pytest.raises(InvalidArgumentError, match="is not a folder"):
        ss.checkpoints(tmp_path / "none")
