"""The checkpoint of a query, as this machine reads it: where it is, or as a copy if only a server reaches it."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

from streamstate.errors import StreamStateError
from streamstate.snapshots.capture.capture import open_checkpoint
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.server_copy import CopiedCheckpoint
from streamstate.snapshots.spark.connect import is_of_connect
from streamstate.snapshots.spark.connect_files import ConnectFiles
from streamstate.snapshots.spark.connect_server import connect_checkpoint, session_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery


def checkpoint_of(query: StreamingQuery) -> str | CopiedCheckpoint:
    """Return the checkpoint location of a query, of this process or of a Spark Connect server."""
    if is_of_connect(query):
        root = connect_checkpoint(query)
        found = reached_checkpoint(session_of(query), root, str(query.id))
        return found if isinstance(found, CopiedCheckpoint) else root
    # It looks like a URI, but is not percent-encoded.
    return re.sub("^file:/+", "/", str(query._jsq.streamingQuery().resolvedCheckpointRoot()))


def reached_checkpoint(spark: SparkSession, root: str, query_id: str | None = None) -> CheckpointFiles | None:
    """Return the checkpoint that a Spark Connect server has at a path; None if it has none there.

    Args:
        spark: the Spark Connect session.
        root: the path or URI.
        query_id: the id of its query; by default the server reads it.
    """
    there = ConnectFiles(spark, root)
    query_id = query_id or there.query_id()
    if query_id is None:
        return None
    # This machine may lack the folder, the right to read it, or the client of its file system; or it may have another
    # checkpoint at the same path.
    with contextlib.suppress(StreamStateError, OSError):
        found = open_checkpoint(root)
        if found.query_id == query_id:
            return found
    copied = CopiedCheckpoint(there, query_id)
    copied.refresh()
    return copied
