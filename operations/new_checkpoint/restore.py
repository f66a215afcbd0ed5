"""Restoring: a checkpoint that can run, from an epoch that the store has.

SEEP restores an operator from backed-up state by the same means by which it scales it out (Castro Fernandez et al.,
"Integrating Scale Out and Fault Tolerance in Stream Processing using Operator State Management", SIGMOD 2013).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from streamstate.errors import (
    CheckpointReplacedError,
    EpochGoneError,
    InvalidArgumentError,
    NotACheckpointError,
    UnsupportedStateError,
    choices,
    worded,
)
from streamstate.operations.new_checkpoint.captured_epoch import CapturedEpoch
from streamstate.operations.new_checkpoint.log_texts import EpochLog, Offset
from streamstate.operations.new_checkpoint.restore_by_code import restore_by_code
from streamstate.operations.new_checkpoint.target import TargetQuery
from streamstate.operations.new_checkpoint.writer import NewCheckpoint, making
from streamstate.operations.new_checkpoint.written_checkpoint import WrittenCheckpoint
from streamstate.snapshots.calls.checks import BuildQuery
from streamstate.snapshots.calls.progress_callback import ProgressCallback, long_call, silent
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.copying import bring
from streamstate.snapshots.checkpoint.filesystem import Files, files_for, location, refuse_links_out
from streamstate.snapshots.checkpoint.fork_contents import ForkContents
from streamstate.snapshots.checkpoint.fork_record import FORK_FILE, ForkRecord
from streamstate.snapshots.checkpoint.logs import PlannedEpoch
from streamstate.snapshots.spark.session import given_session
from streamstate.snapshots.spark.state_rewriting import require_state_writing
from streamstate.state_inspect import History, Snapshot


@long_call("No checkpoint was made.")
def restore(
    snapshot: Snapshot | History,
    to: str | Path,
    build_query: BuildQuery | None = None,
    *,
    checkpoint: str | Path | None = None,
    offsets: Sequence[Offset] | None = None,
    mode: str = "update",
    spark: SparkSession | None = None,
    progress: ProgressCallback | None = None,
) -> WrittenCheckpoint:
    """Make a checkpoint that can run from a captured epoch, even if Spark has purged it or its state is damaged.

    :meth:`streamstate.Snapshot.restore` describes the arguments and errors.
    """
    began = time.monotonic()
    taken = snapshot.live() if isinstance(snapshot, History) else snapshot
    report, target = progress or silent, location(os.fspath(to))
    branch = taken.history.recorded.lineage.branch(taken.query)
    assert branch is not None
    place = branch.checkpoint if checkpoint is None else os.fspath(checkpoint)
    record = ForkRecord.now(location(place), branch.query_id, taken.epoch)
    if build_query is not None and checkpoint is not None:
        raise InvalidArgumentError(
            "Pass the query's checkpoint or build_query, not both: with the code it is not read."
        )
    if build_query is not None:
        query = TargetQuery.of(build_query, mode)
        require_state_writing(query.spark, "Restoring a checkpoint")
        files = files_for(query.spark, target)
        with making(query.spark, files, target) as folder:
            counts = restore_by_code(
                query, CapturedEpoch(taken), offsets, record, folder=folder, files=files, report=report
            )
    else:
        if offsets is not None:
            needs = worded("offsets needs build_query", command="--files needs --code")
            raise InvalidArgumentError(f"{needs}: without the query's code, its checkpoint says which files were read.")
        spark = given_session(spark)
        require_state_writing(spark, "Restoring a checkpoint")
        original = _original(record, taken, spark)
        files = files_for(spark, original.path, target)
        with making(spark, files, target) as folder:
            report(f"reading what describes the query in {original.path}", 0.0)
            captured = CapturedEpoch(taken)
            new = NewCheckpoint(spark, files, folder, taken.epoch, _describe(original, record, captured, folder, files))
            _check_tables(new, captured)
            report("writing the state", 0.1)
            counts = new.write({name: captured.rows(name, new.session) for name in new.tables})
    report("done", 1.0)
    return WrittenCheckpoint(target, taken.epoch, counts, time.monotonic() - began)


def _original(record: ForkRecord, snapshot: Snapshot, spark: SparkSession) -> CheckpointFiles:
    """Return the query's checkpoint.

    Raises:
        NotACheckpointError, CheckpointReplacedError: it no longer exists.
    """
    original = CheckpointFiles(record.parent, spark)
    hint = f"If it is gone, {_with_the_code()}."
    try:
        same = original.query_id == record.parent_id
    except NotACheckpointError as error:
        raise NotACheckpointError(
            f"{original.path} holds no checkpoint any more, and {snapshot.query} had it there.\n{hint}"
        ) from error
    if not same:
        raise CheckpointReplacedError(
            f"{original.path} no longer holds the checkpoint of {snapshot.query}, but that of another query.\n{hint}"
        )
    refuse_links_out(original.path)
    return original


def _with_the_code() -> str:
    """Return the advice to restore without the query's checkpoint."""
    return "pass the code that the query had: " + worded(
        "snapshot.restore(to=…, build_query=…)", command="--code MODULE:FUNCTION"
    )


def _describe(original: CheckpointFiles, record: ForkRecord, captured: CapturedEpoch, folder: str, files: Files) -> str:
    """Write everything but the state: the query's sources, its operators' metadata and schemas, and the logs.

    Returns the checkpoint format of the state stores.
    """
    epoch, log = _planned(original, captured)
    contents = ForkContents.without_state(original, files, record.epoch, epoch)
    texts = {**contents.texts, **log.texts(), FORK_FILE: record.text()}
    bring(replace(contents, texts=texts), original, record.epoch, folder, files=files)
    return log.format_version


def _check_tables(new: NewCheckpoint, captured: CapturedEpoch) -> None:
    """Refuse an epoch whose tables or columns are not those that the checkpoint describes."""
    described = {name: {*table.types} for name, table in new.tables.items()}
    had = {name: {*columns} for name, columns in captured.columns.items()}
    if described != had:
        differing = sorted(name for name in {*described, *had} if described.get(name) != had.get(name))
        raise UnsupportedStateError(
            f"The state of {captured} had another schema than its checkpoint describes now: {choices(differing)}.\n"
            f"Restore a later epoch, or {_with_the_code()}."
        )


def _planned(original: CheckpointFiles, captured: CapturedEpoch) -> tuple[PlannedEpoch, EpochLog]:
    """Return the epoch's plan and log, from the store and the checkpoint."""
    epoch = captured.snapshot.epoch
    newest, offsets, next_watermark = _newest_plan(original, epoch), captured.offsets, original.next_watermark(epoch)
    log = EpochLog(
        epoch,
        offsets,
        captured.watermark,
        captured.next_watermark if next_watermark is None else next_watermark,
        captured.began_at,
        newest.conf,
        newest.version,
        original.format_version(_newest_readable(original)),
    )
    names = tuple(sorted(offsets)) if isinstance(offsets, Mapping) else ()
    values = [offsets[name] for name in names] if isinstance(offsets, Mapping) else offsets
    return replace(newest, offsets=tuple(values), names=names), log


def _newest_plan(original: CheckpointFiles, epoch: int) -> PlannedEpoch:
    """Return the epoch's plan in the checkpoint, or that of the nearest epoch it still has: settings are pinned."""
    nearest = sorted(original.begun(), key=lambda number: abs(number - epoch))
    planned = next((plan for number in nearest if (plan := original.readable_plan(number))), None)
    if planned is None:
        raise EpochGoneError(f"{original.path} has no epoch left that says which settings its query is pinned to.")
    return planned


def _newest_readable(original: CheckpointFiles) -> int:
    """Return the newest epoch whose logs are whole."""
    if (epoch := original.newest_readable()) is None:
        raise EpochGoneError(f"{original.path} has no committed epoch left whose logs can be read.")
    return epoch
