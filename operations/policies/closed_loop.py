"""A query as the controller sees it, simulated: rows arrive, epochs take what they cost, decisions act in the next one.

The dry run of a policy uses it with the costs of a recorded history.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from streamstate.operations.policies.controller_rules import WINDOW, Bottleneck, decide
from streamstate.operations.policies.decision import Decision, Levers, Observed
from streamstate.operations.policies.terms import PolicyTerms
from streamstate.snapshots.store.epoch_load import EpochLoad, ShedCounts, SourceLoad

_POLL = 0.1
START = datetime(2026, 1, 1, tzinfo=UTC)
"""The start of a simulated run."""


@dataclass(frozen=True)
class Cost:
    """The rows of an epoch, to say how long it takes."""

    epoch: int
    kept: float
    dropped: float
    levers: Levers


@dataclass(frozen=True)
class SimulatedEpoch:
    """One epoch of a closed loop.

    Attributes:
        observed: the epoch, as the controller saw it.
        began: seconds from the start until it was planned.
        rows, dropped: the rows that it read, and dropped.
        waiting: the rows that waited in the source when it was planned.
        limit: the most rows that it might read; None: no limit.
        latency: seconds from the arrival of its oldest row to its commit.
        decisions: what followed from it.
    """

    observed: Observed
    began: float
    rows: int
    dropped: int
    waiting: int
    limit: int | None
    latency: float
    decisions: tuple[Decision, ...]


@dataclass
class ClosedLoop:
    """Runs epochs over arrivals until the end.

    Attributes:
        arrived: the rows that have arrived after so many seconds.
        seconds: how long an epoch takes.
        levers: what is in force at the start.
        until: seconds after which no epoch begins.
        policy: the policy; None: nothing is decided.
        protected: the share of rows that are never dropped.
        first_epochs: epochs at the start that the controller ignores.
        tells_backlog: whether the source tells what waits.
        delay: epochs by which each decision acts later than in the next one.
    """

    arrived: Callable[[float], float]
    seconds: Callable[[Cost], float]
    levers: Levers
    until: float
    policy: PolicyTerms | None = None
    protected: float = 0.0
    first_epochs: int = 2
    tells_backlog: bool = True
    delay: int = 0
    bottleneck: Bottleneck | None = None
    decide: Callable[..., tuple[Decision, ...]] = decide

    def run(self) -> Iterator[SimulatedEpoch]:
        """Yield the epochs, one after another."""
        now, read, epoch = 0.0, 0, 0
        ahead = deque([self.levers] * self.delay)
        deciding, unknown = self.levers, False
        observed: list[Observed] = []
        past: list[Decision] = []
        warm_from: datetime | None = None
        while now < self.until:
            total = int(self.arrived(now))
            rows = total - read if self.levers.rows is None else min(total - read, self.levers.rows)
            if rows <= 0:
                now += self.levers.trigger or _POLL
                continue
            read += rows
            # A source that does not tell lists what it has, and reads that first: one short epoch proves nothing.
            filled = self.levers.rows is not None and rows >= self.levers.rows and not self.tells_backlog
            full, unknown = filled or unknown, filled
            dropped = round(rows * (1 - self.protected) * (1 - self.levers.kept))
            took = self.seconds(Cost(epoch, rows - dropped, dropped, self.levers))
            source = SourceLoad("simulated", rows, total - read if self.tells_backlog else None)
            load = EpochLoad(took, sources=(source,), shed=ShedCounts(rows, rows - dropped, {"level": dropped}))
            began, first = START + timedelta(seconds=now), epoch < self.first_epochs
            seen = Observed(epoch, began, load, self.levers.kept, first, full)
            warm_from = warm_from or seen.warm_from()
            seen = replace(seen, cold=began < warm_from)
            observed = [*observed[-WINDOW:], seen]
            decisions: tuple[Decision, ...] = ()
            if self.policy is not None:
                decisions = self.decide(self.policy, observed, deciding, past=past, bottleneck=self.bottleneck)
            past += decisions
            latency = _waited(self.arrived, now, read - rows) + took
            yield SimulatedEpoch(seen, now, rows, dropped, total - read, self.levers.rows, latency, decisions)
            deciding = moved(deciding, decisions)
            ahead.append(deciding)
            self.levers = ahead.popleft()
            now += max(took, self.levers.trigger)
            epoch += 1


def _waited(arrived: Callable[[float], float], now: float, oldest: int) -> float:
    """Return the seconds for which the oldest row has waited that is not among so many."""
    low, high = 0.0, now
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if arrived(middle) > oldest else (middle, high)
    return now - high


def moved(levers: Levers, decisions: Sequence[Decision]) -> Levers:
    """Return the levers after decisions."""
    for decision in decisions:
        if decision.lever == "shedding":
            levers = replace(levers, kept=float(decision.after or 0))
        elif decision.lever == "admission":
            levers = replace(levers, rows=None if decision.after is None else int(decision.after))
        elif decision.lever == "rescale":
            levers = replace(levers, partitions=int(decision.after or levers.partitions))
    return levers
