"""The controller of load policies on simulated queries: promises kept, rows dropped, reversals, and its own cost."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Measurement, Size, bounded
from streamstate.operations.policies.closed_loop import START, ClosedLoop, Cost, SimulatedEpoch
from streamstate.operations.policies.controller_rules import Bottleneck, decide
from streamstate.operations.policies.decision import Decision, Levers
from streamstate.operations.policies.policy import Policy

CAPACITY = 30_000.0
"""Rows a second that a simulated query can work off at most, on four cores."""
LATENCY = 5.0
OVERLOAD = ((60.0, 0.5, 0.5), (300.0, 2.0, 2.0), (120.0, 0.5, 0.5))
"""Half of the capacity for a minute, twice for five, half again: seconds, and the load at their begin and end."""
_FIRST_SECONDS = 3.0
_WARMS = 3.0
"""Epochs in which what a cold start costs more falls by a factor of e."""
_SLOW = 0.01
_MOST_EPOCHS = 20_000


class Plant:
    """The seconds of a simulated query's epochs.

    A fixed part, a kept and a dropped row's part, noise, one epoch in a hundred 1.8 times slower, and 3 s more for the
    first. The noise of an epoch depends on its number only, so that two runs of a seed have the same.

    Args:
        seed: decides the parts and the noise.
        cold: by how many times the first epoch takes longer, as long as Java is cold; the next ones less and less.
    """

    def __init__(self, seed: int, cold: float = 0.0) -> None:
        self.cold = cold
        random = np.random.default_rng(seed)
        self.fixed = random.uniform(0.1, 0.35)
        self.kept = 1 / CAPACITY
        self.dropped = random.uniform(0.01, 0.06) / CAPACITY
        self.noise = random.uniform(0.05, 0.15)
        self._normal, self._uniform = random.normal(0, 1, _MOST_EPOCHS), random.random(_MOST_EPOCHS)

    def __call__(self, cost: Cost) -> float:
        """Return the seconds of an epoch."""
        speed = min(cost.levers.partitions, cost.levers.cores) / 4
        seconds = self.fixed + (cost.kept * self.kept + cost.dropped * self.dropped) / speed
        seconds *= math.exp(self._normal[cost.epoch] * self.noise) * (1.8 if self._uniform[cost.epoch] < _SLOW else 1.0)
        seconds *= 1 + self.cold * math.exp(-cost.epoch / _WARMS)
        return float(seconds) + (_FIRST_SECONDS if cost.epoch == 0 else 0.0)

    def settled(self, load: float, kept: float) -> float:
        """Return twice the length that epochs settle at without noise: 2·fixed / (1 − rho)."""
        rho = load * CAPACITY * (kept * self.kept + (1 - kept) * self.dropped)
        return 2 * self.fixed / (1 - rho) if rho < 1 else math.inf


Phases = Sequence[tuple[float, float, float]]
"""Seconds, and the load at their begin and end, in capacities."""


def arrivals(phases: Phases) -> Callable[[float], float]:
    """Return the rows that have arrived after so many seconds."""
    times, rows = [0.0], [0.0]
    for seconds, begin, end in phases:
        for step in range(20):
            times.append(times[-1] + seconds / 20)
            rows.append(rows[-1] + seconds / 20 * CAPACITY * (begin + (end - begin) * (step + 0.5) / 20))
    return lambda now: float(np.interp(now, times, rows))


@dataclass(frozen=True)
class Run:
    """The epochs of a run over an overload, the second of its phases."""

    epochs: Sequence[SimulatedEpoch]
    phases: Phases = OVERLOAD

    @property
    def during(self) -> list[SimulatedEpoch]:
        """The epochs that began in the overload."""
        begin = self.phases[0][0]
        return [epoch for epoch in self.epochs if begin <= epoch.began < begin + self.phases[1][0]]

    @property
    def after(self) -> list[SimulatedEpoch]:
        """The epochs that began after it."""
        return [epoch for epoch in self.epochs if epoch.began >= self.phases[0][0] + self.phases[1][0]]

    @property
    def p95(self) -> float:
        """The latency that 95 of 100 epochs were within, from the third of the overload on."""
        return float(np.percentile([epoch.latency for epoch in self.during[2:]], 95))

    @property
    def worst_dropped(self) -> float:
        """The largest share of its rows that an epoch dropped."""
        return max(epoch.dropped / epoch.rows for epoch in self.epochs)

    @property
    def epochs_until_zero(self) -> int:
        """The epochs after the overload until nothing is dropped any more."""
        dropping = [at for at, epoch in enumerate(self.after) if epoch.observed.kept < 1]
        return dropping[-1] + 1 if dropping else 0

    @property
    def reversals(self) -> int:
        """The times that dropping turned from more to less, or back, from the overload on; its end makes one."""
        levels = [epoch.observed.kept for epoch in [*self.during, *self.after]]
        moves = [after > before for before, after in itertools.pairwise(levels) if after != before]
        return sum(one != other for one, other in itertools.pairwise(moves))


def run(
    seed: int,
    may_drop: float,
    *,
    can_limit: bool = False,
    tells_backlog: bool = True,
    delay: int = 0,
    protected: float = 0.0,
    cold: float = 0.0,
    phases: Phases = OVERLOAD,
    rules: Callable[..., tuple[Decision, ...]] = decide,
    policy: Policy | None = None,
    levers: Levers | None = None,
    bottleneck: Bottleneck | None = None,
) -> Run:
    """Run a simulated query with a policy of 5 s."""
    loop = ClosedLoop(
        arrived=arrivals(phases),
        seconds=Plant(seed, cold),
        levers=levers or Levers(can_shed=may_drop > 0, can_limit=can_limit, partitions=4, cores=4),
        until=sum(seconds for seconds, _, _ in phases),
        policy=policy or Policy(latency=LATENCY, may_drop=may_drop),
        protected=protected,
        tells_backlog=tells_backlog,
        delay=delay,
        bottleneck=bottleneck,
        decide=rules,
    )
    return Run(list(loop.run()), phases)


def foresight(phases: Phases = OVERLOAD) -> Callable[..., tuple[Decision, ...]]:
    """Return a controller that knows the phases, and drops all that it may from the first row of the overload on.

    No controller that keeps to ``may_drop`` has shorter epochs, so what it cannot hold cannot be held.
    """
    begin = phases[0][0]

    def rules(policy: Policy, observed: Sequence[Any], levers: Levers, **_: object) -> tuple[Decision, ...]:
        end = (observed[-1].began - START).total_seconds() + observed[-1].load.seconds
        kept = 1 - policy.may_drop if begin <= end < begin + phases[1][0] else 1.0
        return () if kept == levers.kept else (Decision("shedding", levers.kept, kept, holds=True, reason="known"),)

    return rules


def policies(_: object, __: Path, size: Size) -> Iterator[Measurement]:
    """Measure a policy of 5 s under twice the capacity for five minutes; ``--epochs``: seeds."""
    seeds, setting = range(size.epochs), f"{size.epochs} seeds, 2× capacity for 5 minutes, latency 5 s"
    runs = [run(seed, 0.6) for seed in seeds]
    known = [run(seed, 0.6, rules=foresight()) for seed in seeds]
    feasible = [seed for seed in seeds if known[seed].p95 <= LATENCY]
    missed = [seed for seed in feasible if runs[seed].p95 > LATENCY]
    wanted = f"{setting}, may_drop 0.6"
    yield Measurement(
        "seeds whose p95 latency holds from the third epoch on",
        "the controller",
        len(feasible) - len(missed),
        "dropping all that is allowed, from the first row of the overload on",
        len(feasible),
        len(runs),
        wanted,
        unit="",
    )
    without_noise = sum(Plant(seed).settled(2.0, 0.4) <= LATENCY for seed in seeds)
    yield Measurement(
        "seeds that could hold",
        "simulated with noise",
        len(feasible),
        "by 2·fixed / (1 − rho) ≤ latency, without noise",
        without_noise,
        len(runs),
        wanted,
        unit="",
    )
    yield from _bounds(runs, 0.6, wanted)
    broken = [run(seed, 0.2, can_limit=True) for seed in seeds]
    wanted = f"{setting}, may_drop 0.2, sources obey limits"
    yield from _bounds(broken, 0.2, wanted, falls=False)
    longest = max(epoch.observed.load.seconds for one in broken for epoch in one.during[2:])
    unpaced = [max(epoch.observed.load.seconds for epoch in run(seed, 0.2).during) for seed in seeds[:10]]
    yield Measurement(
        "the longest epoch if the policy cannot hold",
        "epochs limited",
        longest,
        "not limited (median)",
        statistics.median(unpaced),
        len(runs),
        wanted,
    )
    explained = [
        next(at for at, epoch in enumerate(one.during) if any(d.needs for d in epoch.decisions)) for one in broken
    ]
    yield bounded(
        "epochs until it is said", "the slowest", max(explained) + 1, 3, runs=len(runs), setting=wanted, unit=""
    )
    yield _cost(runs[0])


def _bounds(runs: Sequence[Run], may_drop: float, setting: str, *, falls: bool = True) -> Iterator[Measurement]:
    worst = 100 * max(one.worst_dropped for one in runs)
    yield bounded("rows dropped", "the worst epoch", worst, 100 * may_drop, runs=len(runs), setting=setting, unit="%")
    reversals = max(one.reversals for one in runs)
    yield bounded("reversals of the load's two changes", "most", reversals, 1, runs=len(runs), setting=setting, unit="")
    if falls:
        until = max(one.epochs_until_zero for one in runs)
        share = 100 * statistics.mean(one.epochs_until_zero > 3 for one in runs)
        yield bounded("epochs until nothing is dropped", "most", until, 3, runs=len(runs), setting=setting, unit="")
        yield bounded("seeds with more than three", "share", share, 1, runs=len(runs), setting=setting, unit="%")


def _cost(one: Run) -> Measurement:
    """Measure a decision, at the end of an overload with 120 epochs in the window."""
    observed = [epoch.observed for epoch in one.during][-120:]
    past = [decision for epoch in one.epochs for decision in epoch.decisions]
    levers = Levers(kept=observed[-1].kept, can_shed=True, partitions=4, cores=4)
    policy, times = Policy(latency=LATENCY, may_drop=0.6), []
    for _ in range(200):
        began = time.perf_counter()
        decide(policy, observed, levers, past=past)
        times.append(time.perf_counter() - began)
    batch = statistics.median(epoch.observed.load.seconds for epoch in one.epochs)
    return bounded(
        "a decision against 1 % of an epoch",
        "median",
        statistics.median(times),
        batch / 100,
        runs=len(times),
        setting=f"{len(observed)} epochs, median {batch:.2f} s",
    )
