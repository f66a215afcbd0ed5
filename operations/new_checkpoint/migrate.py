"""Migrating: the state of a query becomes the state of a changed query, in a new checkpoint."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from streamstate.operations.new_checkpoint.migration import Migration, TableMapping, check_state
from streamstate.operations.new_checkpoint.target_query import TargetQuery
from streamstate.operations.new_checkpoint.writer import check_readable, making
from streamstate.operations.new_checkpoint.written import WrittenCheckpoint
from streamstate.operations.recorded_plan import recorded_plan
from streamstate.operations.stopped_query import check_stopped, settled_epoch
from streamstate.snapshots.calls.checks import BuildQuery
from streamstate.snapshots.calls.progress_callback import ProgressCallback, long_call, silent
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.filesystem import files_for, location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamstate.state_inspect import Store


@long_call("No checkpoint was made.")
def migrate(
    checkpoint: str | os.PathLike[str],
    build_query: BuildQuery,
    to: str | Path,
    mapping: Mapping[str, TableMapping] | None = None,
    *,
    mode: str = "update",
    store: Store | str | Path | None = None,
    sources: Sequence[int | None] | None = None,
    progress: ProgressCallback | None = None,
) -> WrittenCheckpoint:
    """Make a checkpoint for a changed query from the state of a stopped one. The old checkpoint is only read.

    :meth:`streamstate.Checkpoint.migrate` describes the arguments and errors.
    """
    began, target, report = time.monotonic(), location(os.fspath(to)), progress or silent
    query = TargetQuery.of(build_query, mode)
    old = CheckpointFiles(checkpoint, query.spark)
    check_readable(query.spark, old.path)
    check_state(old)
    check_stopped([old], query.spark, "migrated", "%stream migrate NAME CODE")
    epoch, files = settled_epoch(old, "migrate"), files_for(query.spark, old.path, target)
    with making(query.spark, files, target) as folder:
        report("planning the changed query", 0.0)
        migration = Migration.planned(
            old, query, epoch, folder, files, recorded=recorded_plan(store, old.query_id, epoch), sources=sources
        )
        rows, before = migration.rows(mapping or {}), migration.rows_before()
        report("writing the state", 0.1)
        with _kept(rows) as kept:
            counts = migration.new.write(kept)
        report("running an epoch of a copy", 0.7)
        query.try_an_epoch(folder, files)
        report("done", 1.0)
    return WrittenCheckpoint(target, epoch, counts, time.monotonic() - began, before)


@contextmanager
def _kept(rows: Mapping[str, DataFrame]) -> Iterator[dict[str, DataFrame]]:
    """Rows that are computed once, to be written and to be compared; executors spill what does not fit to disk."""
    kept = {name: frame.persist() for name, frame in rows.items()}
    try:
        yield kept
    finally:
        for frame in kept.values():
            frame.unpersist()
