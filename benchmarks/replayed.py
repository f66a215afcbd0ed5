"""A finished query whose epochs are committed again, one by one, so that no Spark runs beside a measurement."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import timed
from streamstate.snapshots.capture.epoch_commit import Capturer
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.store.layout import Layout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Replayed:
    """A copy of a finished query's checkpoint whose commit log is empty until epochs are revealed.

    Args:
        recording: the finished query's checkpoint.
        path: where the copy goes; files other than the commit log's are linked, not copied.
    """

    def __init__(self, recording: Path, path: Path) -> None:
        self.path, self.newest = path, -1
        self._commits = recording / "commits"
        commits = str(self._commits)
        shutil.copytree(
            recording, path, copy_function=os.link, ignore=lambda folder, names: names if folder == commits else ()
        )

    def reveal(self, epochs: int = 1) -> float:
        """Commit the next epoch, or several, and return the time, as ``time.time()``."""
        for epoch in range(self.newest + 1, self.newest + epochs + 1):
            hidden = self.path / "commits" / f".{epoch}.tmp"
            shutil.copyfile(self._commits / str(epoch), hidden)
            hidden.rename(hidden.with_name(str(epoch)))
        self.newest += epochs
        return time.time()


class Stepped:
    """A capture in this process that sees one more epoch at a time.

    Args:
        spark: a running session; None to do without.
        recording: the finished query's checkpoint.
        store: where the snapshots go; the replayed checkpoint goes beside it.
    """

    def __init__(self, spark: SparkSession | None, recording: Path, store: Path) -> None:
        self.replayed = Replayed(recording, store.with_name(f"{store.name}-checkpoint"))
        self.capturer = Capturer(spark, CheckpointFiles(self.replayed.path, spark), Layout.at(store), "load")

    def step(self, epochs: int = 1) -> float:
        """Capture the next epoch, or several in one pass, and return the seconds."""
        self.replayed.reveal(epochs)
        seconds = timed(self.capturer.run)
        newest = self.capturer.manifest.newest
        if newest is None or newest.epoch != self.replayed.newest:
            raise AssertionError(f"epoch {self.replayed.newest} was not captured: the newest is {newest}")
        return seconds
