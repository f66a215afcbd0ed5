"""Bootstrapping: a first checkpoint of a query from history, so that the stream does not read it again."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from streamstate.errors import InvalidArgumentError
from streamstate.operations.new_checkpoint.log_texts import EpochLog, Offset, source_logs
from streamstate.operations.new_checkpoint.target import TargetQuery
from streamstate.operations.new_checkpoint.whole_offsets import check_whole_offsets
from streamstate.operations.new_checkpoint.writer import NewCheckpoint, making
from streamstate.operations.new_checkpoint.written_checkpoint import WrittenCheckpoint
from streamstate.snapshots.calls.checks import BuildQuery
from streamstate.snapshots.calls.progress_callback import ProgressCallback, long_call, silent
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.filesystem import files_for, location
from streamstate.snapshots.spark.epoch_planning import EpochClock
from streamstate.snapshots.spark.state_rewriting import require_state_writing
from streamstate.snapshots.spark.worker.forwarding import classic_spark

if TYPE_CHECKING:
    from streamstate.snapshots.checkpoint.filesystem import Files


@classic_spark()
@long_call("No checkpoint was made.")
def bootstrap(
    build_query: BuildQuery,
    *,
    to: str | os.PathLike[str],
    state: DataFrame | Mapping[str, DataFrame] | None = None,
    batch: bool = False,
    offsets: Sequence[Offset] | None = None,
    mode: str = "update",
    progress: ProgressCallback | None = None,
) -> WrittenCheckpoint:
    """Make the first checkpoint of a query from history. The stream then does not read the history again.

    The state comes from rows (``state``), or from the history itself (``batch=True``): the query reads it as one epoch,
    as large as it is, whose results are discarded.

    Args:
        build_query: returns the query's streaming DataFrame. Start it with ``to`` as its checkpoint.
        to: where the checkpoint goes; it must not exist yet. It appears there once it is complete.
        state: the rows of the state table, or of each by name (``{"op0": frame}``), with exactly its columns: the key,
            and the buffers of the aggregates under Spark's names. The error for other columns lists them.
        batch: compute the state from what the sources have up to ``offsets``, or now.
        offsets: up to where the history goes, for each source in the query's order. For files, a list of the paths or
            patterns of those that it covers; for other sources, their own JSON, as in ``offsets/N`` of a checkpoint, of
            Kafka with every partition; None: the source's beginning. Without ``offsets``, the stream reads everything
            after a bootstrap from rows.
        mode: the query's output mode: "append", "update" or "complete".
        progress: called with a message and the completed share of the work, from 0 to 1.

    Returns:
        The checkpoint; it can be passed wherever a checkpoint's path can.

    Raises:
        InvalidArgumentError: neither or both of ``state`` and ``batch`` are given, or offsets do not fit the sources.
        StateWriteError: ``to`` exists already, the rows are not those of the state, or what Spark reads back differs.
        QueryError: Spark cannot run the query.
        UnsupportedStateError: Spark cannot write this kind of state.

    Example:
        >>> totals = spark.createDataFrame([("UA", 16), ("HA", 20)], "carrier string, count bigint")
        >>> offsets = [["flights/0000*.json"]]
        >>> ss.bootstrap(build_by_carrier, to="checkpoints/by_carrier", state=totals, offsets=offsets).rows
        {'op0': 2}
    """
    began = time.monotonic()
    if (state is not None) == batch:
        raise InvalidArgumentError("Pass either state=…, the rows of the state, or batch=True, and not both.")
    query, report, target = TargetQuery.of(build_query, mode), progress or silent, location(os.fspath(to))
    require_state_writing(query.spark, "Making a checkpoint from rows")
    files = files_for(query.spark, target)
    texts, logs = source_logs(query.spark, query.sources(), offsets)
    check_whole_offsets(query.frame, texts)
    log = EpochLog(0, texts, conf=query.conf, format_version=query.format_version)
    with making(query.spark, files, target) as folder:
        if batch:
            report("computing the state from the history", 0.0)
            rows = _computed(query, folder, files, {**log.texts(), **logs} if offsets is not None else {})
        else:
            report("writing the state", 0.0)
            rows = _written(query, folder, files, {**log.texts(), **logs}, state)
        report("running an epoch of a copy", 0.7)
        query.try_an_epoch(folder, files)
        report("done", 1.0)
    return WrittenCheckpoint(target, 0, rows, time.monotonic() - began, compared=not batch)


def _written(
    query: TargetQuery,
    folder: str,
    files: Files,
    texts: Mapping[str, str],
    state: DataFrame | Mapping[str, DataFrame] | None,
) -> dict[str, int]:
    """Write rows as the state of epoch 0."""
    for path, text in texts.items():
        files.write(f"{folder}/{path}", text)
    query.into(folder, EpochClock(conf=query.conf))
    new = NewCheckpoint(query.spark, files, folder, 0, query.format_version)
    if isinstance(state, Mapping):
        given = dict(state)
    else:
        assert state is not None
        given = {new.only_table: state}
    rows = {
        name: new.tables[name].fitted_rows(frame, new.session) if name in new.tables else frame
        for name, frame in given.items()
    }
    return new.write(rows, begins=True)


def _computed(query: TargetQuery, folder: str, files: Files, texts: Mapping[str, str]) -> dict[str, int]:
    """Let the query read the history as its epoch 0."""
    for path, text in texts.items():
        if not path.startswith("commits/"):
            files.write(f"{folder}/{path}", text)
    query.run_an_epoch(folder)
    if CheckpointFiles(folder, query.spark).committed() != [0]:
        raise InvalidArgumentError("The sources have no data, so there is no history.\nStart the query as usual.")
    new = NewCheckpoint(query.spark, files, folder, 0, query.format_version)
    return new.count()
