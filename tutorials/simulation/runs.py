"""Runs of a protocol: at random, again, and shortened to what breaks an invariant."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias

from streamstate.tutorials.simulation.protocol import Action, Key, Protocol, S

ENDS = "the run ends"
"""The invariant that every protocol has: no run stops early, and none goes on for ever."""
LIMIT = 2_000
"""Actions after which a random run counts as endless."""

_Chooser: TypeAlias = Callable[[Sequence[Action]], "Action | None"]


@dataclass(frozen=True, slots=True)
class Violation:
    """The first tick at which an invariant is broken, and the reason."""

    tick: int
    invariant: str
    reason: str


@dataclass(frozen=True)
class Trace(Generic[S]):
    """What happened in a run. Tick 0 is the first state; action ``n`` leads from tick ``n`` to ``n + 1``.

    Args:
        protocol: the protocol and its scenario.
        actions: the actions, in order.
        states: the states; one more than actions.
        violations: the first violation of each invariant that was broken, by tick.
    """

    protocol: Protocol[S]
    actions: tuple[Action, ...]
    states: tuple[S, ...]
    violations: tuple[Violation, ...]

    @property
    def schedule(self) -> tuple[Key, ...]:
        """The keys of the actions, from which :func:`replay` makes the same trace."""
        return tuple(action.key for action in self.actions)

    @property
    def broken(self) -> dict[str, int]:
        """The tick of the first violation of each broken invariant."""
        return {violation.invariant: violation.tick for violation in self.violations}

    def __repr__(self) -> str:
        found = "".join(f"; broken at {each.tick}: {each.invariant} ({each.reason})" for each in self.violations)
        return f"Trace of {self.protocol.name}: {len(self.actions)} actions{found or '; all invariants hold'}"


def run(protocol: Protocol[S], seed: int, *, until_broken: bool = False, limit: int = LIMIT) -> Trace[S]:
    """Run a protocol to its end, each action chosen at random.

    Args:
        protocol: the protocol.
        seed: the same seed gives the same trace, in every version of Python.
        until_broken: stop at the first violation.
        limit: after so many actions, the run counts as endless.

    Example:
        >>> from streamstate.tutorials.simulation import AlignedBarriers
        >>> run(AlignedBarriers.random(7), seed=7).broken
        {}
    """
    chance = random.Random(seed)  # noqa: S311 (reproducible, not secret)

    def choose(enabled: Sequence[Action]) -> Action | None:
        return chance.choices(enabled, [action.weight for action in enabled])[0]

    return _traced(protocol, choose, until_broken=until_broken, limit=limit)


def replay(protocol: Protocol[S], schedule: Iterable[Key]) -> Trace[S]:
    """Repeat a run. A schedule that ends early gives a trace that ends early.

    Raises:
        ValueError: an action is not enabled when its turn comes.

    Example:
        >>> from streamstate.tutorials.simulation import AlignedBarriers
        >>> protocol = AlignedBarriers.random(7)
        >>> replay(protocol, run(protocol, seed=7).schedule) == run(protocol, seed=7)
        True
    """
    return _traced(protocol, _following(schedule, skip=False))


def shrink(protocol: Protocol[S], schedule: Iterable[Key], invariant: str | None = None) -> Trace[S]:
    """Leave out actions while the same invariant is still broken, and return the trace of what remains.

    Whole stretches are left out first, then single actions. What is no longer enabled is left out, too.

    Args:
        protocol: the protocol.
        schedule: a schedule that breaks the invariant.
        invariant: its name; by default, the first one that is broken.

    Raises:
        ValueError: the schedule does not break the invariant.

    Example:
        >>> from streamstate.tutorials.simulation.mutants import MUTANTS
        >>> mutant = MUTANTS[0].random(4)
        >>> found = run(mutant, seed=4)
        >>> len(shrink(mutant, found.schedule).actions) < len(found.actions)
        True
    """
    trace = _traced(protocol, _following(schedule, skip=True))
    name = invariant or next(iter(trace.broken), "")
    if name not in trace.broken:
        raise ValueError(f"The schedule does not break {invariant or 'any invariant'}; broken: {list(trace.broken)}")
    best = trace.schedule[: trace.broken[name]]
    size = len(best) // 2
    while size:
        shorter = next(_shorter(protocol, best, size, name), None)
        if shorter is None:
            size //= 2
        else:
            best = shorter
            size = min(size, len(best))
    return replay(protocol, best)


def _shorter(protocol: Protocol[S], schedule: tuple[Key, ...], size: int, name: str) -> Iterator[tuple[Key, ...]]:
    """Yield schedules without a stretch of ``size`` actions that still break the invariant."""
    for start in range(len(schedule) - size, -1, -size):
        kept = schedule[:start] + schedule[start + size :]
        trace = _traced(protocol, _following(kept, skip=True))
        if name in trace.broken:
            yield trace.schedule[: trace.broken[name]]


def _following(schedule: Iterable[Key], *, skip: bool) -> _Chooser:
    keys = iter(schedule)

    def choose(enabled: Sequence[Action]) -> Action | None:
        by_key = {action.key: action for action in enabled}
        for key in keys:
            if key in by_key:
                return by_key[key]
            if not skip:
                raise ValueError(f"Action {key} is not enabled. Enabled: {sorted(by_key, key=str)}")
        return None

    return choose


def _traced(protocol: Protocol[S], choose: _Chooser, *, until_broken: bool = False, limit: int = LIMIT) -> Trace[S]:
    state = protocol.start()
    actions: list[Action] = []
    states = [state]
    found: dict[str, Violation] = {}
    while True:
        enabled = protocol.actions(state)
        tick = len(actions)
        for name, reason in violations(protocol, state, stuck=not enabled):
            found.setdefault(name, Violation(tick, name, reason))
        if not enabled or (found and until_broken):
            break
        if tick >= limit:
            found.setdefault(ENDS, Violation(tick, ENDS, f"After {limit} actions there is still something to do."))
            break
        action = choose(enabled)
        if action is None:
            break
        state = protocol.act(state, action)
        actions.append(action)
        states.append(state)
    return Trace(protocol, tuple(actions), tuple(states), tuple(found.values()))


def violations(protocol: Protocol[S], state: S, *, stuck: bool) -> Iterator[tuple[str, str]]:
    """Yield the names of the invariants that a state breaks, and the reasons.

    Args:
        protocol: the protocol.
        state: one of its states.
        stuck: no action is enabled in it.
    """
    for name, invariant in protocol.invariants.items():
        reason = invariant(state)
        if reason is not None:
            yield name, reason
    if stuck and not protocol.finished(state):
        yield ENDS, "Nothing can happen any more, but there is something left to do."
