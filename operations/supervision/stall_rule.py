"""The rule that says how long an epoch may take, from those before it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable

FEWEST = 5
"""Epochs that must be known before any epoch counts as long."""
COLD, COLD_EPOCHS = 3.0, 2
"""The first epochs after a start, which compile plans and load state, may take so many times as long."""
_RECENT = 100
_QUANTILE = 0.95


class Pace:
    """How long the epochs of a query take, and how long it has been busy with the present one.

    Busy time is counted from the last sign of something else: a finished epoch, an idle look, or the start. Usual is
    the 95th percentile of the last 100 epochs, so that a few very long ones hide no stall, and regularly long ones
    raise no alarm. The window follows a query that grows.

    Args:
        factor: times the usual that an epoch may take.
        floor: seconds that it may take in any case.
        now: the time of the start in seconds, of a monotonic clock.
    """

    def __init__(self, factor: float, floor: float, now: float) -> None:
        self._factor, self._floor = factor, floor
        self._seconds: deque[float] = deque(maxlen=_RECENT)
        self.begin_run(now)

    def know(self, seconds: Iterable[float]) -> None:
        """Take note of what earlier epochs took."""
        self._seconds.extend(seconds)

    def begin_run(self, now: float) -> None:
        """Begin again, with what is known of the epochs."""
        self._since, self._epoch, self._in_run = now, -1, 0

    def looked(self, now: float, *, busy: bool, epoch: int | None = None, seconds: float = 0.0) -> None:
        """Take note of a look at the query.

        Args:
            now: the time of the look.
            busy: whether it works on an epoch, and does not wait for data or its trigger.
            epoch: the newest epoch that it finished in this run; None: none.
            seconds: what that took.
        """
        if epoch is not None and epoch != self._epoch:
            self._epoch = epoch
            self._in_run += 1
            if self._in_run > COLD_EPOCHS:
                self._seconds.append(seconds)
            self._since = now
        if not busy:
            self._since = now

    def busy_for(self, now: float) -> float:
        """Return for how many seconds the query has been busy with one epoch."""
        return now - self._since

    @property
    def usual(self) -> float | None:
        """What an epoch usually takes at most, in seconds; None if too few are known."""
        if len(self._seconds) < FEWEST:
            return None
        return sorted(self._seconds)[math.ceil(_QUANTILE * len(self._seconds)) - 1]

    @property
    def bound(self) -> float | None:
        """The seconds that the present epoch may take; None if that is not known."""
        usual = self.usual
        if usual is None:
            return None
        return max(self._factor * usual, self._floor) * (COLD if self._in_run < COLD_EPOCHS else 1.0)
