"""Rolling back a rescale that failed: remove every file that the checkpoint did not hold before.

A small file in the checkpoint, ``streamstate-rescale.json``, lists the checkpoint's files. It is written before the
first change and removed once the new state is verified or rolled back, so if it exists, a rescale was killed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from streamstate.errors import CheckpointError
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.filesystem import files_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTE = "streamstate-rescale.json"
_LOGS = ("commits/", "offsets/")


@dataclass(frozen=True)
class Unfinished:
    """A rescale in progress, and what the checkpoint held before it."""

    epoch: int
    """The last epoch before the rescale."""
    partitions: int
    """The number of partitions before it."""
    target: int
    """The requested number of partitions."""
    names: tuple[str, ...]
    """Every file and folder of the checkpoint."""
    is_verified: bool = False
    """Whether the new state was verified, so that the query may have begun epochs with it."""

    @classmethod
    def begin(
        cls, checkpoint: CheckpointFiles, spark: SparkSession, epoch: int, partitions: int, target: int
    ) -> Unfinished:
        """Record the contents of the checkpoint, before anything is changed."""
        files = files_for(spark, checkpoint.path)
        unfinished = cls(epoch, partitions, target, tuple(sorted(files.tree(checkpoint.path))))
        unfinished.write(checkpoint, spark)
        return unfinished

    def verified(self, checkpoint: CheckpointFiles, spark: SparkSession) -> None:
        """Record that the new state was verified: an epoch that is begun from now on keeps it."""
        replace(self, is_verified=True).write(checkpoint, spark)

    def write(self, checkpoint: CheckpointFiles, spark: SparkSession) -> None:
        """Write the record."""
        record = {"epoch": self.epoch, "partitions": self.partitions, "wanted": self.target, "names": self.names}
        text = json.dumps(record | {"verified": self.is_verified})
        files_for(spark, checkpoint.path).write(f"{checkpoint.path}/{NOTE}", text, replace=True)

    @classmethod
    def of(cls, checkpoint: CheckpointFiles, spark: SparkSession | None) -> Unfinished | None:
        """Return the unfinished rescale of a checkpoint; None without one."""
        text = files_for(spark, checkpoint.path).text(f"{checkpoint.path}/{NOTE}")
        if text is None:
            return None
        try:
            found = json.loads(text)
            names, verified = tuple(found["names"]), bool(found.get("verified"))
            return cls(found["epoch"], found["partitions"], found["wanted"], names, verified)
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{checkpoint.path}/{NOTE} cannot be read, so the rescale that was killed cannot be rolled back.\n"
                "If the checkpoint's newest epoch was committed before that rescale, delete the file."
            ) from error

    def take_back(self, checkpoint: CheckpointFiles, spark: SparkSession | None) -> None:
        """Roll back: remove what was not there before, the record last. Safe to repeat after an interruption."""
        files = files_for(spark, checkpoint.path)
        for name in sorted(files.tree(checkpoint.path) - {*self.names, NOTE}, key=_order):
            files.remove(f"{checkpoint.path}/{name}")
        files.remove(f"{checkpoint.path}/{NOTE}")

    def done(self, checkpoint: CheckpointFiles, spark: SparkSession | None) -> None:
        """Keep the new state."""
        files_for(spark, checkpoint.path).remove(f"{checkpoint.path}/{NOTE}")


def recover_rescale(checkpoint: CheckpointFiles, spark: SparkSession | None) -> Unfinished | None:
    """Roll back a rescale that was killed before it was verified, if there is one, and return what was rolled back.

    If the query has committed epochs since, or begun one with verified state, the new partitions are kept and only the
    record is removed.
    """
    found = Unfinished.of(checkpoint, spark)
    if found is None:
        return None
    # The results of an epoch that was begun with verified state may be in the sink.
    later = checkpoint.begun() if found.is_verified else checkpoint.committed()
    if max(later, default=-1) > found.epoch + 1:
        found.done(checkpoint, spark)
        return None
    found.take_back(checkpoint, spark)
    return found


def _order(name: str) -> tuple[int, int, str]:
    """Remove the commit first, so that a committed epoch always has its state; folders after the files in them."""
    first = next((at for at, log in enumerate(_LOGS) if name.startswith(log)), len(_LOGS))
    return (first, -name.count("/") if name.endswith("/") else -1000, name)
