"""The public way to fork: :func:`fork`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from streamstate.snapshots.filesystem import local_path
from streamstate.snapshots.forks import Edit, Fork
from streamstate.snapshots.forks import fork as _fork
from streamstate.snapshots.forks.changed import check_change

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streamstate.snapshots.forks.edits import Edits

__all__ = ["Edit", "Fork", "fork"]


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
    """Make a checkpoint that stands exactly where another stood at one of its epochs.

    The original may be running, here or elsewhere: it is only read. State files are linked where both checkpoints are
    on one local disk, so that a fork takes next to no space; elsewhere only the files are copied that make up the
    state at that epoch. The fork is another query with an id of its own: started with the same code and another sink,
    it takes epoch ``at + 1`` next. Captured (:func:`capture`, :func:`follow`), it remembers its parent and the epoch.

    Args:
        checkpoint: the original's ``checkpointLocation``.
        new_checkpoint: where the fork goes; it must not be there yet.
        at: the last epoch that both share; by default the newest that is committed.
        partitions: over how many partitions the fork's state is to be spread, where that is another number than the
            original's: Spark's executors write it anew, at the same epoch, and the fork is compared row by row. For
            RocksDB's state stores. An operator that works in one partition whatever the number (a limit, an
            aggregation without keys) keeps its own.
        edit: what is to be different in the fork's state: SQL (``UPDATE``, ``DELETE``, ``INSERT … VALUES``) over the
            columns of a state table, an :class:`Edit`, or several of these, one after the other. At most 20,000 rows
            of a table; times without a zone are UTC. On aggregations, windows, session windows, deduplication,
            ``applyInPandasWithState`` and value and map variables without TTL, in RocksDB's state stores. All other
            rows are compared with the original's.
        verify: how the fork is compared with the original before it is handed out. ``"files"``: the same files make up
            its state, and each holds the same. ``"rows"``: Spark's state reader, too, finds the same rows in both.
        spark: the session for checkpoints that are not on the local disk, and for ``verify="rows"``; by default the
            running one, or an embedded one.

    Returns:
        The fork; it can be given wherever a checkpoint's path can.

    Raises:
        NotACheckpointError: where ``checkpoint`` is none.
        EpochGoneError: where the epoch was never committed, or Spark has purged it; the message names the nearest.
        InvalidArgumentError: where ``partitions`` is no whole number above zero, or an edit cannot be meant: it
            matches no row, its values do not fit, it sets a key, it adds a row that is there.
        UnknownTableError: where an edit names a state table that is not there.
        UnknownColumnError: where an edit names a column that is not there.
        UnsupportedStateError: where Spark cannot write the state anew; the message says what it can.
        ForkError: where ``new_checkpoint`` is there already, or the fork turned out to differ.
        NoStateError: where the query keeps no state.
        NotReplayableError: where the log of a file source no longer tells which files were read by then.

    Example:
        >>> fork = ss.fork("checkpoints/delays", "checkpoints/what_if", at=12)  # doctest: +SKIP
        >>> fork.epoch  # doctest: +SKIP
        12
        >>> wider = ss.fork("checkpoints/delays", "checkpoints/wider", at=12, partitions=8)  # doctest: +SKIP
        >>> zero = "UPDATE op0 SET max_delay = 0 WHERE carrier = 'HA'"
        >>> ss.fork("checkpoints/delays", "checkpoints/zero", at=12, edit=zero).edited_rows  # doctest: +SKIP
        1
    """
    # Before Spark is started for it.
    check_change(partitions, edit)
    remote = any(local_path(os.fspath(path)) is None for path in (checkpoint, new_checkpoint))
    if spark is None and (remote or verify == "rows" or partitions is not None or edit is not None):
        from streamstate.spark_session import session

        spark = session()
    return _fork(checkpoint, new_checkpoint, at=at, partitions=partitions, edit=edit, verify=verify, spark=spark)
