"""The record of a fork's origin: a small file in its checkpoint, beside Spark's own."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from streamstate.snapshots.checkpoint.filesystem import ReadableFiles, files_for, location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORK_FILE = "streamstate-fork.json"
"""The file's name. Spark ignores it."""


@dataclass(frozen=True)
class ForkRecord:
    """The origin of a fork.

    Attributes:
        parent: the checkpoint that was forked.
        parent_id: that checkpoint's query id.
        epoch: the last epoch that both share.
        made_at: when the fork was made, in ISO 8601, UTC.
        partitions: how many partitions its state was repartitioned to; None: it was not.
        edits: the changes to its state.
        shared: the shared variables that it begins with and its parent did not have.
    """

    parent: str
    parent_id: str
    epoch: int
    made_at: str = ""
    partitions: int | None = None
    edits: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()

    @classmethod
    def now(
        cls, parent: str, parent_id: str, epoch: int, partitions: int | None = None, edits: tuple[str, ...] = ()
    ) -> ForkRecord:
        """Return the record of a fork that is made now."""
        return cls(parent, parent_id, epoch, datetime.now(UTC).isoformat(timespec="seconds"), partitions, edits)

    def text(self) -> str:
        """Return the file's content."""
        return json.dumps(asdict(self), indent=2) + "\n"


def forked_from(checkpoint: str | Path, spark: SparkSession | None = None) -> ForkRecord | None:
    """Return a checkpoint's origin; None if it is not a fork.

    Args:
        checkpoint: a path or URI.
        spark: a session, needed if the checkpoint is not on the local disk.

    Example:
        >>> forked_from("checkpoints/what_if").epoch
        40
    """
    path = location(checkpoint)
    return read_fork(files_for(spark, path), path)


def read_fork(files: ReadableFiles, checkpoint: str) -> ForkRecord | None:
    """As :func:`forked_from`, through the files of a checkpoint that is open."""
    text = files.text(f"{checkpoint}/{FORK_FILE}")
    if text is None:
        return None
    record = json.loads(text)
    lists = {name: tuple(record.get(name, ())) for name in ("edits", "shared")}
    return ForkRecord(**{**record, **lists})
