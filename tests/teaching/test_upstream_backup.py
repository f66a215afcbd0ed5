"""Recovery in which each task stores its own state: repeats are skipped, and the order of a merge must be known."""

from __future__ import annotations

import pytest

from streamstate.tutorials.simulation import explore, run
from streamstate.tutorials.simulation.runs import violations
from streamstate.tutorials.simulation.upstream_backup import (
    UPSTREAM_MUTANTS,
    LoggedOrder,
    TakesWhatArrives,
    UpstreamBackup,
)


@pytest.mark.parametrize("protocol", [UpstreamBackup, LoggedOrder])
def test_every_crash_is_survived(protocol: type[UpstreamBackup]) -> None:
    """Both tasks may crash, several times; also in all states of a small scenario."""
    assert not any(run(protocol(4, crashes=3), seed).broken for seed in range(300))
    graph = explore(protocol(1, crashes=2), 50_000)
    assert graph.complete
    pairs = zip(graph.states, graph.edges, strict=True)
    assert not [found for state, edges in pairs for found in violations(graph.protocol, state, stuck=not edges)]


@pytest.mark.parametrize("mutant", UPSTREAM_MUTANTS)
def test_a_mistake_is_caught(mutant: type[UpstreamBackup]) -> None:
    """Each breaks an invariant in some of 300 runs."""
    assert mutant.fault
    assert sum(bool(run(mutant(4, crashes=3), seed).broken) for seed in range(300)) >= 15


def test_the_picture() -> None:
    """It says what each task has, and what is stored."""
    trace = explore(TakesWhatArrives(1), 5_000).shortest("sender and receiver agree")
    assert trace is not None
    words = trace.protocol.scene(trace.states[-1]).words
    assert "merge: has b1; keeps 1:b1." in words
    assert "counter: counts a1." in words
