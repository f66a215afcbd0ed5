"""Runs of a protocol with a rule that a learner wrote, and what a check shows of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from streamstate.tutorials.exercises.sampling import Case
from streamstate.tutorials.simulation import Player, Topology, Trace, run, shrink
from streamstate.tutorials.simulation.dataflow import Dataflow
from streamstate.tutorials.simulation.protocol import Protocol

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

TOPOLOGIES = 100
"""How many topologies a rule is tried on."""

_LIMIT = 150
"""Actions after which a run of a learner's rule counts as endless."""


class NotWrittenError(Exception):
    """The learner's rule returned nothing."""


@dataclass(frozen=True)
class Judged:
    """What is wrong with a run. Two are equal if the same is wrong with them.

    Args:
        fault: the broken promise; empty if all hold.
        trace: the run, up to there.
    """

    fault: str
    trace: Trace[Any] | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        return self.fault or "all promises hold"

    def __deepcopy__(self, memo: object) -> Judged:
        return self


def run_judged(protocol: Protocol[Any], seed: int, *, limit: int = _LIMIT) -> Judged | None:
    """Run a protocol up to the first broken promise; None if its rule returned nothing."""
    try:
        trace = run(protocol, seed, until_broken=True, limit=limit)
    except NotWrittenError:
        return None
    return Judged(trace.violations[0].reason if trace.violations else "", trace)


def fault_of(_case: object, judged: Judged) -> str:
    """Say what the player below shows; empty if all promises hold."""
    return (
        "A promise is broken. The player has the run, shortened, and begins where that happens." if judged.fault else ""
    )


def picture_of(_case: object, judged: Any) -> Player[Any] | None:
    """Show the shortened run at the tick where a promise is broken."""
    if not isinstance(judged, Judged) or judged.trace is None:
        return None
    trace = judged.trace
    if trace.broken:
        try:
            trace = shrink(trace.protocol, trace.schedule)
        except Exception:  # noqa: BLE001 - a learner's rule may raise in a state that the run did not reach
            trace = judged.trace
    return opened(trace)


def opened(trace: Trace[Any]) -> Player[Any]:
    """Open a run where it first breaks a promise; at its end if it breaks none."""
    return Player(trace, at=min(trace.broken.values(), default=len(trace.actions)))


def small(protocol: Callable[..., Dataflow], topology: Topology, *, crashes: int = 0) -> Dataflow:
    """Return a scenario with one snapshot, which may be taken at any time."""
    return protocol(topology, rounds=1, crashes=crashes, last_covers_all=False, storage_takes_time=False)


def run_rule(learned: Callable[..., Dataflow], rule: Callable[..., object], case: Case, *, circles: bool) -> Any:
    """Run a protocol with a learner's rule on a topology with a seed, as :func:`rule_cases` draws them."""
    topology, seed = case
    return run_judged(small(partial(learned, rule=rule), topologies(circles=circles)[topology]), seed)


def rule_cases() -> SearchStrategy[Case]:
    """Return numbers of a topology and of a run."""
    from hypothesis import strategies as st

    return st.tuples(st.integers(0, TOPOLOGIES - 1), st.integers(0, 9))


@cache
def topologies(*, circles: bool) -> tuple[Topology, ...]:
    """Return random topologies, no two of them equal, the smallest first."""
    drawn = dict.fromkeys(Topology.random(seed, circles=circles) for seed in range(4 * TOPOLOGIES))
    ordered = sorted(drawn, key=lambda topology: (len(topology.channels), sum(topology.inputs)))
    return tuple(ordered[:TOPOLOGIES])
