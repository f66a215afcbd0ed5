"""What a fork's checkpoint remembers of where it comes from: a small file beside Spark's own."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from streamstate.snapshots.filesystem import Files, HadoopFiles, LocalFiles, local_path, location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["FORK_FILE", "ForkRecord", "forked_from"]

FORK_FILE = "streamstate-fork.json"
"""The file's name. Spark does not look at it."""


@dataclass(frozen=True)
class ForkRecord:
    """Where a fork comes from.

    Attributes:
        parent: the checkpoint that it was made of.
        parent_id: that checkpoint's query id.
        epoch: the last epoch that both share.
        made_at: when it was made, in ISO 8601, UTC.
        partitions: over how many partitions its state was spread anew; None: it was left as it was.
        edits: what was changed in its state.
    """

    parent: str
    parent_id: str
    epoch: int
    made_at: str = ""
    partitions: int | None = None
    edits: tuple[str, ...] = ()

    @classmethod
    def now(
        cls, parent: str, parent_id: str, epoch: int, partitions: int | None = None, edits: tuple[str, ...] = ()
    ) -> ForkRecord:
        """A record of a fork that is made now."""
        return cls(parent, parent_id, epoch, datetime.now(UTC).isoformat(timespec="seconds"), partitions, edits)

    def text(self) -> str:
        """The file's content."""
        return json.dumps(asdict(self), indent=2) + "\n"


def forked_from(checkpoint: str | Path, spark: SparkSession | None = None) -> ForkRecord | None:
    """Where a checkpoint was forked from; None where it is no fork.

    Args:
        checkpoint: a path or URI.
        spark: needed where it is not on the local disk.

    Example:
        >>> forked_from("checkpoints/what_if").epoch  # doctest: +SKIP
        40
    """
    path = location(checkpoint)
    files: Files = LocalFiles() if local_path(path) is not None or spark is None else HadoopFiles(spark)
    return record_in(files, path)


def record_in(files: Files, path: str) -> ForkRecord | None:
    """The same, with the file system given."""
    text = files.text(f"{path}/{FORK_FILE}")
    if text is None:
        return None
    said = json.loads(text)
    return ForkRecord(**{**said, "edits": tuple(said.get("edits", ()))})
