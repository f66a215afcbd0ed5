"""What a saved file holds, and what it lacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["BUDGET", "SaveReport"]

BUDGET = 5_000_000
"""Bytes that a file may have unless it is said."""


@dataclass(frozen=True)
class SaveReport:
    """What :meth:`View.save <streamstate.widgets.View.save>` did.

    Attributes:
        path: the file.
        size: its bytes.
        budget: the bytes it was allowed.
        epochs: the epochs that it holds, ascending; empty for a view that has none.
        drawings: how many different drawings it can show.
        left_out: what it does not hold and why, a sentence each; the file says the same.

    Example:
        >>> print(SaveReport(Path("delays.html"), 81_224, 5_000_000, (0, 1, 2), 40))
        delays.html: 81,224 of 5,000,000 bytes · 3 epochs · 40 drawings
    """

    path: Path
    size: int
    budget: int
    epochs: Sequence[int] = ()
    drawings: int = 1
    left_out: Sequence[str] = field(default=())

    def __str__(self) -> str:
        parts = [f"{self.path}: {self.size:,} of {self.budget:,} bytes"]
        parts += [f"{len(self.epochs):,} epoch{'s' if len(self.epochs) != 1 else ''}"] if self.epochs else []
        parts.append(f"{self.drawings:,} drawing{'s' if self.drawings != 1 else ''}")
        return "\n".join([" · ".join(parts), *self.left_out])
