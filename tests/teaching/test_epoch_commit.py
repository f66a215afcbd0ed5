"""Epochs that are written in four steps and interrupted between any two: which orders keep their promises."""

from __future__ import annotations

from itertools import permutations

import pytest

from streamstate.tutorials.simulation import explore, run
from streamstate.tutorials.simulation.epoch_commit import (
    EPOCH_MUTANTS,
    STEPS,
    EpochCommit,
    SinkKind,
    Step,
    TakesWhatHasArrived,
)
from streamstate.tutorials.simulation.runs import violations


def broken(protocol: EpochCommit) -> set[str]:
    """The invariants that some reachable state breaks."""
    graph = explore(protocol, 50_000)
    assert graph.complete
    pairs = zip(graph.states, graph.edges, strict=True)
    return {name for state, edges in pairs for name, _ in violations(protocol, state, stuck=not edges)}


@pytest.mark.parametrize(("sink", "count"), [("replaces", 3), ("skips", 3), ("appends", 0)])
def test_three_orders_of_twenty_four_are_right(sink: SinkKind, count: int) -> None:
    """The plan comes before the results, the commit last. With a sink that knows no epochs, none is right."""
    right = [order for order in permutations(STEPS) if not broken(EpochCommit(2, order=order, sink=sink, crashes=2))]
    rule = [
        order
        for order in permutations(STEPS)
        if order[-1] == "commit" and order.index("plan") < order.index("results") and sink != "appends"
    ]
    assert right == rule
    assert len(right) == count


@pytest.mark.parametrize("sink", ["replaces", "skips"])
def test_every_crash_is_survived(sink: SinkKind) -> None:
    """All states that three records and three crashes lead to keep all promises."""
    assert broken(EpochCommit(3, sink=sink, crashes=3)) == set()
    assert not any(run(EpochCommit(5, sink=sink, crashes=4), seed).broken for seed in range(300))


@pytest.mark.parametrize("mutant", EPOCH_MUTANTS)
def test_a_mistake_is_caught(mutant: type[EpochCommit]) -> None:
    """Each has an invariant that it breaks: in some of 300 runs, and in the graph."""
    assert mutant.fault
    assert sum(bool(run(mutant(4, crashes=2), seed).broken) for seed in range(300)) >= 15
    assert broken(mutant(2, crashes=1))


def test_an_order_has_all_steps() -> None:
    """A step that is missing or there twice is an error."""
    twice: list[Step] = ["plan", "plan", "results", "commit"]
    with pytest.raises(ValueError, match=r"expected each of plan, state, results, commit once"):
        EpochCommit(order=twice)


def test_the_picture() -> None:
    """It says what arrived, what the engine does, and what is written."""
    trace = explore(TakesWhatHasArrived(2)).shortest("results do not change")
    assert trace is not None
    assert [action.label for action in trace.actions][-1] == "The results of epoch 0 are written"
    words = trace.protocol.scene(trace.states[-1]).words
    assert "engine: epoch 0 with a1, a2: its state counts a1, a2; writes the commit next." in words
    assert trace.protocol.tell(trace.states[-2], trace.actions[-1], trace.states[-1]) == f"{trace.actions[-1].label}."
