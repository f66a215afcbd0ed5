"""How much is measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """Keys in the state, keys that an epoch changes, epochs that are measured; partitions and stores, where many."""

    keys: int
    changes: int
    epochs: int
    partitions: int = 200
    stores: int = 200

    def __str__(self) -> str:
        """For the table."""
        return f"{self.keys:,} keys, {self.changes:,} changes an epoch"
