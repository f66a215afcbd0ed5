"""Making a fork: the checkpoint of a new query that stands exactly where another's stood at one of its epochs.

Taking ``offsets/`` and ``commits/`` back is not enough: Spark picks up the newer state files that still lie there, and
the state is silently another one. A fork therefore has only the files that make up the state at its epoch
(:mod:`.state_files`), a log of its sources that ends there (:mod:`.source_log`), one committed epoch, and an id of its
own, so that it can run beside the original. SEEP calls this checkpointing and restoring operator state (Castro
Fernandez et al., SIGMOD 2013).
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streamstate.snapshots.checkpoint import Checkpoint
from streamstate.snapshots.errors import EpochGoneError, ForkError
from streamstate.snapshots.filesystem import local_path, location
from streamstate.snapshots.forks.changed import ChangedState, check_change
from streamstate.snapshots.forks.contents import CAPTURED, Contents, gone, is_state, state_at
from streamstate.snapshots.forks.edited_state import EDITED_ROWS
from streamstate.snapshots.forks.edits import Edits, statements
from streamstate.snapshots.forks.record import FORK_FILE, ForkRecord
from streamstate.snapshots.forks.rewriting import Rewriter
from streamstate.snapshots.forks.transfer import Transfer, Volume, transfer_between

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Fork", "fork"]

_SHOWN = 10
_UNFINISHED = "streamstate-fork.unfinished"
_SCHEMA_PATH = re.compile(r'"[^"]*?(/state/\d+/(?:\d+/)?_stateSchema/[^"]*)"')


@dataclass(frozen=True)
class Fork(os.PathLike[str]):
    """A checkpoint that was made of another; it can be given wherever a checkpoint's path can.

    Attributes:
        checkpoint: its path or URI.
        original: that of the checkpoint that it was made of.
        epoch: the last epoch that both share; the fork's next is the one after.
        query_id: its own query id.
        seconds: how long making it took.
        linked_bytes: what it shares with the original's files on the local disk.
        new_bytes: what it takes up itself.
        edited_rows: how many rows of its state were changed, added or taken away.
    """

    checkpoint: str
    original: str
    epoch: int
    query_id: str
    seconds: float = field(default=0.0, compare=False)
    linked_bytes: int = field(default=0, compare=False)
    new_bytes: int = field(default=0, compare=False)
    edited_rows: int = 0

    def __fspath__(self) -> str:
        """The checkpoint's path."""
        return self.checkpoint

    def __str__(self) -> str:
        """The checkpoint's path."""
        return self.checkpoint


def fork(
    checkpoint: str | os.PathLike[str],
    new_checkpoint: str | os.PathLike[str],
    *,
    at: int | None = None,
    partitions: int | None = None,
    edit: Edits | None = None,
    verify: str = "files",
    spark: SparkSession | None = None,
) -> Fork:
    """Make a checkpoint that stands exactly where another stood at one of its epochs; see :func:`streamstate.fork`."""
    check_change(partitions, edit)
    source, target = location(os.fspath(checkpoint)), location(os.fspath(new_checkpoint))
    if verify not in ("files", "rows"):
        raise ForkError(f"A fork cannot be verified by {verify!r}: it is 'files' or 'rows'.")
    if target == source or target.startswith(f"{source}/"):
        raise ForkError(f"{target} is the original itself, or inside it.\nName a folder that is not there yet.")
    transfer = transfer_between(source, target, spark)
    return Making(Checkpoint(source, spark), target, transfer, spark, partitions, edit).made(at, verify)


@dataclass
class Making:
    """One fork being made.

    Args:
        original: the checkpoint that it is made of.
        target: where it goes.
        transfer: brings the files over.
        spark: for comparing rows, and for writing state anew.
        partitions: over how many partitions its state is spread; None: over as many as the original's.
        edit: what is changed in its state.
    """

    original: Checkpoint
    target: str
    transfer: Transfer
    spark: SparkSession | None
    partitions: int | None = None
    edit: Edits | None = None
    _changed: ChangedState | None = field(default=None, init=False)

    def made(self, at: int | None, verify: str) -> Fork:
        """Make it, or leave nothing behind."""
        began = time.monotonic()
        parent_id = self.original.query_id
        epoch = self._epoch(at)
        plan = Contents.of(self.original, self.transfer, epoch)
        self._changed = self._planned_change(epoch)
        self._claim()
        try:
            volume = self._filled(plan, epoch)
            query_id = str(uuid.uuid4())
            edits = () if self.edit is None else tuple(map(str, statements(self.edit)))
            record = ForkRecord.now(self.original.path, parent_id, epoch, self.partitions, edits)
            self.transfer.write(f"{self.target}/{FORK_FILE}", record.text())
            # Last: before it is there, Spark takes the folder for no checkpoint.
            self.transfer.write(f"{self.target}/metadata", json.dumps({"id": query_id}))
            if verify == "rows" or self._changed is not None:
                self._verify_rows(epoch)
            self.transfer.delete(f"{self.target}/{_UNFINISHED}")
        except BaseException:
            self.transfer.delete(self.target)
            raise
        seconds = time.monotonic() - began
        edited = 0 if self._changed is None else self._changed.edited_rows
        return Fork(self.target, self.original.path, epoch, query_id, seconds, volume.linked, volume.copied, edited)

    def _epoch(self, at: int | None) -> int:
        committed = self.original.committed()
        if not committed:
            raise EpochGoneError(
                f"{self.original.path} has no committed epoch to fork at.\nRun its query until it has committed one."
            )
        if at is None:
            return committed[-1]
        if at in committed:
            return at
        why = "was never committed" if at > committed[-1] or at < 0 else "is gone: Spark has purged it"
        raise EpochGoneError(f"Epoch {at} of {self.original.path} {why}.\n{_nearest(committed, at)}{CAPTURED}")

    def _planned_change(self, epoch: int) -> ChangedState | None:
        """What of the state is to be written anew; None: nothing."""
        before = self.original.partitions(epoch)
        partitions = self.partitions or before
        if self.edit is None and partitions == before:
            return None
        if self.spark is None:
            raise ForkError("Writing a fork's state anew needs a Spark session: give spark=.")
        if partitions is None:
            raise gone(self.original, epoch)
        return ChangedState.planned(Rewriter(self.spark, self.original, epoch), partitions, self.edit)

    def _claim(self) -> None:
        """Take the target's folder; a fork that was being made there when its process died is cleared away."""
        unfinished = f"{self.target}/{_UNFINISHED}"
        if self.transfer.files.names(unfinished):
            self.transfer.delete(self.target)
        if not self.transfer.make_folder(self.target):
            raise ForkError(
                f"{self.target} is there already, and a fork never writes into what is there.\n"
                "Name a folder that is not there yet, or delete this one first."
            )
        self.transfer.write(f"{unfinished}/{uuid.uuid4()}", "")

    def _lay_out(self, plan: Contents, epoch: int) -> Volume:
        volume = Volume(copied=sum(self._copy(path) for path in plan.small))
        for path, text in plan.texts.items():
            volume += Volume(copied=self.transfer.write(f"{self.target}/{path}", text))
        for path in plan.trees:
            self.transfer.copy_tree(f"{self.original.path}/{path}", f"{self.target}/{path}")
        pairs = [(f"{self.original.path}/{path}", f"{self.target}/{path}") for path in plan.state]
        try:
            return volume + self.transfer.bring(pairs)
        except FileNotFoundError as error:
            raise gone(self.original, epoch) from error

    def _filled(self, plan: Contents, epoch: int) -> Volume:
        """Bring everything over; state that is written anew is in other files, and its rows are compared later."""
        if self._changed is not None:
            return self._written(plan, epoch, self._changed)
        volume = self._lay_out(plan, epoch)
        self._verify(plan, epoch)
        return volume

    def _written(self, plan: Contents, epoch: int, changed: ChangedState) -> Volume:
        """Bring over what is taken over, and have Spark write the rest."""
        early, late = changed.phases(plan)
        volume = self._lay_out(early, epoch)
        changed.write(self.target)
        written = Volume(copied=changed.written_bytes(self.target, self.transfer))
        return volume + written + self._lay_out(late, epoch)

    def _copy(self, path: str) -> int:
        text = self.transfer.files.text(f"{self.original.path}/{path}")
        return 0 if text is None else self.transfer.write(f"{self.target}/{path}", self._own(path, text))

    def _own(self, path: str, text: str) -> str:
        """A small file's text, with the paths of schema files, which Spark writes down in full, those of the fork."""
        if self._changed is not None:
            text = self._changed.text(path, text)
        local = local_path(self.target)
        root = self.target if local is None else f"file:{local}"
        return _SCHEMA_PATH.sub(lambda match: json.dumps(f"{root}{match[1]}"), text)

    def _verify(self, plan: Contents, epoch: int) -> None:
        """Compare the fork with the original: the same files make up its state, and each holds the same."""
        made = state_at(self.target, self.transfer, self.original, epoch)
        wanted = {path for path in plan.state if is_state(path)}
        if {path for path in made if is_state(path)} != wanted:
            raise self._another("other files would make up its state")
        for path in plan.state:
            if not self.transfer.same(f"{self.original.path}/{path}", f"{self.target}/{path}"):
                raise self._another(f"{path} differs")

    def _verify_rows(self, epoch: int) -> None:
        from streamstate.snapshots.same_state import StateAt, differing

        if self.spark is None:
            raise ForkError("Comparing a fork's rows needs a Spark session: give spark=, or verify='files'.")
        states = StateAt(self.original.path, epoch), StateAt(self.target, epoch)
        shown = 2 * EDITED_ROWS if self.edit is not None else _SHOWN
        found = differing(self.spark, *states, limit=shown)
        as_meant = not found if self._changed is None else self._changed.differs_as_meant(found)
        if not as_meant:
            names = ", ".join(one.table for one in found)
            raise self._another(f"{names} differ" if names else "it lacks what was edited")

    def _another(self, why: str) -> ForkError:
        return ForkError(
            f"The fork of {self.original.path} is not what it was forked from: {why}.\n"
            "It was taken away again, and the original is as it was. Fork again, or at another epoch."
        )


def _nearest(committed: Sequence[int], at: int) -> str:
    near = sorted(committed, key=lambda epoch: abs(epoch - at))[:2]
    return f"It holds the epochs {committed[0]} to {committed[-1]}; nearest: {', '.join(map(str, sorted(near)))}."
