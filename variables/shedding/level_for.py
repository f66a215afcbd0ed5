"""A level from what a policy says: which rows are kept, what share of the others, and which of them are useful."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

from streamstate.errors import InvalidArgumentError
from streamstate.variables.shedding.kept_predicate import KeptPredicate, kept_predicate
from streamstate.variables.shedding.level import ALL, MOST, Level, is_number


@dataclass(frozen=True)
class _Interval:
    """An interval, from a value to the next interval.

    Attributes:
        start: its least value.
        protected: whether all of its rows are kept.
        utility: how useful its rows are.
    """

    start: float
    protected: bool
    utility: float


def level_for(
    keep: str | None = None,
    kept: float = 1.0,
    utility: Sequence[tuple[float, float]] | None = None,
    *,
    rows: Sequence[int] | None = None,
) -> dict[str, Any]:
    """Return a value of a query's level variable: ``variable.set(level_for("delay > 60", 0.25))``.

    Args:
        keep: the rows that are always kept, as comparisons of the column of values with numbers, joined by ``AND``,
            ``OR``, ``NOT``, ``BETWEEN`` and ``IN``.
        kept: the share that is kept of all other rows, from 0 to 1. It is rounded up to a multiple of 1/10000.
        utility: a loss-tolerance graph, as steps: ``[(0, 0.2), (60, 1.0)]`` says that values up to 60 have the utility
            0.2, and values from 60 on 1.0. The least useful rows are dropped first.
        rows: the rows of each interval of an earlier epoch, which ``utility`` needs: only then is it known how many
            rows each interval would save. Without them all rows that are not kept by ``keep`` are sampled alike.

    Returns:
        A dict of the intervals' bounds, the share of each in 1/10000, and the share of rows without a value.

    Raises:
        InvalidSQLError: ``keep`` is not such a predicate.
        InvalidArgumentError: another argument is invalid, or there are more than five intervals.

    Example:
        >>> from streamstate.shedding import level_for
        >>> level_for("delay >= 60", 0.25)
        {'bounds': [60.0], 'keep': [2500, 10000], 'base': 2500}
        >>> level_for(kept=0.25, utility=[(0, 0.2), (60, 1.0)], rows=[600, 400])
        {'bounds': [60.0], 'keep': [0, 6250], 'base': 2500}
    """
    if not (is_number(kept) and 0 <= kept <= 1):
        raise InvalidArgumentError(f"Invalid kept={kept!r}: expected a share from 0 to 1.")
    intervals = _intervals(None if keep is None else kept_predicate(keep), _steps(utility))
    shares = [1.0 if interval.protected else float(kept) for interval in intervals]
    if rows is not None:
        if len(rows) != len(intervals) or any(count < 0 for count in rows):
            raise InvalidArgumentError(f"Invalid rows={rows!r}: expected {len(intervals)} numbers, one per interval.")
        if utility is not None:
            shares = _least_useful_dropped(intervals, kept, rows)
    made = Level(tuple(interval.start for interval in intervals[1:]), tuple(map(_rounded, shares)), _rounded(kept))
    return made.value()


def _rounded(share: float) -> int:
    """Return a share in 1/10000, rounded up; what was rounded in computing it does not count."""
    return min(ALL, math.ceil(share * ALL - 1e-6))


def _steps(utility: Sequence[tuple[float, float]] | None) -> list[tuple[float, float]]:
    """Return the steps of a loss-tolerance graph, if it is valid."""
    if utility is None:
        return [(-math.inf, 1.0)]
    try:
        steps = [(float(start), float(useful)) for start, useful in utility]
    except (TypeError, ValueError):
        steps = []
    starts = [start for start, _ in steps]
    ascending = all(a < b for a, b in pairwise(starts))
    if not steps or not ascending or not all(math.isfinite(at) and 0 <= useful <= 1 for at, useful in steps):
        raise InvalidArgumentError(
            f"Invalid utility={utility!r}.\nExpected ascending values, each with the utility from there on, from 0 to"
            " 1, such as [(0, 0.2), (60, 1.0)]."
        )
    return [(-math.inf, steps[0][1]), *steps[1:]]


def _intervals(keep: KeptPredicate | None, steps: Sequence[tuple[float, float]]) -> list[_Interval]:
    """Return the intervals in which all values are alike."""
    starts = sorted({-math.inf, *(start for start, _ in steps), *(() if keep is None else keep.cuts)})
    found: list[_Interval] = []
    for start in starts:
        protected = keep is not None and keep.holds(start)
        useful = 1.0 if protected else next(useful for at, useful in reversed(steps) if at <= start)
        if not found or (found[-1].protected, found[-1].utility) != (protected, useful):
            found.append(_Interval(start, protected, useful))
    if len(found) > MOST:
        raise InvalidArgumentError(
            f"The predicate and the utilities make {len(found)} intervals of values; at most {MOST} are possible.\nJoin"
            " some, for example by BETWEEN instead of IN."
        )
    return found


def _least_useful_dropped(intervals: Sequence[_Interval], kept: float, rows: Sequence[int]) -> list[float]:
    """Return the shares that drop as many rows as a share of all would, the least useful first."""
    shares = [1.0] * len(intervals)
    numbers = [number for number, interval in enumerate(intervals) if not interval.protected]
    to_drop = (1 - kept) * sum(rows[number] for number in numbers)
    by_utility = sorted(numbers, key=lambda number: intervals[number].utility)
    for _, alike in groupby(by_utility, key=lambda number: intervals[number].utility):
        group = list(alike)
        present = sum(rows[number] for number in group)
        dropped = min(present, to_drop)
        to_drop -= dropped
        for number in group:
            shares[number] = 1.0 if not present else 1 - dropped / present
    return shares
