"""Checks of a stopped query that rescaling, promoting and migrating share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from streamstate.errors import CheckpointError, QueryError, StreamStateError
from streamstate.replay.stepping.run_batch import active_queries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles


def check_stopped(checkpoints: Iterable[CheckpointFiles], spark: SparkSession, done: str, magic: str) -> None:
    """Raise if a query runs in this Spark application; other applications cannot be seen.

    Args:
        checkpoints: those of the queries.
        spark: the session.
        done: the end of "only a stopped query can be".
        magic: the magic that stops the query itself.
    """
    active = active_queries(spark)
    for checkpoint in checkpoints:
        if checkpoint.query_id in active:
            raise QueryError(
                f"The query of {checkpoint.path} is running, and only a stopped query can be {done}.\n"
                f"Stop it first with query.stop(). In a notebook, {magic} does so itself."
            )


def newest_epoch(checkpoint: CheckpointFiles) -> int:
    """Return the newest committed epoch of a query.

    Raises:
        CheckpointError: no epoch is committed.
    """
    if not (committed := checkpoint.committed()):
        raise CheckpointError(
            f"{checkpoint.path} has no committed epoch.\nRun the query until it commits one, then stop it."
        )
    return committed[-1]


def settled_epoch(checkpoint: CheckpointFiles, verb: str, error: type[StreamStateError] = CheckpointError) -> int:
    """Return the newest epoch of a stopped query, unless a later epoch was begun.

    Args:
        checkpoint: the query's.
        verb: the operation, as the end of "then".
        error: raised if a later epoch was begun: the sink may have some of its results.
    """
    epoch, begun = newest_epoch(checkpoint), checkpoint.begun()
    if begun[-1:] != [epoch]:
        raise error(
            f"Epoch {begun[-1] if begun else epoch} of {checkpoint.path} was begun but not committed; its results may"
            f" be in the sink. The last committed epoch is {epoch}.\n"
            f"Start the query with the same sink until that epoch is committed (step a fork), stop it, then {verb}."
        )
    return epoch
