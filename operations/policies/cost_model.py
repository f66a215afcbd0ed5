"""The cost of an epoch, fitted to the last epochs, and the latency that follows from it in the long run.

An epoch takes ``fixed + kept × per_kept + dropped × per_dropped`` seconds, times a noise. While it runs, the rows of
the next one arrive; so an epoch takes ``fixed / (1 - rho)`` seconds once the lengths settle, with ``rho`` the work that
arrives in a second, and its oldest row waits for about two epochs (as DS2 derives the true rate of an operator from
what it does while it is busy, OSDI 2018).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

HALF_LIFE = 40
"""An epoch counts half as much as one that is so many epochs younger."""
_DROP_COST = 0.1
"""The cost of a dropped row, in kept ones, until epochs with both tell."""
_PRIOR = 0.1
"""The weight of the assumptions, in epochs."""
_NOISE = 0.05
"""The least noise that is assumed."""
RESERVE = 1.65
"""Standard deviations that are kept in reserve: 95 of 100 epochs are within them."""
_RECENT = 5
_BISECTIONS = 24
_ITERATIONS = 4


@dataclass(frozen=True)
class Work:
    """The work of one epoch: the rows that it kept and dropped, and its seconds."""

    kept: float
    dropped: float
    seconds: float


@dataclass(frozen=True)
class CostModel:
    """The cost of an epoch.

    Attributes:
        fixed: seconds of an epoch without rows.
        per_kept, per_dropped: seconds of a row.
        noise: the relative error of the model: the standard deviation of measured by modelled seconds.
        epochs: the number of epochs that it was fitted to.
    """

    fixed: float
    per_kept: float
    per_dropped: float
    noise: float = _NOISE
    epochs: int = 0

    @classmethod
    def fitted(cls, works: Sequence[Work]) -> CostModel | None:
        """Return the model of these epochs, oldest first; None if there are none with rows.

        Least squares of the relative errors, younger epochs and those that are not outliers counting more (Huber's
        weights, iterated). Two weak assumptions decide what the epochs cannot tell apart.
        """
        rows = np.array([(1.0, work.kept, work.dropped) for work in works if work.kept + work.dropped > 0])
        seconds = np.array([max(work.seconds, 1e-3) for work in works if work.kept + work.dropped > 0])
        if not len(seconds):
            return None
        scale = float((rows[:, 1] + rows[:, 2]).mean())
        rows[:, 1:] /= scale
        age = 0.5 ** (np.arange(len(seconds))[::-1] / HALF_LIFE)
        level = float(np.average(seconds, weights=age))
        # Half of the shortest epoch is fixed; a dropped row costs a tenth of a kept one.
        prior = np.array([(1.0, 0.0, 0.0), (0.0, -_DROP_COST, 1.0)]) / level
        assumed = _PRIOR * prior.T @ prior
        wanted = _PRIOR * prior.T @ np.array([seconds.min() / 2 / level, 0.0])
        expected, errors, costs = seconds, np.zeros(len(seconds)), np.zeros(3)
        for _ in range(_ITERATIONS):
            usual = 1.5 * max(_median(errors), _NOISE)
            weights = age * np.minimum(1.0, usual / np.maximum(errors, 1e-9)) / expected**2
            weighted = rows * weights[:, None]
            left, right = weighted.T @ rows + assumed, weighted.T @ seconds + wanted
            costs = _within_bounds(np.linalg.solve(left, right), level)
            expected = rows @ costs
            errors = np.abs(np.log(seconds / expected))
        ratios = seconds / expected
        noise = math.sqrt(float(np.average(np.minimum(errors, 1.0) ** 2, weights=age)))
        recent = _median(ratios[-_RECENT:])
        # What the last epochs took longer by than the noise explains, as beside another load on the machine.
        drift = recent if len(ratios) >= _RECENT and abs(math.log(recent)) > 2 * max(noise, _NOISE) else 1.0
        fixed, kept, dropped = (float(cost) * drift for cost in costs)
        return cls(fixed, kept / scale, dropped / scale, max(noise, _NOISE), len(seconds))

    def seconds(self, kept: float, dropped: float = 0.0) -> float:
        """Return the seconds of an epoch with these rows."""
        return self.fixed + kept * self.per_kept + dropped * self.per_dropped

    def per_row(self, kept: float) -> float:
        """Return the seconds of an average row, if this share of all rows is kept."""
        return kept * self.per_kept + (1.0 - kept) * self.per_dropped

    def latency(
        self, rate: float, kept: float = 1.0, *, trigger: float = 0.0, speed: float = 1.0, reserve: float = RESERVE
    ) -> float:
        """Return the latency that 95 of 100 epochs stay within, once they settle; infinite if they grow.

        Args:
            rate: rows that arrive in a second.
            kept: the share of all rows that is kept.
            trigger: seconds between two triggers; 0: as data arrives.
            speed: how many times faster rows are processed.
            reserve: the standard deviations of noise that are added; 0: the latency of a usual epoch.
        """
        work = rate * self.per_row(kept) / speed
        paced = (self.fixed + work * trigger) * (1 + reserve * self.noise)
        if paced <= trigger:
            return trigger + paced
        return self._settled(work, reserve)

    def _settled(self, work: float, reserve: float) -> float:
        """Return the same for epochs that follow each other at once, if so many seconds of work arrive in a second.

        Lengths follow d' = (fixed + work·d)·e with a lognormal noise e. The mean and the variance of two lengths
        together follow from its first two moments; a lognormal distribution with these gives the quantile.
        """
        first, second = (math.exp(self.noise**2 / 2), math.exp(2 * self.noise**2)) if reserve else (1.0, 1.0)
        if first * work >= 1 or second * work**2 >= 1:
            return math.inf
        mean = first * self.fixed / (1 - first * work)
        square = second * (self.fixed**2 + 2 * self.fixed * work * mean) / (1 - second * work**2)
        following = first * (self.fixed * mean + work * square)
        variance = max(2 * (square + following) - 4 * mean**2, 0.0)
        spread = math.sqrt(math.log1p(variance / (4 * mean**2)))
        return 2 * mean * math.exp(reserve * spread - (spread**2 / 2 if reserve else 0.0))


def _median(values: np.ndarray) -> float:
    return float(np.sort(values)[len(values) // 2])


def _within_bounds(costs: np.ndarray, level: float) -> np.ndarray:
    """Return costs that are positive, a dropped row costing no more than a kept one."""
    kept = max(float(costs[1]), 0.02 * level)
    return np.array([max(float(costs[0]), 0.02 * level), kept, min(max(float(costs[2]), 0.0), kept)])


def largest(holds: Callable[[float], bool], low: float, high: float) -> float | None:
    """Return the largest number between two bounds for which something holds that holds below it; None if none."""
    if holds(high):
        return high
    if not holds(low):
        return None
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
