"""Restoring: a checkpoint that can run, from an epoch that the store has.

SEEP restores an operator from backed-up state by the same means by which it scales it out (Castro Fernandez et al.,
"Integrating Scale Out and Fault Tolerance in Stream Processing using Operator State Management", SIGMOD 2013).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from streamstate.errors import CheckpointReplacedError, EpochGoneError, UnsupportedStateError, choices
from streamstate.operations.new_checkpoint.log_texts import EpochLog, milliseconds, offset_text
from streamstate.operations.new_checkpoint.writer import NewCheckpoint, making
from streamstate.operations.new_checkpoint.written import WrittenCheckpoint
from streamstate.snapshots.checkpoint import Checkpoint, PlannedEpoch
from streamstate.snapshots.checkpoint_copy import bring
from streamstate.snapshots.checkpoint_files import ForkContents
from streamstate.snapshots.filesystem import Files, files_for, location, refuse_links_out
from streamstate.snapshots.fork_record import FORK_FILE, ForkRecord
from streamstate.snapshots.progress_callback import ProgressCallback, silent
from streamstate.snapshots.spark.session import session
from streamstate.state_inspect import History, Snapshot
from streamstate.state_inspect.sql.spark_relations import read_in_spark


def restore(
    snapshot: Snapshot | History,
    to: str | Path,
    *,
    spark: SparkSession | None = None,
    progress: ProgressCallback | None = None,
) -> WrittenCheckpoint:
    """Make a checkpoint that can run from a captured epoch, even if Spark has purged it or its state is damaged.

    The state comes from the store. The rest comes from the query's checkpoint: its settings, the schemas of its state,
    and the log of the files that it has read, which Spark keeps for all epochs. The checkpoint is only read.

    The new checkpoint is a fork: it has its own query id, and runs the epoch after the snapshot's next. Spark's
    executors write its state, read it back with Spark's own state reader, and compare every row with the store's. Its
    state is in RocksDB, also if the query's was not.

    Args:
        snapshot: the snapshot, or a history for its newest epoch.
        to: where the checkpoint goes; it must not exist yet. It appears there once it is complete.
        spark: the session to use; by default the running one, or an embedded one.
        progress: called with a message and the completed share of the work, from 0 to 1.

    Returns:
        The checkpoint; it can be passed wherever a checkpoint's path can.

    Raises:
        StateWriteError: ``to`` exists already, or what Spark reads back differs.
        EpochGoneError: neither the store nor the checkpoint knows the watermark after the epoch, or its offsets.
        NotACheckpointError, CheckpointReplacedError: the query's checkpoint no longer exists.
        NotReplayableError: the log of a file source no longer says which files had been read by then.
        UnsupportedStateError: Spark cannot write this kind of state.

    Example:
        >>> again = ss.restore(store["delays"].at(3), "checkpoints/delays_3")  # doctest: +SKIP
        >>> again.epoch, again.rows  # doctest: +SKIP
        (3, {'op0': 1540})
    """
    began = time.monotonic()
    taken = snapshot.live() if isinstance(snapshot, History) else snapshot
    spark, report, target = spark or session(), progress or silent, location(os.fspath(to))
    branch = taken.history.recorded.lineage.branch(taken.query)
    assert branch is not None
    original = Checkpoint(branch.checkpoint, spark)
    if original.query_id != branch.query_id:  # reading it raises if the checkpoint is gone
        raise CheckpointReplacedError(
            f"{original.path} no longer holds the checkpoint of {taken.query}, but that of another query."
        )
    refuse_links_out(original.path)
    files = files_for(spark, original.path, target)
    report("reading what describes the query", 0.0)
    planned = _planned(original, taken)
    with making(files, target) as folder:
        _describe(original, ForkRecord.now(original.path, branch.query_id, taken.epoch), planned, files, folder)
        new = NewCheckpoint(spark, files, folder, taken.epoch, planned[1].format_version)
        _check_tables(new, taken)
        report("writing the state", 0.1)
        rows = {
            name: read_in_spark(taken.history.recorded, taken, name, None).in_spark(new.session) for name in new.tables
        }
        counts = new.write(rows)
        report("done", 1.0)
    return WrittenCheckpoint(target, taken.epoch, counts, time.monotonic() - began)


def _describe(
    original: Checkpoint, record: ForkRecord, planned: tuple[PlannedEpoch, EpochLog], files: Files, folder: str
) -> None:
    """Write everything but the state: the query's sources, its operators' metadata and schemas, and the logs."""
    epoch, log = planned
    contents = ForkContents.without_state(original, files, record.epoch, epoch)
    texts = {**contents.texts, **log.texts(), FORK_FILE: record.text()}
    bring(replace(contents, texts=texts), original, record.epoch, folder, files=files)


def _check_tables(new: NewCheckpoint, snapshot: Snapshot) -> None:
    """Refuse a snapshot whose tables or columns are not those that the checkpoint describes."""
    described = {name: {*table.types} for name, table in new.tables.items()}
    captured = {
        name: {*snapshot.table(name).key_columns, *snapshot.table(name).value_columns} for name in snapshot.tables()
    }
    if described != captured:
        differing = sorted(name for name in {*described, *captured} if described.get(name) != captured.get(name))
        raise UnsupportedStateError(
            f"The state of epoch {snapshot.epoch} of {snapshot.query} had another schema than its checkpoint describes"
            f" now: {choices(differing)}.\nRestore a later epoch."
        )


def _planned(original: Checkpoint, snapshot: Snapshot) -> tuple[PlannedEpoch, EpochLog]:
    """What the epoch read, and with which settings, as far as the store and the checkpoint know it."""
    newest = _newest_plan(original, snapshot.epoch)
    offsets = _offsets(snapshot)
    log = EpochLog(
        snapshot.epoch,
        offsets,
        milliseconds(snapshot.watermark),
        _next_watermark(original, snapshot),
        milliseconds(snapshot.history.recorded.entry(snapshot.epoch).began_at),
        newest.conf,
        newest.version,
        original.format_version(original.committed()[-1]),
    )
    names = tuple(sorted(offsets)) if isinstance(offsets, Mapping) else ()
    values = [offsets[name] for name in names] if isinstance(offsets, Mapping) else offsets
    return replace(newest, offsets=tuple(values), names=names), log


def _newest_plan(original: Checkpoint, epoch: int) -> PlannedEpoch:
    """The epoch's plan in the checkpoint, or that of the nearest epoch it still has: settings are pinned."""
    begun = original.begun()
    nearest = min(begun, key=lambda number: abs(number - epoch), default=None)
    planned = None if nearest is None else original.planned(nearest)
    if planned is None:
        raise EpochGoneError(f"{original.path} has no epoch left that says which settings its query is pinned to.")
    return planned


def _offsets(snapshot: Snapshot) -> dict[str, str | None] | list[str | None]:
    found = snapshot.offsets
    if found is None:
        raise EpochGoneError(
            f"The store does not know what epoch {snapshot.epoch} of {snapshot.query} had read: Spark had purged it"
            " before the epoch was captured.\nRestore a later epoch."
        )
    if isinstance(found, Mapping):
        return {name: offset_text(offset) for name, offset in found.items()}
    return [offset_text(offset) for offset in found]


def _next_watermark(original: Checkpoint, snapshot: Snapshot) -> int:
    """The watermark that the epoch after the snapshot's begins with."""
    if (known := original.next_watermark(snapshot.epoch)) is not None:
        return known
    entries = snapshot.history.recorded.entries()
    following = next((entry for entry in entries if entry.epoch == snapshot.epoch + 1 and entry.captured), None)
    if following is not None:
        return milliseconds(following.watermark)
    if snapshot.watermark is None:
        return 0
    raise EpochGoneError(
        f"Neither the store nor {original.path} knows the watermark after epoch {snapshot.epoch}: epoch"
        f" {snapshot.epoch + 1} was not captured.\nRestore another epoch."
    )
