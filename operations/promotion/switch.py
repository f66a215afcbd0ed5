"""The switch: the promoted checkpoint and the old one change places, and a killed process leaves one of the two.

Beside the checkpoint, the folder ``<checkpoint>.promotion`` holds a journal, the checkpoint that is not in use, and
nothing once the switch is over. On Linux both change places in one step (``renameat2``). Elsewhere it takes three
renames, between which the checkpoint is missing for a moment; :func:`recover_promotion` completes or reverses them.
Where folders are not renamed in one step, files are copied behind a barrier (:mod:`streamstate.operations.in_place`).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import socket
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from streamstate.errors import CheckpointError, PromotionError, QueryError
from streamstate.operations.in_place import Replacement, copy_contents, renames_folders
from streamstate.replay.stepping.fork_folder import holder_in
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.filesystem import Files, files_for, local_path
from streamstate.snapshots.checkpoint.fork_record import PromotionRecord, promotion_in, record_of
from streamstate.snapshots.checkpoint.local_files import LocalFiles
from streamstate.snapshots.checkpoint.state_files import StateFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPLACED = "streamstate-replaced.json"
"""The file in the old checkpoint that says what replaced it. Spark ignores it."""
SWITCHING = threading.RLock()
"""Held by the thread that promotes, undoes or recovers."""
Kind = Literal["promote", "undo"]
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


@dataclass(frozen=True)
class Switch:
    """One switch of a checkpoint, in either direction."""

    over: str
    kind: Kind
    record: PromotionRecord
    spark: SparkSession | None

    @property
    def staged(self) -> str:
        """The path of the checkpoint to be used next, and after the switch of the replaced one."""
        return f"{_work(self.over)}/checkpoint"

    @property
    def kept(self) -> str:
        """The path of the old checkpoint after the promotion."""
        return kept_beside(self.over, self.record.epoch)

    @property
    def _files(self) -> Files:
        return files_for(self.spark, self.over)

    @property
    def is_promoted(self) -> bool:
        """True if the promoted checkpoint is in place."""
        record = promotion_of(self.over, self.spark)
        return record is not None and record.id == self.record.id

    def begin(self) -> None:
        """Write the journal."""
        journal, files = _journal(self.over), self._files
        owner = {"process": os.getpid(), "host": socket.gethostname()}
        empty = files.text(journal) == ""  # a process was killed while it wrote the file
        try:
            files.write(journal, json.dumps({**owner, "kind": self.kind, **asdict(self.record)}), replace=empty)
        except FileExistsError as error:
            raise QueryError(f"{self.over} is being promoted by another process.\nWait for it.") from error
        if local_path(self.over) is None:
            files.write(_lock(self.over), json.dumps(owner), replace=True)

    @property
    def _in_place(self) -> bool:
        """True if the checkpoint's folder stays, and its files are replaced."""
        return not renames_folders(self.over)

    @property
    def _replacement(self) -> Replacement:
        source = self.staged if self.kind == "promote" else self.kept
        return Replacement(self._files, self.over, source, frozenset({REPLACED}))

    def exchange(self, check: Callable[[str], None]) -> None:
        """Put the staged checkpoint in place of the one in use.

        Args:
            check: called with the path at which the old checkpoint is once no query can start on it; if it raises,
                everything is as before.
        """
        if self._in_place:
            copy_contents(self._files, self.over, self.kept)
            self._replacement.run(lambda: check(self.over))
            return
        self.swap()
        try:
            check(self.staged)
        except PromotionError:
            self.swap()
            raise

    def swap(self) -> None:
        """Let the staged checkpoint and the one in use change places."""
        if not exchanged(self.over, self.staged):
            for source, target in _renames(self):
                move(self._files, source, target, self.spark)

    def settle(self) -> None:
        """Reverse or complete a switch that was killed in the middle."""
        if self._in_place:
            self._replacement.settle()
            return
        files, aside = self._files, f"{_work(self.over)}/aside"
        if not exists(files, aside):
            return
        if exists(files, self.over) and exists(files, self.staged):
            raise CheckpointError(
                f"Something created {self.over} anew while its promotion was interrupted; the query's checkpoint is"
                f" in {aside}.\nStop what uses {self.over}, move that folder away, and try again."
            )
        move(files, aside, self.staged if exists(files, self.over) else self.over, self.spark)

    def keep(self) -> None:
        """Complete the promotion: keep the old checkpoint, marked as replaced."""
        if exists(self._files, self.staged) and not self._in_place:
            move(self._files, self.staged, self.kept, self.spark)
        mark = json.dumps({"by": self.over, "epoch": self.record.epoch})
        self._files.write(f"{self.kept}/{REPLACED}", mark, replace=True)
        self.close()

    def give_back(self) -> None:
        """Put the old checkpoint back in its place, and delete the promoted one, which has run nothing."""
        if self._in_place:
            self._replacement.run()
        else:
            if exists(self._files, self.kept):
                self._files.remove(f"{self.kept}/{REPLACED}")
                move(self._files, self.kept, self.staged, self.spark)
            self.swap()
        self.close()

    def close(self) -> None:
        """Delete the unused checkpoint, then the journal."""
        if self._in_place and not self.is_promoted:
            self._files.remove_tree(self.kept)
        self._files.remove_tree(self.staged)
        self._files.remove(_journal(self.over))
        self._files.remove(_lock(self.over))
        if not exists(self._files, _work(self.over)):
            self._files.remove_tree(_work(self.over))


def recover_promotion(over: str, spark: SparkSession | None) -> str | None:
    """Complete or reverse what a killed process left of a promotion, or of undoing one.

    Returns:
        What was done, as a clause; None if nothing was left.

    Raises:
        QueryError: the process that is at it still runs.
        CheckpointError: the journal is damaged, or something else created the checkpoint anew.
    """
    if files_for(spark, over).text(_journal(over)) is None:
        with SWITCHING, contextlib.suppress(OSError):
            if (work := local_path(_work(over))) is not None:
                work.rmdir()  # killed as it ended; what is not empty stays
        return None
    with SWITCHING:
        switch = _unfinished(over, spark)
        if switch is None:
            return None
        switch.settle()
        if not switch.is_promoted:
            switch.close()
            return "was reversed" if switch.kind == "promote" else "was undone"
        if switch.kind == "undo" and not has_run(over, switch.record.epoch, spark):
            switch.give_back()
            return "was undone"
        switch.keep()
        return "was completed"


def _unfinished(over: str, spark: SparkSession | None) -> Switch | None:
    text = files_for(spark, over).text(_journal(over))
    if text is None:
        return None
    if (holder := holder_in(files_for(spark, over).text(_lock(over)) or "")) is not None:
        remote = f" If that process no longer exists, delete {_lock(over)}, and try again." * (local_path(over) is None)
        raise QueryError(f"{over} is being promoted by process {holder[0]} on {holder[1]}.\nWait for it.{remote}")
    try:
        fields: dict[str, Any] = json.loads(text)
        return Switch(over, fields["kind"], record_of(fields), spark)
    except (ValueError, KeyError, TypeError) as error:
        if not text:  # killed while it was written, before anything else
            return None
        raise CheckpointError(
            f"{_journal(over)} cannot be read, so the promotion that was interrupted cannot be completed.\n"
            f"If {over} is the checkpoint that you want, move {_work(over)} away; the other one may be in it."
        ) from error


def has_run(over: str, epoch: int, spark: SparkSession | None) -> bool:
    """Check whether a checkpoint has begun an epoch after the promotion, so that its results may be in the sink.

    The promotion itself planned the next epoch. It runs once a state file of it is there.
    """
    checkpoint, files = CheckpointFiles(over, spark), files_for(spark, over)
    if checkpoint.committed()[-1:] != [epoch] or checkpoint.begun()[-1:] != [epoch + 1]:
        return True
    parsed = (StateFile.parse(path.rsplit("/", 1)[-1]) for path in files.tree(f"{over}/state"))
    return any(file is not None and file.version > epoch + 1 for file in parsed)


def promotion_of(checkpoint: str, spark: SparkSession | None) -> PromotionRecord | None:
    """Return the newest promotion of a checkpoint; None if there was none."""
    return promotion_in(files_for(spark, checkpoint).text(f"{checkpoint}/metadata"))


def check_not_replaced(checkpoint: str, spark: SparkSession | None) -> None:
    """Raise if a promoted fork has taken the place of a checkpoint, which is only kept."""
    text = files_for(spark, checkpoint).text(f"{checkpoint}/{REPLACED}")
    if text is not None:
        by = json.loads(text)
        raise PromotionError(
            f"{checkpoint} was replaced by a fork after epoch {by['epoch']}: {by['by']} goes on with its sink.\n"
            "Fork it (Checkpoint.fork), or take the promotion back: ss.Checkpoint(…).promotion().undo()."
        )


def prepare_start(checkpoint: str, spark: SparkSession | None) -> str | None:
    """Complete or reverse an interrupted promotion before a start, and refuse a replaced checkpoint.

    Returns:
        The end of the promotion, as a clause; None if none was interrupted.
    """
    done = recover_promotion(checkpoint, spark)
    check_not_replaced(checkpoint, spark)
    return done


def kept_beside(over: str, epoch: int) -> str:
    """Return the path at which a promotion keeps the old checkpoint."""
    return f"{over}.before-promotion-{epoch}"


def _work(over: str) -> str:
    return f"{over}.promotion"


def _journal(over: str) -> str:
    return f"{_work(over)}/journal.json"


def _lock(over: str) -> str:
    """Return the file that names the process at work: on the local disk the journal, where other hosts see none."""
    return _journal(over) if local_path(over) is not None else f"{_work(over)}/process.json"


def _renames(switch: Switch) -> list[tuple[str, str]]:
    aside = f"{_work(switch.over)}/aside"
    return [(switch.over, aside), (switch.staged, switch.over), (aside, switch.staged)]


def exists(files: Files, folder: str) -> bool:
    """Check that a folder exists and is not empty."""
    return bool(files.names(folder))


def move(files: Files, source: str, target: str, spark: SparkSession | None) -> None:
    """Rename a folder.

    Raises:
        PromotionError: the target exists, or the file system refuses.
    """
    if exists(files, target):
        raise PromotionError(f"{target} already exists.\nMove it away, then try again.")
    if isinstance(files, LocalFiles) or spark is None:
        Path(source).rename(target)
        return
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    paths = [jvm.org.apache.hadoop.fs.Path(path) for path in (source, target)]
    system = paths[0].getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    if not system.rename(*paths):
        raise PromotionError(f"{source} could not be renamed to {target}.\nCheck that you may write both folders.")


def exchanged(one: str, other: str) -> bool:
    """Exchange two local folders in one step; False if this system cannot, as all but Linux."""
    rename: ctypes._NamedFuncPointer | None = getattr(ctypes.CDLL(None), "renameat2", None)
    if rename is None or local_path(one) is None:
        return False
    done: int = rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    return done == 0
