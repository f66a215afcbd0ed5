"""Timed runs that a learner decides on: plans for loads, schedules of arrivals, and what a check shows of them."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from streamstate.tutorials.simulation import Player, Trace
from streamstate.tutorials.simulation.network import logged
from streamstate.tutorials.simulation.network_scene import in_short
from streamstate.tutorials.simulation.timed import MODES, C, Clock, Load, Mode, Moment, Plan
from streamstate.tutorials.simulation.timed_scene import film

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from streamstate.tutorials.exercises.attempts import Function
    from streamstate.tutorials.exercises.sampling import Case
    from streamstate.tutorials.simulation.dataflow import Dataflow

Names: TypeAlias = tuple[str, ...]

LATENCY, REPLAY, LOGGED = 60, 150, 35
"""What is promised: ticks within which 95 % of A's records are counted, records read again, and records logged."""
TIMEOUT = 30


def _drawn(seed: int) -> Load:
    chance = random.Random(seed)  # noqa: S311 (reproducible, not secret)
    slow = chance.choice((3, 4, 5))
    slowest = chance.choice((slow, 15, 20, 25))
    return Load(chance.choice((3, 4, 5)), 2, slow, slowest, chance.randint(6, 14), chance.randint(2, 5), until=800)


LOADS = tuple(map(_drawn, range(20)))
"""The loads on which a policy is tried."""


@dataclass(frozen=True)
class Served:
    """What a plan led to under a load; two are equal if their mode is, and the first promise that they broke."""

    first: str
    mode: Mode
    broken: tuple[str, ...] = field(compare=False)
    plan: Plan = field(compare=False)
    latency: int = field(compare=False)
    replay: int = field(compare=False)
    logged: int = field(compare=False)

    def __repr__(self) -> str:
        return f"{self.mode}: latency {self.latency}, replay {self.replay}, logged {self.logged}"


class Parts(NamedTuple):
    """The names of the records that a snapshot says were read, that C's copy counts, and that were logged."""

    read: Names
    counted: Names
    logged: Names

    def __repr__(self) -> str:
        """Return the three in short, such as ``read a1–3 b1–2, counted a1–3 b1, logged b2``."""
        parts = zip(self._fields, self, strict=True)
        return ", ".join(f"{name} {in_short(sorted(names, key=_by_number))}" for name, names in parts)


def _by_number(name: str) -> tuple[str, int]:
    return name[0], int(name[1:])


@dataclass(frozen=True)
class Decision:
    """What the timeout did; two are equal if it was right or wrong in the same way."""

    verdict: str
    waited: int = field(compare=False)
    logged: int = field(compare=False)
    load: Load = field(compare=False)

    def __repr__(self) -> str:
        return f"aligned after {self.waited} ticks; with the timeout, {self.logged} records logged"


def serve(load: Load, choice: Any) -> Served:
    """Run a load for 800 ticks as a policy has chosen, and return what became of the promises."""
    try:
        mode, interval, *rest = choice
        plan = Plan(mode, int(interval), *map(int, rest))
        if len(rest) != (mode == "timeout") or plan.mode not in MODES or plan.interval < 1 or plan.timeout < 0:
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        forms = '("aligned", interval), ("unaligned", interval) or ("timeout", interval, timeout)'
        raise ValueError(f"expected {forms}, not {choice!r}") from None
    return _served(load, plan)


@cache
def _served(load: Load, plan: Plan) -> Served:
    run = Clock(load, plan).run()
    found = {"latency": run.latency(95), "logged": run.logged, "replay": run.worst_replay}
    allowed = {"latency": LATENCY, "logged": LOGGED, "replay": REPLAY}
    broken = tuple(name for name in found if found[name] > allowed[name])
    return Served("".join(broken[:1]), plan.mode, broken, plan, **found)


def load_cases() -> SearchStrategy[Case]:
    """Return numbers of loads."""
    from hypothesis import strategies as st

    return st.tuples(st.integers(0, len(LOADS) - 1))


def run_policy(function: Function, case: Case) -> Served | None:
    """Run a load with the plan that a learner's policy chooses; None if it chooses nothing."""
    choice = function(LOADS[case[0]])
    return None if choice is None or choice is ... else serve(LOADS[case[0]], choice)


def first_copy(clock: Clock, task: int) -> int:
    """Return when a task copies its state for the first time."""
    return next(moment.time for moment in clock.moments() if moment.network.tasks[task].round)


def judge_served(_: Case, served: Served) -> str:
    """Say which promises are broken."""
    said = {
        "latency": f"5 % of A's records need {served.latency} ticks or more; {LATENCY} are promised.",
        "replay": f"A crash at the worst time reads {served.replay} records again; {REPLAY} are promised.",
        "logged": f"The snapshots log {served.logged} records; {LOGGED} are promised.",
    }
    return " ".join(said[name] for name in served.broken)


def picture_served(case: Case, served: Any) -> Player[Moment] | None:
    """Show the first snapshot of the run, if there is one, where C has waited longest."""
    if not isinstance(served, Served):
        return None
    load, plan = LOADS[case[0]], served.plan
    shown = load._replace(until=min(load.until, plan.interval + 250))
    return _player(film(shown, plan)) if plan.interval < shown.until else None


def _player(trace: Trace[Moment]) -> Player[Moment]:
    """Show a film at the last tick at which a channel is blocked; without one, from its beginning."""
    blocked = [tick for tick, moment in enumerate(trace.states) if moment.network.tasks[C].blocked]
    return Player(trace, at=max(blocked, default=0))


def run_schedule(arrivals: Any) -> Decision | None:
    """Run a schedule with and without the timeout, with a barrier at tick 100."""
    if arrivals is None or arrivals is ...:
        return None
    times = tuple(arrivals) if isinstance(arrivals, Iterable) else (None,)
    if any(type(time) is not int or not 0 <= time < 100 for time in times) or list(times) != sorted(times):
        raise ValueError(f"expected ticks from 0 to 99 in order, not {arrivals!r}")
    load = Load(until=300, b_at=times)
    waited = first_copy(Clock(load, Plan("aligned", 100)), C) - 100
    clock = Clock(load, Plan("timeout", 100, TIMEOUT))
    moments = [moment for moment in clock.moments() if moment.network.started == 1]
    overtaken = any(moment.key[0] == "overtake" for moment in moments)
    verdict = "right" if waited > TIMEOUT + 15 else ""
    if not overtaken:
        verdict = "in time" if moments[0].network.queues[1] else "nothing waits"
    return Decision(verdict, waited, clock.measured.taken[0].logged, load)


def judge_decision(_: Case, decision: Decision) -> str:
    """Say why the timeout was right; empty if it was wrong, as asked for."""
    said = {
        "nothing waits": "When the barrier is sent, nothing is in front of the slow relay.",
        "in time": "The slow relay takes the barrier before the timeout, so nothing is overtaken. "
        f"(C is aligned after {decision.waited} ticks.)",
        "right": f"Without the timeout, C would have been aligned after {decision.waited} ticks.",
    }
    return said.get(decision.verdict, "")


def picture_decision(_: Case, decision: Any) -> Player[Moment] | None:
    """Show the snapshot with the timeout, where C has waited longest."""
    if not isinstance(decision, Decision):
        return None
    return _player(film(decision.load, Plan("timeout", 100, TIMEOUT)))


@cache
def parts_of(kind: type[Dataflow], mode: Mode, number: int) -> Parts:
    """Return what the first snapshot of a short random run has."""
    chance = random.Random(number)  # noqa: S311 (reproducible, not secret)
    slow = chance.randint(3, 6)
    load = Load(chance.randint(2, 4), chance.randint(1, 3), slow, slow, chance.randint(2, 5), until=150)
    clock = Clock(load, Plan(mode, chance.randint(6, 12), chance.randint(2, 8)), kind)
    complete = next(moment.network.complete for moment in clock.moments() if moment.network.complete.number)
    states = [part.state for part in complete.parts if part]
    records = zip(clock.topology.records, states, strict=True)
    read = tuple(name for names, state in records for name in names[: state.offset])
    log = tuple(record.name for channel in logged(clock.topology, complete) for record in channel)
    return Parts(read, states[C].seen, log)


def mode_cases() -> SearchStrategy[Case]:
    """Return modes and numbers of short runs."""
    from hypothesis import strategies as st

    return st.tuples(st.sampled_from(list(MODES)), st.integers(0, 49))
