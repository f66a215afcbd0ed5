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

    The new checkpoint has the old one's offsets and watermark: the changed query reads next what the old one would
    have read next. Its state is what the mapping makes of the old state, whose tables have the columns that
    ``%state`` shows. Where the mapping is obvious, it can be left out: a column that is added, dropped, renamed or
    widened, a key that loses a column, or no change at all but of the state store, the number of partitions, or the
    version of Spark.

    Spark's executors write the state, read it back, and compare every row. Then an epoch of the changed query is run
    from a copy of the checkpoint, without a sink.

    Args:
        checkpoint: the ``checkpointLocation`` of the query before the change.
        build_query: returns the streaming DataFrame of the changed query. Start it with ``to`` as its checkpoint.
        to: where the new checkpoint goes; it must not exist yet. It appears there once it is complete.
        mapping: for each new state table, SQL over the old ones (``{"op0": "SELECT carrier, sum(count) AS count FROM
            op0 GROUP BY carrier"}``), or a function of the old ones' frames by name. For tables that are left out,
            :meth:`Checkpoint.propose_mapping` says what is done.
        mode: the changed query's output mode: "append", "update" or "complete".
        store: the store that the query is captured into: the plan that is recorded there says which aggregate each
            column belongs to, and what it was computed from.
        sources: if their number or order changed: for each source of the changed query, the number of the old one that
            it continues, counted from 0; None: it is new, and begins at its beginning. Sources with names are matched
            by name.
        progress: called with a message and the completed share of the work, from 0 to 1.

    Returns:
        The checkpoint; it can be passed wherever a checkpoint's path can.

    Raises:
        NotACheckpointError: ``checkpoint`` is not a checkpoint.
        UnknownQueryError: the store does not have the query.
        QueryError: the query is running, or Spark cannot run the changed query.
        CheckpointError: the last epoch was begun and not committed.
        StateWriteError: ``to`` exists already, the mapping is not obvious, the rows are not those of the new state, or
            what Spark reads back differs.
        InvalidArgumentError: ``sources`` does not fit the queries.
        InvalidSQLError: the SQL of the mapping is invalid.
        UnsupportedStateError: Spark cannot write this kind of state.

    Example:
        >>> by_carrier = {"op0": "SELECT carrier, sum(count) AS count FROM op0 GROUP BY carrier"}
        >>> by_route = ss.Checkpoint("checkpoints/by_route")  # doctest: +SKIP
        >>> by_route.migrate(build, to="checkpoints/by_carrier", mapping=by_carrier).rows  # doctest: +SKIP
        {'op0': 14}
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
