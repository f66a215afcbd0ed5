"""No store is created at, in or above a query's checkpoint: nothing is written there."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from recorded.restarts import restarts

import streamstate as ss
from streamstate.command_line import main
from streamstate.errors import NotAStoreError
from streamstate.operations.checkup import examine
from streamstate.snapshots.checkpoint.outside_checkpoints import check_outside


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recorded checkpoints."""
    return restarts(tmp_path_factory.mktemp("restarts"))


@pytest.fixture
def both(recorded: Path, tmp_path: Path) -> tuple[Path, Path]:
    """The checkpoints of two queries, in a folder of their own."""
    for name in ("one", "two"):
        shutil.copytree(recorded / "HDFS/plain", tmp_path / "checkpoints" / name)
    return tmp_path / "checkpoints/one", tmp_path / "checkpoints/two"


def everything(folder: Path) -> set[Path]:
    """All files below a folder."""
    return {*folder.rglob("*")}


PLACES: dict[str, Callable[[Path, Path], Path]] = {
    "at itself": lambda one, _two: one,
    "at another": lambda _one, two: two,
    "in itself": lambda one, _two: one / "store",
    "in its state": lambda one, _two: one / "state" / "0" / "new",
    "in another": lambda _one, two: two / "state",
    "above": lambda one, _two: one.parent,
    "far above": lambda one, _two: one.parents[1],
    "by way of ..": lambda one, two: one / ".." / two.name / "new",
}


@pytest.mark.parametrize("where", PLACES)
def test_a_store_is_not_created_there(both: tuple[Path, Path], where: str) -> None:
    """By capture, follow, doctor or shared variables, whichever checkpoint it is."""
    one, two = both
    place, before = PLACES[where](one, two), everything(one.parents[1])
    actions: list[Callable[[], object]] = [
        lambda: ss.Checkpoint(one).capture(place, "q"),
        lambda: ss.Checkpoint(one).follow(place, "q"),
        lambda: examine(one, place),
        lambda: ss.shared(place, "limit", "long"),
    ]
    for act in actions:
        with pytest.raises(NotAStoreError, match=r"checkpoint.*\nA store is a folder of its own"):
            act()
    assert everything(one.parents[1]) == before


def test_a_link_is_followed(both: tuple[Path, Path], tmp_path: Path) -> None:
    """A store by way of it would be written into the checkpoint."""
    link = tmp_path / "link"
    link.symlink_to(both[1])
    with pytest.raises(NotAStoreError, match=r"two"):
        ss.Checkpoint(both[0]).capture(link / "store", "q")


def test_a_damaged_checkpoint_is_one_too(both: tuple[Path, Path]) -> None:
    """Without its metadata, or before its first commit."""
    one, two = both
    (two / "metadata").unlink()
    with pytest.raises(NotAStoreError):
        ss.Checkpoint(one).capture(two, "q")
    (one / "new").mkdir()
    for path in ("commits", "state"):
        shutil.rmtree(one / path)
    with pytest.raises(NotAStoreError):
        check_outside(str(one / "new"))


def test_other_folders_may_hold_a_store(both: tuple[Path, Path], tmp_path: Path) -> None:
    """Beside the checkpoints, in a folder with other files, or where a store was before."""
    assert ss.Checkpoint(both[0]).capture(tmp_path / "store", "one").epochs == (0, 1, 2, 3, 4, 5)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/metadata").write_text("of something else")
    assert ss.Checkpoint(both[0]).capture(tmp_path / "other", "one").epochs == (0, 1, 2, 3, 4, 5)
    shutil.move(both[1], tmp_path / "store/checkpoints")  # as an older version allowed it
    assert ss.Checkpoint(both[0]).capture(tmp_path / "store", "one").epochs == ()
    assert ss.Checkpoint(tmp_path / "store/checkpoints").capture(tmp_path / "other", "two").epochs == (0, 1, 2, 3, 4, 5)


def test_an_export_is_not_written_there(both: tuple[Path, Path], tmp_path: Path) -> None:
    """It is a Delta table as well."""
    ss.Checkpoint(both[0]).capture(tmp_path / "store", "one")
    before = everything(both[1])
    for place in (both[1], both[1] / "exported"):
        with pytest.raises((NotAStoreError, ss.errors.NotAnExportError)):
            ss.open_store(tmp_path / "store")["one"].export(place)
    assert everything(both[1]) == before


@pytest.mark.parametrize("command", ["epochs", "fork"])
def test_two_checkpoints_are_refused(
    both: tuple[Path, Path], tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a glob of the shell gives them; the status is that of invalid arguments, and nothing is written."""
    before = everything(tmp_path)
    with pytest.raises(SystemExit, match="2"):
        main([command, *map(str, both)])
    errors = capsys.readouterr().err
    assert f"expected one checkpoint, not 2: {both[0]} {both[1]}" in " ".join(errors.split())
    assert "The store is an option: --store STORE" in " ".join(errors.split())
    assert everything(tmp_path) == before


def test_the_store_is_an_option(both: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Wherever a command acts on a checkpoint; one that acts on a store takes that first."""
    store = str(tmp_path / "store")
    assert main(["capture", str(both[0]), "--store", store, "--name", "q"]) == 0
    assert main(["doctor", "--store", store, str(both[0])]) == 0
    assert "captured up to epoch 5, 0 behind" in capsys.readouterr().out
    assert main(["export", store, "q", "--to", str(tmp_path / "out")]) == 0
    assert main(["capture", str(both[0]), "--store", str(both[1])]) == 1
    assert "A store is a folder of its own" in capsys.readouterr().err
