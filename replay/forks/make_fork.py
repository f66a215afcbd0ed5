"""Making a fork: the checkpoint of a new query that stands exactly where another query stood at one of its epochs.

Removing the newer files of ``offsets/`` and ``commits/`` is not enough: Spark picks up the newer state files that are
still there, and the state is silently wrong. A fork therefore holds only the files that make up the state at its epoch
(:mod:`.state_files`), a log of its file sources that ends there (:mod:`.file_source_log`), one committed epoch, and its
own query id, so that it can run beside the original. SEEP calls this checkpointing and restoring operator state (Castro
Fernandez et al., SIGMOD 2013).

Spark writes a state file once, under a temporary name, renames it and never changes it again. So two checkpoints can
share it as a hard link, which takes no space and lasts as long as one of the two needs it.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from streamstate.errors import EpochGoneError, ForkError
from streamstate.replay.forks.edits import EditInput, parse_edits
from streamstate.replay.forks.rewritten_state import RewrittenState
from streamstate.replay.state_writing.state_rewriter import StateRewriter
from streamstate.snapshots.calls.checks import whole_number
from streamstate.snapshots.calls.progress_callback import ProgressCallback, long_call, report_progress
from streamstate.snapshots.capture.recording.trimming import pin_inputs
from streamstate.snapshots.checkpoint.bindings import Binding, binding_in
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.copying import bring
from streamstate.snapshots.checkpoint.filesystem import Files, files_for, inside, local_path, location, refuse_links_out
from streamstate.snapshots.checkpoint.fork_contents import (
    ForkContents,
    epoch_gone,
    is_state_file,
    state_files_at,
    store_hint,
    why_unavailable,
)
from streamstate.snapshots.checkpoint.fork_record import FORK_FILE, ForkRecord
from streamstate.snapshots.checkpoint.local_files import Volume
from streamstate.snapshots.checkpoint.source_offsets import file_batch
from streamstate.snapshots.spark.session import given_session
from streamstate.snapshots.spark.state_comparison import StateAt, state_differences
from streamstate.snapshots.spark.state_rewriting import require_state_writing

if TYPE_CHECKING:
    from streamstate.variables.shared_variable import SharedVariable

_UNFINISHED = "streamstate-fork.unfinished"
_BEFORE_FIRST_EPOCH = -1


@dataclass(eq=False)
class NewFork:
    """A checkpoint made from another one; :class:`streamstate.reports.Fork` describes its attributes."""

    path: str
    original_path: str
    epoch: int
    seconds: float
    linked_bytes: int = 0
    new_bytes: int = 0
    edited_rows: int = 0


@long_call("No fork was made.")
def fork(
    checkpoint: str | os.PathLike[str],
    new_checkpoint: str | os.PathLike[str],
    *,
    at: int | None = None,
    partitions: int | None = None,
    edit: EditInput | None = None,
    shared: Sequence[SharedVariable] = (),
    verify: str = "files",
    spark: SparkSession | None = None,
    progress: ProgressCallback | None = None,  # noqa: ARG001 (long_call takes it)
) -> NewFork:
    """Make a checkpoint that stands exactly where another one stood at one of its epochs.

    :meth:`streamstate.Checkpoint.fork` describes the arguments and errors.
    """
    # Check the arguments before starting Spark.
    if partitions is not None:
        whole_number(partitions, "partitions")
    if edit is not None:
        parse_edits(edit)
    source, target = location(os.fspath(checkpoint)), location(os.fspath(new_checkpoint))
    if verify not in ("files", "rows"):
        raise ForkError(f"Invalid verify={verify!r}: expected 'files' or 'rows'.")
    if target == source or target.startswith(f"{source}/"):
        raise ForkError(f"{target} is the original itself, or inside it.\nChoose a folder that does not exist yet.")
    remote = local_path(source) is None or local_path(target) is None
    if spark is not None or remote or verify == "rows" or partitions is not None or edit is not None:
        spark = given_session(spark)
    files = files_for(spark, source, target)
    with never_overwriting():
        builder = ForkBuilder(CheckpointFiles(source, spark), target, files, spark, partitions, edit)
        builder.shared = shared
        return builder.build(at, verify)


def fork_for_now(
    checkpoint: str, new_checkpoint: str, *, at: int, partitions: int | None, spark: SparkSession
) -> NewFork:
    """As :func:`fork`, but retention keeps no recorded input for it."""
    with never_overwriting():
        builder = ForkBuilder(
            CheckpointFiles(checkpoint, spark),
            new_checkpoint,
            files_for(spark, checkpoint, new_checkpoint),
            spark,
            partitions,
        )
        builder.stays = False
        return builder.build(at, "files")


def fork_before_first_epoch(
    checkpoint: str | os.PathLike[str], new_checkpoint: str | os.PathLike[str], spark: SparkSession
) -> NewFork:
    """Make a checkpoint without any epoch, whose first epoch will read what the original's first epoch read."""
    began = time.monotonic()
    original, target = CheckpointFiles(checkpoint, spark), location(os.fspath(new_checkpoint))
    refuse_links_out(original.path)
    parent_id, planned = original.query_id, original.planned(0)
    if planned is None:
        begun = original.begun()
        oldest = f"; its oldest is {begun[0]}" if begun else ""
        raise EpochGoneError(
            f"{original.path} no longer has what describes its epoch 0{oldest}.\nReplay from a later epoch on."
        )
    files = files_for(spark, original.path, target)
    if not files.make_folder(target):
        raise ForkError(f"{target} already exists.\nChoose a folder that does not exist yet, or delete this one first.")
    record = ForkRecord.now(original.path, parent_id, _BEFORE_FIRST_EPOCH)
    with never_overwriting():
        for log, offset in zip(planned.logs, planned.offsets, strict=True):
            # Kafka and some other sources record once where they began.
            if file_batch(offset) is None:
                files.copy_tree(inside(original.path, log), inside(target, log))
        files.write(f"{target}/{FORK_FILE}", record.text())
        files.write(f"{target}/metadata", _new_identity())
    return NewFork(target, original.path, _BEFORE_FIRST_EPOCH, time.monotonic() - began)


@dataclass
class ForkBuilder:
    """Builds one fork.

    Args:
        files: the file system of both; it never overwrites a file unless asked to.
        spark: for comparing rows, and for rewriting state.
        partitions: the number of partitions of its state; None: the original's.
    """

    original: CheckpointFiles
    target: str
    files: Files
    spark: SparkSession | None
    partitions: int | None = None
    edit: EditInput | None = None
    stays: bool = True
    """Whether retention keeps recorded input that it would read."""
    shared: Sequence[SharedVariable] = ()
    """The shared variables that it begins with."""
    home: str | None = None
    """Where it will be moved to; None: it stays."""
    _rewritten: RewrittenState | None = field(default=None, init=False)

    def build(self, at: int | None, verify: str) -> NewFork:
        """Make the fork, or leave nothing behind."""
        try:
            with self.original.read_once():
                return self._built(at, verify)
        finally:
            if self._rewritten is not None:
                self._rewritten.release()

    def _built(self, at: int | None, verify: str) -> NewFork:
        began = time.monotonic()
        parent_id = self.original.query_id
        refuse_links_out(self.original.path)
        epoch = self._epoch(at)
        planned = self.original.planned(epoch)
        if planned is not None and self.stays:
            pin_inputs(planned.offsets)
        contents = ForkContents.of(self.original, self.files, epoch)
        self._rewritten = self._planned_rewrite(epoch)
        self._claim_target()
        try:
            volume = self._fill(contents, epoch)
            if self.shared:
                self._bind(epoch)
            edits = () if self.edit is None else tuple(map(str, parse_edits(self.edit)))
            record = ForkRecord.now(self.original.path, parent_id, epoch, self.partitions, edits)
            record = replace(record, shared=tuple(variable.name for variable in self.shared))
            self.files.write(f"{self.target}/{FORK_FILE}", record.text())
            # Written last: without it, Spark does not take the folder for a checkpoint.
            self.files.write(f"{self.target}/metadata", _new_identity())
            if verify == "rows" or self._rewritten is not None:
                self._verify_rows(epoch)
            self.files.remove_tree(f"{self.target}/{_UNFINISHED}")
        except BaseException:
            self.files.remove_tree(self.target)
            raise
        seconds = time.monotonic() - began
        edited = 0 if self._rewritten is None else self._rewritten.edited_rows
        return NewFork(self.target, self.original.path, epoch, seconds, volume.linked, volume.copied, edited)

    def _bind(self, epoch: int) -> None:
        """Add the source that binds the fork's epochs to what its newest epoch has read."""
        from streamstate.variables.query_with_variables import newest_binding

        planned = self.original.planned(epoch)
        if planned is None or planned.names or binding_in(planned.offsets) is not None:
            raise ForkError(
                f"{self.original.path} can go on with shared variables as it is: its epochs are bound already, or its"
                " sources have names.\nFork it without shared=…."
            )
        newest = newest_binding(self.shared)
        self._add_source(epoch, len(planned.offsets), newest)
        # Spark reads the epoch before too, which saw no version.
        before = replace(newest, versions=dict.fromkeys(newest.versions))
        self._add_source(epoch - 1, len(planned.offsets), before)

    def _add_source(self, epoch: int, sources: int, binding: Binding) -> None:
        """Add an offset to an epoch's log, if the fork has it."""
        path = f"{self.target}/offsets/{epoch}"
        text = self.files.text(path)
        if text is None:
            return
        number = f"{sources}:" if text.startswith("v2") else ""
        self.files.write(path, f"{text.rstrip()}\n{number}{json.dumps(binding.offset())}", replace=True)
        self.files.remove(f"{self.target}/offsets/.{epoch}.crc")

    def _epoch(self, at: int | None) -> int:
        committed = self.original.committed()
        if not committed:
            raise EpochGoneError(
                f"{self.original.path} has no committed epoch to fork at.\nRun its query until it has committed one."
            )
        if at is None:
            return committed[-1]
        if at in committed and not self.original.skipped(at):
            return at
        why = why_unavailable(self.original, at)
        raise EpochGoneError(f"Epoch {at} of {self.original.path} {why}.\n{_nearest(committed, at)}{store_hint()}")

    def _planned_rewrite(self, epoch: int) -> RewrittenState | None:
        """The part of the state that Spark has to rewrite; None: nothing."""
        current = self.original.partitions(epoch)
        partitions = self.partitions or current
        if self.edit is None and partitions == current:
            return None
        if partitions is None:
            raise epoch_gone(self.original, self.files, epoch)
        assert self.spark is not None
        require_state_writing(self.spark, "A fork with other state or partitions")
        return RewrittenState.planned(StateRewriter(self.spark, self.original, epoch), partitions, self.edit)

    def _claim_target(self) -> None:
        """Create the target folder; an unfinished fork left there by a killed process is deleted first."""
        unfinished = f"{self.target}/{_UNFINISHED}"
        if self.files.names(unfinished):
            self.files.remove_tree(self.target)
        if not self.files.make_folder(self.target):
            raise ForkError(
                f"{self.target} already exists, and a fork is never written into an existing checkpoint.\n"
                "Choose a folder that does not exist yet, or delete this one first."
            )
        self.files.write(f"{unfinished}/{uuid.uuid4()}", "")

    def _fill(self, contents: ForkContents, epoch: int) -> Volume:
        """Bring over what stays as it is, and have Spark write the rest, whose rows are compared later."""
        report_progress(f"forking at epoch {epoch}: linking or copying {len(contents.linked):,} files")
        if self._rewritten is None:
            volume = self._bring(contents, epoch)
            report_progress(f"forking at epoch {epoch}: comparing {len(contents.linked):,} files")
            self._verify_files(contents, epoch)
            return volume
        early, late = self._rewritten.phases(contents)
        volume = self._bring(early, epoch)
        report_progress(f"forking at epoch {epoch}: rewriting the state")
        self._rewritten.write(self.target)
        written = Volume(copied=self._rewritten.written_bytes(self.target, self.files))
        return volume + written + self._bring(late, epoch)

    def _bring(self, contents: ForkContents, epoch: int) -> Volume:
        adapted = None if self._rewritten is None else self._rewritten.text
        return bring(contents, self.original, epoch, self.target, files=self.files, adapted=adapted, home=self.home)

    def _verify_files(self, contents: ForkContents, epoch: int) -> None:
        """Compare the fork with the original: the same files, with the same contents, make up its state."""
        found = set(filter(is_state_file, state_files_at(self.target, self.files, self.original, epoch)))
        if found != set(filter(is_state_file, contents.linked)):
            raise self._differs("other files would make up its state")
        for path in contents.linked:
            if not self.files.same(f"{self.original.path}/{path}", f"{self.target}/{path}"):
                raise self._differs(f"{path} differs")

    def _verify_rows(self, epoch: int) -> None:
        assert self.spark is not None
        report_progress(f"forking at epoch {epoch}: comparing the state row by row")
        fork = StateAt(self.target, epoch)
        if self._rewritten is None:
            differences = state_differences(self.spark, StateAt(self.original.path, epoch), fork)
        else:
            differences = self._rewritten.differences(fork)
        if differences:
            names = ", ".join(difference.table for difference in differences)
            raise self._differs(f"{names} differ")

    def _differs(self, why: str) -> ForkError:
        return ForkError(
            f"The fork of {self.original.path} differs from its original: {why}.\n"
            "It was deleted again, and the original is unchanged. Fork again, or at another epoch."
        )


@contextlib.contextmanager
def never_overwriting() -> Iterator[None]:
    """Raise a ForkError for a file that exists already."""
    try:
        yield
    except FileExistsError as error:
        raise ForkError(
            f"{error.filename} is there already, and a fork never overwrites a file.\n"
            "Is something else writing into the same folder? Fork into a folder that does not exist yet."
        ) from error


def _new_identity() -> str:
    """Return a file ``metadata`` with a query id of its own."""
    return json.dumps({"id": str(uuid.uuid4())})


def _nearest(committed: Sequence[int], at: int) -> str:
    near = sorted((epoch for epoch in committed if epoch != at), key=lambda epoch: abs(epoch - at))[:2]
    return f"It holds epochs {committed[0]} to {committed[-1]}; nearest: {', '.join(map(str, sorted(near)))}."
