"""Capturing a finished query epoch by epoch, as if each had just been committed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import timed
from streamstate.snapshots.checkpoint import Checkpoint
from streamstate.snapshots.epoch_commit import Capturer
from streamstate.snapshots.layout import Layout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class CheckpointAt(Checkpoint):
    """A checkpoint whose commit log is seen up to an epoch."""

    newest = -1

    def committed(self) -> list[int]:
        """Numbers of the epochs up to the newest."""
        return [epoch for epoch in super().committed() if epoch <= self.newest]


class Stepped:
    """A capture that is shown one more epoch at a time.

    Args:
        spark: a running session; None to do without.
        checkpoint: the finished query's.
        store: where the snapshots go.
    """

    def __init__(self, spark: SparkSession | None, checkpoint: Path, store: Path) -> None:
        self.checkpoint = CheckpointAt(checkpoint, spark)
        self.capturer = Capturer(spark, self.checkpoint, Layout.at(store), "load")

    def step(self, epochs: int = 1) -> float:
        """Capture the next epoch, or several in one pass; returns seconds."""
        self.checkpoint.newest += epochs
        seconds = timed(self.capturer.run)
        newest = self.capturer.manifest.newest
        if newest is None or newest.epoch != self.checkpoint.newest:
            raise AssertionError(f"epoch {self.checkpoint.newest} was not captured: the newest is {newest}")
        return seconds
