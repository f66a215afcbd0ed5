"""Settings of Spark that spare tests time."""

from __future__ import annotations

PLAIN_FILES = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
"""Hadoop's plain file system: the usual one starts a process, readlink, to rename a file of a local disk."""
