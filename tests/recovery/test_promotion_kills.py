"""A promotion, or undoing one, that is killed at any step: the next call completes or reverses it."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from stepping import builder

import streamstate as ss
from recovery.promotable import SUMS, Pair
from recovery.test_rescale import tree
from streamstate.errors import CheckpointError, QueryError
from streamstate.operations.promotion import promoting, switch
from streamstate.operations.promotion.switch import REPLACED, exchanged, move, recover_promotion
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.fork_record import barrier_in
from streamstate.snapshots.checkpoint.local_files import LocalFiles

pytestmark = pytest.mark.usefixtures("uncompared")


class Killed(BaseException):
    """The process is gone: nothing that follows in it changes a file."""


class Process:
    """Counts the changes to files, and dies before, in the middle of, or after one of them."""

    def __init__(self, kill_at: int) -> None:
        self.kill_at, self.changes = kill_at, 0

    def change(self, call: Callable[[], Any], half: Callable[[], Any] | None = None) -> Any:
        """Make a change, unless the process is dead or dies now; each change has two or three moments to die at."""
        moments = 2 if half is None else 3
        first, self.changes = self.changes, self.changes + moments
        if first >= self.kill_at:
            raise Killed
        if half is not None and first + 1 == self.kill_at:
            half()
            raise Killed
        result = call()
        if self.changes - 1 >= self.kill_at:
            raise Killed
        return result


def half_removed(path: str) -> None:
    """Delete every second file of a folder."""
    for file in sorted(file for file in Path(path).rglob("*") if file.is_file())[::2]:
        file.unlink()


@contextlib.contextmanager
def dying(monkeypatch: pytest.MonkeyPatch, kill_at: int, way: str) -> Iterator[Process]:
    """Within the block, the process dies at one of the changes it makes to files."""
    process = Process(kill_at)
    original = {name: getattr(LocalFiles, name) for name in ("write", "remove", "make_folder", "copy", "remove_tree")}

    def counted(name: str) -> Callable[..., Any]:
        def call(files: LocalFiles, *arguments: Any, **options: Any) -> Any:
            if name == "remove_tree" and not Path(arguments[0]).exists():
                return None
            half = (lambda: half_removed(*arguments)) if name == "remove_tree" else None
            if name == "copy":
                pairs: list[tuple[str, str]] = list(*arguments)
                arguments = (pairs,)
                half = lambda: original["copy"](files, pairs[::2])  # noqa: E731 (as the one above)
            return process.change(lambda: original[name](files, *arguments, **options), half)

        return call

    with monkeypatch.context() as patched:
        for name in original:
            patched.setattr(LocalFiles, name, counted(name))
        patched.setattr(switch, "move", lambda *paths: process.change(lambda: move(*paths)))
        swap = (lambda *paths: process.change(lambda: exchanged(*paths))) if way == "exchange" else (lambda *_: False)
        patched.setattr(switch, "exchanged", swap)
        with contextlib.suppress(Killed):
            yield process


def is_promoted(pair: Pair) -> bool:
    """Return whether the checkpoint holds the fork's state."""
    return switch.promotion_of(str(pair.over), None) is not None


def check_whole(pair: Pair, before: dict[str, str], promoted: dict[str, str]) -> None:
    """One checkpoint owns the sink, complete: the promoted one with the old one kept, or the old one alone."""
    if is_promoted(pair):
        assert without_times(tree(pair.over)) == without_times(promoted)
        assert {name: digest for name, digest in tree(pair.kept).items() if name != REPLACED} == before
        assert (pair.kept / REPLACED).exists()
        assert pair.beside == {pair.over.name, pair.fork.name, pair.kept.name}
    else:
        assert tree(pair.over) == before
        assert pair.beside == {pair.over.name, pair.fork.name}


def without_times(files: dict[str, str]) -> dict[str, str]:
    """Files that hold the moment or the id of a promotion, or the paths of a copy, count by their name only."""
    own = ("metadata", "offsets/2", "sources/0/")
    return {name: "" if name.startswith(own) else digest for name, digest in files.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "undoing"),
    [
        ("exchange", False),
        pytest.param("exchange", True, marks=pytest.mark.exhaustive),
        pytest.param("renames", False, marks=pytest.mark.exhaustive),
        ("renames", True),
        ("in place", False),
        pytest.param("in place", True, marks=pytest.mark.exhaustive),
    ],
)
def test_killed_at_every_step(
    spark: SparkSession, made: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, undoing: bool
) -> None:
    """Until the next call, a query finds the original, the promoted checkpoint, or none that starts."""
    monkeypatch.setattr(switch, "renames_folders", lambda _: way != "in place")
    reference = made.copied(tmp_path / "reference")
    ss.Checkpoint(reference.fork).promote(over=reference.over, spark=spark)
    promoted = tree(reference.over)
    outcomes, kill_at = set(), 0
    while True:
        pair = made.copied(tmp_path / f"{kill_at}")
        before = tree(pair.over)
        if undoing:
            ss.Checkpoint(pair.fork).promote(over=pair.over, spark=spark)
        with dying(monkeypatch, kill_at, way) as process:
            if undoing:
                ss.Checkpoint(pair.over).promotion().undo(spark=spark)
            else:
                ss.Checkpoint(pair.fork).promote(over=pair.over, spark=spark)
        behind_barrier = barrier_in((pair.over / "metadata").read_text()) if way == "in place" else None
        if way != "renames" and behind_barrier is None:  # whoever starts from the path finds one of the two
            assert without_times(tree(pair.over)) in (without_times(before), without_times(promoted))
        recover_promotion(str(pair.over), spark)
        assert recover_promotion(str(pair.over), spark) is None
        check_whole(pair, before, promoted)
        outcomes.add(is_promoted(pair))
        if not is_promoted(pair):
            assert ss.Checkpoint(pair.fork).promote(over=pair.over, spark=spark).epoch == 1
        else:
            ss.Checkpoint(pair.over).promotion().undo(spark=spark)
            assert tree(pair.over) == before
        if process.changes <= kill_at:
            break
        kill_at += 1
    assert kill_at > (8 if undoing else 15)
    assert outcomes == {False, True}


def killed_before(pair: Pair, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Promote, and die just before a step of the switch; renames instead of an exchange."""

    def die(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(switch, "exchanged", lambda *_: False)
        patched.setattr(promoting, "recover_promotion", lambda *_: None)
        patched.setattr(switch.Switch, step, die)
        with pytest.raises(Killed):
            ss.Checkpoint(pair.fork).promote(over=pair.over, spark=spark)


def test_a_start_completes_what_was_interrupted(
    spark: SparkSession, pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query that starts by this library finds the promotion complete."""
    killed_before(pair, spark, monkeypatch, "keep")
    assert not pair.kept.exists()
    frame = builder(pair.run, SUMS)()
    running = ss.start(frame, "q", tmp_path / "store", checkpoint=pair.over, trigger="once")
    running.stop()
    assert pair.kept.exists()
    assert is_promoted(pair)


def test_a_process_that_still_promotes_is_waited_for(
    spark: SparkSession, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what a process left that is gone is completed or reversed."""
    killed_before(pair, spark, monkeypatch, "swap")
    journal = pair.over.with_name(f"{pair.over.name}.promotion") / "journal.json"
    text = journal.read_text()
    journal.write_text(text.replace(text.split(",")[0], '{"process": 1'))
    with pytest.raises(QueryError, match="is being promoted by process 1"):
        ss.Checkpoint(pair.fork).promote(over=pair.over, spark=spark)
    journal.write_text(text[: len(text) // 2])
    with pytest.raises(CheckpointError, match=r"cannot be read.*\nIf .* is the checkpoint that you want"):
        recover_promotion(str(pair.over), spark)
    shutil.rmtree(journal.parent / "checkpoint")
    journal.write_text("")
    assert ss.Checkpoint(pair.fork).promote(over=pair.over, spark=spark).epoch == 1


def test_a_checkpoint_made_in_between_is_an_error(
    spark: SparkSession, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If folders cannot be exchanged, a query may start from nothing between two renames; nothing is overwritten."""
    killed_before(pair, spark, monkeypatch, "swap")
    work = pair.over.with_name(f"{pair.over.name}.promotion")
    pair.over.rename(work / "aside")
    pair.over.mkdir()
    (pair.over / "metadata").write_text('{"id":"new"}')
    with pytest.raises(CheckpointError, match=r"Something created .* anew.*checkpoint is in .*aside"):
        recover_promotion(str(pair.over), spark)
    assert CheckpointFiles(work / "aside").committed() == [0, 1]


def test_an_empty_folder_of_a_promotion_is_deleted(tmp_path: Path) -> None:
    """A process that is killed at the last step leaves it; a folder with anything in it is kept."""
    checkpoint, work = tmp_path / "checkpoint", tmp_path / "checkpoint.promotion"
    work.mkdir()
    assert recover_promotion(str(checkpoint), None) is None
    assert not work.exists()
    work.mkdir()
    (work / "mine").touch()
    assert recover_promotion(str(checkpoint), None) is None
    assert (work / "mine").exists()
