"""Runs are repeatable, schedules shrink, and the graph of a scenario has every run in it."""

from __future__ import annotations

import random
from dataclasses import astuple

import pytest

from streamstate.tutorials.simulation import ChandyLamport, Topology, UnalignedBarriers, explore, replay, run, shrink
from streamstate.tutorials.simulation.mutants import NotBlocking, SourcesGoOn
from streamstate.tutorials.simulation.runs import ENDS
from teaching.lost_update import Endless, LostUpdate, Stuck

COUNTS = "every addition counts"


def test_the_same_seed_gives_the_same_trace() -> None:
    """Another seed gives another one."""
    protocol = ChandyLamport.random(5)
    assert astuple(run(protocol, 5)) == astuple(run(ChandyLamport.random(5), 5))
    assert run(protocol, 5).schedule != run(protocol, 6).schedule


def test_a_schedule_is_replayed() -> None:
    """All of it, or its beginning. An action that is not enabled is an error that lists those that are."""
    trace = run(LostUpdate(), 3)
    assert replay(trace.protocol, trace.schedule) == trace
    assert replay(LostUpdate(), trace.schedule).states == trace.states
    assert replay(LostUpdate(), trace.schedule[:3]).states == trace.states[:4]
    with pytest.raises(ValueError, match=r"\('write', 0\) is not enabled\. Enabled: \[\('read', 0\), \('read', 1\)\]"):
        replay(LostUpdate(), [("write", 0)])


def test_a_violation_names_tick_invariant_and_reason() -> None:
    """The first of each invariant; a run may stop there."""
    schedule = [("read", 0), ("read", 1), ("write", 0), ("write", 1)]
    (violation,) = replay(LostUpdate(), schedule).violations
    assert astuple(violation) == (4, COUNTS, "2 additions, but 1 in the account.")
    found = next(trace for seed in range(50) if (trace := run(LostUpdate(), seed, until_broken=True)).violations)
    assert found.broken == {COUNTS: len(found.actions)}


def test_a_run_that_stops_early_or_never_is_broken() -> None:
    """Both break the invariant that every protocol has."""
    assert run(Stuck(), 1).broken == {ENDS: 2}
    assert run(Endless(), 1, limit=40).broken[ENDS] == 40


@pytest.mark.parametrize("mutant", [NotBlocking, SourcesGoOn])
def test_shrinking_keeps_the_violation_and_leaves_out_what_it_does_not_need(mutant: type[NotBlocking]) -> None:
    """The schedule is shorter, breaks the same invariant at its end, and no single action can be left out."""
    seed = next(seed for seed in range(99) if run(mutant.random(seed), seed).violations)
    protocol = mutant.random(seed)
    found = run(protocol, seed)
    name = next(iter(found.broken))
    small = shrink(protocol, found.schedule)
    assert len(small.actions) < found.broken[name]
    assert small.broken[name] == len(small.actions)
    for left_out in range(len(small.actions)):
        kept = small.schedule[:left_out] + small.schedule[left_out + 1 :]
        with pytest.raises(ValueError, match=r"does not break|is not enabled"):
            shrink(protocol, replay(protocol, kept).schedule, name)


def test_a_deadlock_shrinks_to_a_deadlock() -> None:
    """The invariant that every protocol has is shrunk like the others."""
    assert shrink(Stuck(), run(Stuck(), 1).schedule).broken == {ENDS: 2}


def test_only_what_breaks_an_invariant_is_shrunk() -> None:
    """The error lists what is broken."""
    with pytest.raises(ValueError, match=r"does not break any invariant; broken: \[\]"):
        shrink(LostUpdate(), [("read", 0), ("write", 0)])


@pytest.mark.parametrize("protocol", [LostUpdate(), UnalignedBarriers(Topology.merge(1, 1), rounds=1, crashes=1)])
def test_every_run_is_a_path_in_the_graph(protocol: LostUpdate) -> None:
    """Its states are those of the graph, its end has no actions, and each step offers the same choices."""
    graph = explore(protocol)
    assert graph.complete
    for seed in range(50):
        trace = run(protocol, seed)
        path = graph.path(trace.schedule)
        assert [graph.states[index] for index in path] == list(trace.states)
        assert graph.edges[path[-1]] == ()
        for index, state in zip(path, trace.states, strict=True):
            assert [action for action, _ in graph.edges[index]] == list(protocol.actions(state))


def test_the_shortest_way_to_a_violation() -> None:
    """No schedule that breaks the invariant is shorter; without a violation there is none."""
    graph = explore(LostUpdate())
    trace = graph.shortest(COUNTS)
    assert trace is not None
    assert trace.broken == {COUNTS: len(trace.actions)}
    seeds = random.Random(1).sample(range(1000), 50)
    lengths = [run(LostUpdate(), seed).broken.get(COUNTS, 99) for seed in seeds]
    assert len(trace.actions) <= min(lengths)
    assert graph.shortest(ENDS) is None
    assert explore(Stuck()).shortest(ENDS) is not None


def test_a_graph_that_is_too_large_says_so() -> None:
    """It has the states nearest to the start; leaving it is an error."""
    graph = explore(LostUpdate(), limit=5)
    assert (len(graph.states), graph.complete) == (5, False)
    assert "more that were not explored" in repr(graph)
    with pytest.raises(ValueError, match="not in the graph"):
        graph.path(run(LostUpdate(), 1).schedule)
    assert graph.shortest(ENDS) is None
