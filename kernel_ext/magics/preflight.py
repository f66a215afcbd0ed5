"""What is checked of a checkpoint before a query starts, so that a mistake leaves nothing behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamstate.snapshots.checkpoint import Checkpoint
from streamstate.snapshots.errors import NotACheckpointError
from streamstate.snapshots.filesystem import local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["query_id_of"]


def query_id_of(checkpoint: str, spark: SparkSession) -> str | None:
    """The id of the query that owns a checkpoint; None where the path is free for a new one.

    Raises:
        NotACheckpointError: the folder holds something else.
    """
    try:
        return Checkpoint(checkpoint, spark).query_id
    except NotACheckpointError:
        local = local_path(checkpoint)
        if local is not None and local.exists() and (local.is_file() or any(local.iterdir())):
            raise NotACheckpointError(
                f"{checkpoint} is not empty, and it is not the checkpoint of a streaming query.\n"
                "Give --checkpoint a new folder, or that of a query to resume."
            ) from None
        return None
