"""Running an epoch of a query from a new checkpoint, its results discarded, before the checkpoint is handed out."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark.errors import PySparkException

from streamstate.errors import NotReplayableError, StateWriteError, first_line
from streamstate.replay.stepping.query_sources import check_replayable
from streamstate.replay.stepping.run_batch import with_settings

if TYPE_CHECKING:
    from streamstate.operations.new_checkpoint.planned_query import PlannedQuery
    from streamstate.snapshots.checkpoint.filesystem import Files


def try_an_epoch(query: PlannedQuery, folder: str, files: Files) -> None:
    """Run the next epoch from a copy of a checkpoint, if the sources keep what they have delivered.

    Raises:
        StateWriteError: Spark cannot run it.
    """
    try:
        check_replayable(query.sources())
    except NotReplayableError:
        return
    copy = f"{folder}-trial-{uuid4().hex[:8]}"
    try:
        files.copy((f"{folder}/{path}", f"{copy}/{path}") for path in files.tree(folder) if not path.endswith("/"))
        run_an_epoch(query, copy)
    except PySparkException as error:
        raise StateWriteError(
            f"Spark cannot go on from the new checkpoint: {first_line(error)}\nIt was deleted."
        ) from error
    finally:
        files.remove_tree(copy)


def run_an_epoch(query: PlannedQuery, checkpoint: str) -> None:
    """Run the next epoch over everything that the sources have, and discard its results."""
    writer = query.frame.writeStream.format("noop").outputMode(query.mode).option("checkpointLocation", checkpoint)
    with with_settings(query.spark, query.conf):
        running = writer.trigger(once=True).start()
    try:
        running.awaitTermination()
    except BaseException:
        running.stop()
        raise
