"""A checkpoint that was made from rows of state."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from streamstate.snapshots.checkpoint import Checkpoint


class WrittenCheckpoint(Checkpoint):
    """A checkpoint that :func:`streamstate.restore` made; it can be passed wherever a checkpoint's path can.

    Attributes:
        path: its path or URI.
        epoch: the epoch whose state it has; its query runs the one after it next.
        rows: the number of rows of each state table.
        seconds: how long it took, reading back included.
    """

    def __init__(self, path: str, spark: SparkSession, epoch: int, rows: Mapping[str, int], seconds: float) -> None:
        super().__init__(path, spark)
        self.epoch, self.rows, self.seconds = epoch, dict(rows), seconds

    def __repr__(self) -> str:
        rows = ", ".join(f"{table}: {count:,} rows" for table, count in self.rows.items())
        return f"{self.path}: a checkpoint at epoch {self.epoch} ({rows}), made and read back in {self.seconds:.1f} s"
