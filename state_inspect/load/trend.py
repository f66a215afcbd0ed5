"""The trend of a growing level, and the time after which it reaches a limit.

The rate of growth is a function of the level. Where it does not depend on it, the level grows along a line (Theil and
Sen: the median of the slopes between all pairs of points). A state that keeps keys slows down while it grows, since
fewer and fewer keys are new; there two laws are fitted, a rate that falls with the level as a power (Heaps' law), and
exponentially, and the forecast is between them. Kendall's rank correlation decides whether the rate depends on the
level. All fits are medians, so that single epochs do not matter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

Numbers = np.ndarray[Any, np.dtype[np.float64]]
_Law = Callable[[Numbers], Numbers]

FEWEST = 8
"""The fewest levels that show a trend."""
_BLOCKS = 12
_FEWEST_BLOCKS = 3
_FEWEST_PACES = 4
_A_BLOCK = 3
"""The fewest levels in a block."""
_SLOWER, _FASTER = -0.15, 0.45
"""Rank correlations from which the rate depends on the level. States that keep keys usually grow slower, so weak
evidence is enough; ever faster growth is rare, and chance exceeds 0.45 in one of forty cases."""
_MOST = 400
"""Levels that a line is fitted to; of more, as many at equal distances."""
_SAMPLES = 300
_WITHIN = (0.05, 0.95)
_PARTS = (0.5, 0.6, 0.7, 0.8)
"""The parts of a history from which forecasts of its end are made."""
_NEWEST = 3
"""A law's rate is that of the newest part of so many; its shape is that of the whole history."""
_STEPS = 64


@dataclass(frozen=True)
class Ahead:
    """The seconds until a limit is reached.

    Attributes:
        seconds: by the trend; infinite if it does not lead there.
        earliest, latest: the bounds of most forecasts from resampled parts of the history, wider if forecasts from its
            earlier parts would have been wrong by more.
    """

    seconds: float
    earliest: float
    latest: float


def clock(times: Numbers, epochs: Numbers, levels: Numbers) -> Numbers:
    """Return the times of epochs, made even if that is what the level grows by.

    A level can grow by the epoch while the pace of the epochs varies: where a query replays its input, and in its first
    epochs, which are slow. The epochs to come then have the pace of the newest ones.
    """
    newest = times[-max(len(times) // _NEWEST, _FEWEST_PACES + 1) :]
    even = (epochs - epochs[-1]) * float(np.median(np.diff(newest)))
    return even if 2 * _roughness(even, levels) < _roughness(times, levels) else times


def _roughness(times: Numbers, levels: Numbers) -> float:
    """Return by how much the rate of growth changes from one part of a history to the next: the mean logarithm."""
    few = len(levels) < _BLOCKS * _A_BLOCK
    rates = np.diff(levels) / np.maximum(np.diff(times), 1e-9) if few else _blocks(times, levels)[1]
    return float(np.abs(np.diff(np.log(rates))).mean()) if (rates > 0).all() and len(rates) > 1 else np.inf


def ahead(times: Numbers, levels: Numbers, limit: float) -> Ahead:
    """Return the time from the last level until the limit is reached.

    Args:
        times: seconds, ascending; at least :data:`FEWEST`.
        levels: the level at each time.
        limit: the limit, above the last level.
    """
    found = _forecasts(times, levels, limit)
    seconds = float(found[0])
    earliest, latest = np.quantile(found[1:], _WITHIN, method="nearest")
    wrong = _wrong_before(times, levels)
    if not np.isfinite(wrong):  # it has reached a level that it was never to reach
        return Ahead(seconds, 0.0, float(np.inf))
    return Ahead(seconds, min(float(earliest), seconds / wrong), max(float(latest), seconds * wrong))


def _wrong_before(times: Numbers, levels: Numbers) -> float:
    """Return the largest factor by which forecasts of the highest level, from earlier parts, are wrong."""
    reached = int(np.argmax(levels))
    factors = [1.0]
    for part in _PARTS:
        known = int(reached * part)
        actual = times[reached] - times[known - 1]
        if known >= FEWEST and levels[reached] > levels[:known].max():
            forecast = float(_forecasts(times[:known], levels[:known], float(levels[reached]), samples=0)[0])
            factors.append(max(forecast / actual, actual / max(forecast, 1e-9)))
    return max(factors)


def _forecasts(times: Numbers, levels: Numbers, limit: float, samples: int = _SAMPLES) -> Numbers:
    """Return the seconds until the limit is reached, and those by resampled parts of the history."""
    window = _growing(times, levels)
    times, levels = times[window:], levels[window:]
    middles, rates, spans = _blocks(times, levels)
    laws: tuple[_Law, ...] = ()
    if len(rates) >= _BLOCKS // 2 and (rates > 0).all() and (middles > 0).all():
        depends = _rank_correlation(middles, rates)
        if depends <= _SLOWER:
            laws = (np.log, _itself)
        elif depends >= _FASTER:
            laws = (np.log,)
    count = len(rates)
    chosen = np.random.default_rng(0).integers(0, count, (samples, count))
    chosen = np.concatenate([np.arange(count)[None, :], np.sort(chosen)])
    if laws:
        steps = np.linspace(float(levels[-1]), limit, _STEPS + 1)
        return _between([_curved(law, middles, rates, chosen, steps) for law in laws])
    slope, above = _line(times, levels)
    slopes = (rates * spans)[chosen].sum(axis=1) / spans[chosen].sum(axis=1)
    slopes[0] = slope
    return _at_rate(slopes, limit - above)


def _growing(times: Numbers, levels: Numbers) -> int:
    """Return from where on the level grows, if it mostly did not before: a backlog is zero until then."""
    _, rates, _ = _blocks(times, levels)
    still = np.flatnonzero(rates <= 0)
    quiet = int(still[-1]) + 1 if len(still) else 0
    if len(still) * 2 <= quiet or len(rates) - quiet < _FEWEST_BLOCKS:
        return 0
    return len(levels) * (quiet + 1) // (len(rates) + 1)


def _blocks(times: Numbers, levels: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Return the middle levels, rates and lengths of parts of a history, each between the medians of two blocks."""
    count = min(_BLOCKS + 1, max(len(levels) // _A_BLOCK, 2))
    edges = np.linspace(0, len(levels), count + 1).astype(int)
    parts = [slice(start, end) for start, end in pairwise(edges)]
    at = np.array([np.median(times[part]) for part in parts])
    level = np.array([np.median(levels[part]) for part in parts])
    spans = np.maximum(np.diff(at), 1e-9)
    return (level[1:] + level[:-1]) / 2, np.diff(level) / spans, spans


def _line(times: Numbers, levels: Numbers) -> tuple[float, float]:
    """Return a line's slope, and its level at the last time, raised to the upper levels of the newest quarter."""
    some = np.unique(np.linspace(0, len(times) - 1, min(len(times), _MOST)).astype(int))
    at, level = times[some] - times[-1], levels[some]
    slope = float(_slopes(at[None, :], level[None, :])[0])
    newest = -(-len(at) // 4)
    return slope, float(np.quantile((level - slope * at)[-newest:], 0.9))


def _at_rate(rates: Numbers, distance: float) -> Numbers:
    with np.errstate(divide="ignore"):
        return np.where(rates > 0, max(distance, 0.0) / np.where(rates > 0, rates, 1.0), np.inf)


def _curved(law: _Law, middles: Numbers, rates: Numbers, chosen: Any, levels: Numbers) -> Numbers:
    """Return the seconds for each choice of blocks: the sum of what each step of the level takes at its rate."""
    x, y = law(middles)[chosen], np.log(rates)[chosen]
    slope = _slopes(x, y)
    newest = -(-x.shape[1] // _NEWEST)
    height = np.median((y - slope[:, None] * x)[:, -newest:], axis=1)
    with np.errstate(over="ignore"):
        pace = np.exp(-(height[:, None] + slope[:, None] * law((levels[1:] + levels[:-1]) / 2)))
        found: Numbers = (pace * np.diff(levels)).sum(axis=1)
    return found


def _between(forecasts: list[Numbers]) -> Numbers:
    """Return the geometric means."""
    means: Numbers = np.exp(np.mean(np.log(np.maximum(forecasts, 1e-9)), axis=0))
    return means


def _slopes(x: Numbers, y: Numbers) -> Numbers:
    """Return the median slope between all pairs of the points in each row; 0 if all have one place."""
    left, right = np.triu_indices(x.shape[1], 1)
    run = x[:, right] - x[:, left]
    with np.errstate(divide="ignore", invalid="ignore"):
        slopes = np.where(run == 0, np.nan, (y[:, right] - y[:, left]) / run)
    empty = np.isnan(slopes).all(axis=1)
    slopes[empty] = 0.0
    found: Numbers = np.nanmedian(slopes, axis=1)
    return found


def _rank_correlation(x: Numbers, y: Numbers) -> float:
    left, right = np.triu_indices(len(x), 1)
    return float(np.mean(np.sign(x[right] - x[left]) * np.sign(y[right] - y[left])))


def _itself(levels: Numbers) -> Numbers:
    return levels
