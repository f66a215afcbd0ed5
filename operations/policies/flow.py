"""The flow of rows through the last epochs: how many arrived, how long they waited, and the work that they were."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from streamstate.operations.policies.cost_model import Work
from streamstate.operations.policies.decision import Observed

_IDLE = 0.5
_BEFORE = 1.0
"""Seconds before a full epoch in which the rate is looked for."""


class Flow:
    """Arrivals and waits of consecutive epochs, oldest first; all lists have an element for each.

    Args:
        observed: the epochs.
        trigger: seconds between two triggers; 0: as data arrives.
        rate: rows that arrived in a second before, in case that all epochs are full.
    """

    def __init__(self, observed: Sequence[Observed], trigger: float = 0.0, rate: float = 0.0) -> None:
        gaps = (at for at in range(len(observed) - 1, 0, -1) if observed[at].epoch != observed[at - 1].epoch + 1)
        self.observed = observed[next(gaps, 0) :]
        self.trigger = trigger
        self.began = [epoch.began.timestamp() for epoch in self.observed]
        """When each epoch was planned, in seconds since 1970."""
        self.seconds = [epoch.load.seconds for epoch in self.observed]
        self.read = list(accumulate(epoch.load.rows for epoch in self.observed))
        """The rows that were read by the end of each epoch."""
        told = [sum([source.backlog_rows or 0 for source in epoch.load.sources]) for epoch in self.observed]
        self.arrived = self._estimated([read + more for read, more in zip(self.read, told, strict=True)], rate)
        """The rows that had arrived when each epoch was planned; an estimate for an epoch that is full."""
        self.waiting = [arrived - read for read, arrived in zip(self.read, self.arrived, strict=True)]
        """The rows that waited in the sources beyond those that the epoch read; 0 if they do not tell."""

    @property
    def full(self) -> bool:
        """True if an unknown number of rows waits."""
        return self.observed[-1].full

    def _estimated(self, arrived: list[int], rate: float) -> list[int]:
        """Return the rows that had arrived, with estimates for full epochs: at least one row more than they read.

        How many arrived since a full epoch is known from the first one that is not. Until then, they are expected to
        arrive as they did before.
        """
        known = [at for at, epoch in enumerate(self.observed) if not epoch.full]
        if len(known) == len(arrived):
            return arrived
        known, times = known or [0], self.began
        last = known[-1]
        start = next((at for at in reversed(known) if times[last] - times[at] >= _BEFORE), known[0])
        if start < last:
            rate = (arrived[last] - arrived[start]) / (times[last] - times[start])
        between = np.interp(times, [times[at] for at in known], [arrived[at] for at in known])
        found: list[int] = []
        for at, epoch in enumerate(self.observed):
            rows = arrived[at]
            if epoch.full:
                expected = between[at] if at < last else arrived[last] + rate * (times[at] - times[last])
                rows = max(round(float(expected)), rows + 1)
            found.append(max(rows, found[-1] if found else 0))
        return found

    def rate(self, horizon: float, at: int = -1, *, least: int = 1) -> float:
        """Return the rows that arrived in a second, over the last epochs that cover so many seconds."""
        last = range(len(self.began))[at]
        start = max(last - least, 0)
        while start > 0 and self.began[last] - self.began[start] < horizon:
            start -= 1
        seconds = self.began[last] - self.began[start]
        return max(self.arrived[last] - self.arrived[start], 0) / seconds if seconds > 0 else 0.0

    def latency(self, at: int = -1) -> float:
        """Return the seconds from the arrival of an epoch's oldest row to its commit."""
        index = range(len(self.began))[at]
        if index == 0:
            return self.seconds[0]
        before = index - 1
        interval = self.began[index] - self.began[before]
        if not self.waiting[before]:
            idle = interval - max(self.seconds[before], self.trigger) > _IDLE
            # An idle query looked for rows until just before, and found none.
            return self.seconds[index] + (min(self.trigger, interval) if idle else interval)
        oldest, since = self.read[before], before
        while since > 0 and self.arrived[since - 1] > oldest:
            since -= 1
        first = max(since - 1, 0)
        arrival = float(np.interp(oldest, self.arrived[first : since + 1], self.began[first : since + 1]))
        return self.began[index] - arrival + self.seconds[index]


def works(observed: Sequence[Observed]) -> list[Work]:
    """Return the work of epochs without the first ones of a start."""
    found = []
    for epoch in observed:
        if not epoch.first:
            rows = epoch.load.rows
            dropped = rows * dropped_share(epoch)
            found.append(Work(rows - dropped, dropped, epoch.load.seconds))
    return found


def dropped_share(epoch: Observed) -> float:
    """Return the share of its rows that an epoch dropped."""
    shed = epoch.load.shed
    return sum(shed.dropped.values()) / shed.rows if shed and shed.rows else 0.0


def state_bytes(epoch: Observed) -> int:
    """Return the size of an epoch's state, in memory and in RocksDB's files."""
    return sum(
        operator.memory_bytes + operator.stores.get("rocksdbSstFileSize", 0) for operator in epoch.load.operators
    )
