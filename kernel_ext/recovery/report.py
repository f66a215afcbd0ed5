"""What a rescale did, as a person reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

__all__ = ["RescaleReport"]


@dataclass(frozen=True)
class RescaleReport:
    """What :func:`streamstate.rescale` did.

    Example:
        >>> report = ss.rescale("checkpoints/delays", 8)  # doctest: +SKIP
        >>> report.partitions, report.epoch, report.skew  # doctest: +SKIP
        ((2, 8), 41, (1.02, 1.07))
    """

    checkpoint: str
    """The query's checkpoint."""
    partitions: tuple[int, int]
    """How many there were and how many there are."""
    epoch: int
    """The epoch that spread the state anew; it read no input. The query goes on with the next one."""
    rows: Mapping[str, int]
    """Rows of each state table, the same before and after."""
    spread_before: Mapping[str, Sequence[int]] = field(repr=False)
    """For each state table, how many rows each of its partitions had."""
    spread_after: Mapping[str, Sequence[int]] = field(repr=False)
    """The same afterwards."""
    seconds_spreading: float
    """Seconds in which Spark wrote the state anew."""
    seconds_verifying: float
    """Seconds in which both states were read and compared, key by key."""
    seconds: float
    """Seconds from the call until the query could go on."""

    @property
    def skew(self) -> tuple[float, float]:
        """How many times the rows of an average partition the fullest one had, and has; 1 is even."""
        return _skew(self.spread_before), _skew(self.spread_after)

    def __repr__(self) -> str:
        lines = [f"RescaleReport: {self._headline}", *(f"  {line}" for line in self._tables)]
        return "\n".join([*lines, f"  {self._times}"])

    def _repr_html_(self) -> str:
        items = "".join(f"<li>{escape(line)}</li>" for line in (*self._tables, self._times))
        return f"<p>{escape(self._headline)}</p><ul>{items}</ul>"

    @property
    def _headline(self) -> str:
        before, after = self.partitions
        return (
            f"{before} partitions became {after} in epoch {self.epoch}; {sum(self.rows.values()):,} rows of state,"
            " the same key by key"
        )

    @property
    def _tables(self) -> list[str]:
        return [
            f"{name}: {rows:,} rows; fullest partition {max(self.spread_before[name], default=0):,}"
            f" → {max(self.spread_after[name], default=0):,}"
            for name, rows in self.rows.items()
        ]

    @property
    def _times(self) -> str:
        return (
            f"{self.seconds:.1f} s: {self.seconds_spreading:.1f} s spreading, {self.seconds_verifying:.1f} s verifying"
        )


def _skew(spread: Mapping[str, Sequence[int]]) -> float:
    """Of all tables together, because one task works on one partition of all of them."""
    sums = [sum(rows) for rows in zip(*spread.values(), strict=False)]
    return max(sums) * len(sums) / sum(sums) if sum(sums) else 1.0
