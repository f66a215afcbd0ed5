"""Comparing the run that was killed with the one that was not, in the process that has Spark at hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.checkpoint import Checkpoint
from streamstate.snapshots.same_state import StateAt, TableDifference, differing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Comparison", "compare", "same_batches"]


@dataclass(frozen=True)
class Comparison:
    """What two runs over the same input have, and have not, in common."""

    epoch: int
    """The last epoch of the run that was killed."""
    undisturbed_epoch: int
    """That of the other."""
    aligned: bool
    """Whether each epoch of the one took in the same input as that epoch of the other."""
    first: int | None
    """The epoch at which the states part: equal before, different after; None where that is not known."""
    differences: tuple[dict[str, Any], ...]
    """What differs at ``first``, or where that is not known at the end: :class:`TableDifference` in plain values."""


def compare(spark: SparkSession, undisturbed: str, drilled: str, epochs: int | None) -> Comparison:
    """Compare the states at the end, and where they differ find the epoch at which they part.

    Args:
        spark: the session whose cluster compares.
        undisturbed: the checkpoint of the run that was not killed.
        drilled: the checkpoint of the one that was.
        epochs: how many epochs count; None: all.
    """
    one, other = Checkpoint(undisturbed, spark), Checkpoint(drilled, spark)
    ends = [_counted(each, epochs)[-1] for each in (one, other)]
    aligned = ends[0] == ends[1] and same_batches(one, other, ends[0])
    found = differing(spark, StateAt(undisturbed, ends[0]), StateAt(drilled, ends[1]))
    first = None
    if found and aligned:
        shared = sorted({*_counted(one, epochs)} & {*_counted(other, epochs)})
        first, found = _parting(spark, undisturbed, drilled, shared, found)
    return Comparison(ends[1], ends[0], aligned, first, tuple(asdict(each) for each in found))


def same_batches(one: Checkpoint, other: Checkpoint, last: int) -> bool:
    """Whether all epochs up to the last took in the same, as far as both checkpoints still tell."""
    return all(left == right for left, right in zip(_batches(one, last), _batches(other, last), strict=True))


def _batches(checkpoint: Checkpoint, last: int) -> Iterator[tuple[object, object] | None]:
    """Each epoch's end offsets, and the files that a file source's offsets stand for."""
    sources = None
    for epoch in range(last + 1):
        planned = checkpoint.planned(epoch)
        if planned is not None:
            sources = checkpoint.sources(planned.offsets, sources)
        yield None if planned is None else (planned.offsets, sources)


def _counted(checkpoint: Checkpoint, epochs: int | None) -> list[int]:
    return [epoch for epoch in checkpoint.committed() if epochs is None or epoch < epochs]


def _parting(
    spark: SparkSession, undisturbed: str, drilled: str, epochs: list[int], at_the_end: list[TableDifference]
) -> tuple[int, list[TableDifference]]:
    """The epoch before which the states are equal and after which they differ, found by bisection, and how."""
    equal, parted, found = -1, len(epochs) - 1, at_the_end
    while parted - equal > 1:
        middle = (equal + parted) // 2
        differences = differing(spark, StateAt(undisturbed, epochs[middle]), StateAt(drilled, epochs[middle]))
        if differences:
            parted, found = middle, differences
        else:
            equal = middle
    return epochs[parted], found
