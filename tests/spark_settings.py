"""Spark settings that make tests faster."""

from __future__ import annotations

PLAIN_FILES = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
"""Hadoop's FileSystem API. The default, FileContext, starts a readlink process for each rename of a local file."""
