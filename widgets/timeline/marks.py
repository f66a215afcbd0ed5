"""What happened between epochs: gaps, restarts, and forks that start here or led here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from streamstate.widgets.timeline.points import Point

if TYPE_CHECKING:
    from streamstate.snapshots.lineage import Lineage

__all__ = ["RULES", "Fork", "Marks", "forks", "marks"]

RULES = 100
"""Restarts that are marked; the newest, where there were more."""


@dataclass(frozen=True)
class Fork:
    """A place where one query's history becomes two: after ``epoch``, to or from the query ``other``."""

    epoch: int
    other: str
    outwards: bool

    def __str__(self) -> str:
        return f"Forked {'into' if self.outwards else 'from'} {self.other} after epoch {self.epoch}."


@dataclass(frozen=True)
class Marks:
    """Everything that is marked among some epochs.

    Attributes:
        gaps: inclusive runs of epochs that Spark had purged before they were captured; where there are more than
            :data:`RULES`, those of one bin are one.
        missing: how many epochs that are.
        restarts: the first epochs of new runs of the query, the newest :data:`RULES` of them.
        restarted: how many there were.
        forks: where the history divides.
    """

    gaps: Sequence[tuple[int, int]] = ()
    missing: int = 0
    restarts: Sequence[int] = ()
    restarted: int = 0
    forks: Sequence[Fork] = ()


def marks(single: Sequence[Point], shown: Sequence[Point], divided: Sequence[Fork]) -> Marks:
    """The marks among some epochs.

    Args:
        single: the epochs, a point each.
        shown: the same in bins, or the same points.
        divided: all forks of the query.
    """
    restarts = list(_restarts(single))
    runs = list(_runs(single))
    first, last = single[0].first, single[-1].last
    return Marks(
        runs if len(runs) <= RULES else list(_runs(shown)),
        sum(len(point.gaps) for point in single),
        restarts[-RULES:],
        len(restarts),
        [fork for fork in divided if first - 1 <= fork.epoch <= last],
    )


def forks(lineage: Lineage, name: str) -> list[Fork]:
    """Where a query was forked, and where it is a fork itself."""
    kin = lineage.of(name)
    own = [(kin.parent_epoch, kin.parent)] if kin and kin.parent else []
    others = [(kin.parent_epoch, kin.name) for kin in lineage.forks_of(name)]
    found = [(epoch, other, False) for epoch, other in own] + [(epoch, other, True) for epoch, other in others]
    return [Fork(epoch, other, outwards=outwards) for epoch, other, outwards in found if epoch is not None]


def _restarts(single: Sequence[Point]) -> Iterator[int]:
    """Epochs whose run is another than that of the one before; where the run is not known, nothing is claimed."""
    known = [point for point in single if point.run is not None]
    yield from (after.first for before, after in pairwise(known) if before.run != after.run)


def _runs(shown: Sequence[Point]) -> Iterator[tuple[int, int]]:
    """Neighbouring gaps as one; those of one bin too, with what lies between them."""
    run: tuple[int, int] | None = None
    for point in shown:
        if not point.gaps:
            continue
        if run and point.gaps[0] == run[1] + 1:
            run = run[0], point.gaps[-1]
            continue
        if run:
            yield run
        run = point.gaps[0], point.gaps[-1]
    if run:
        yield run
