"""A checkpoint that was made from rows of state."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class WrittenCheckpoint(os.PathLike[str]):
    """A checkpoint that was made from rows; it can be passed wherever a checkpoint's path can.

    Attributes:
        checkpoint: its path or URI.
        epoch: the epoch whose state it has; its query runs the one after it next.
        rows: the number of rows of each state table.
        seconds: how long it took, reading back included.
    """

    checkpoint: str
    epoch: int
    rows: Mapping[str, int] = field(hash=False)
    seconds: float = field(compare=False)

    def __fspath__(self) -> str:
        return self.checkpoint

    def __repr__(self) -> str:
        rows = ", ".join(f"{table}: {count:,} rows" for table, count in self.rows.items())
        return f"{self.checkpoint}: epoch {self.epoch} ({rows}), made and read back in {self.seconds:.1f} s"
