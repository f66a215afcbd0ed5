"""Correct protocols hold all invariants, on random topologies and in every state of small ones; mutants do not."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from scripts.mutants import COUNTED, SEEDS, recorded
from streamstate.tutorials.simulation import (
    AlignedBarriers,
    AlignedWithTimeout,
    PauseFirst,
    Topology,
    explore,
    replay,
    run,
)
from streamstate.tutorials.simulation.dataflow import Dataflow
from streamstate.tutorials.simulation.log_structured import LogStructured
from streamstate.tutorials.simulation.mutants import MUTANTS, PROTOCOLS, LateLost, SourcesGoOn, catch
from streamstate.tutorials.simulation.network import Network, Part, Record
from streamstate.tutorials.simulation.runs import ENDS

NAMES = [protocol.name for protocol in PROTOCOLS]


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=NAMES)
def test_a_correct_protocol_holds_all_invariants(protocol: type[Dataflow]) -> None:
    """In every run on a random topology; most runs crash, and are restored from a snapshot."""
    crashes = restored = 0
    for seed in SEEDS:
        scenario = protocol.random(seed)
        trace = run(scenario, seed)
        assert trace.violations == (), (seed, trace)
        assert scenario.finished(trace.states[-1])
        before = [state for state, action in zip(trace.states, trace.actions, strict=False) if action.key == ("crash",)]
        crashes += bool(before)
        restored += any(state.complete.number for state in before)
    assert crashes > 0.8 * len(SEEDS)
    assert restored > 0.3 * len(SEEDS)


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=NAMES)
def test_no_state_of_a_small_scenario_breaks_an_invariant(protocol: type[Dataflow]) -> None:
    """Two sources, three records, one snapshot, a crash at every tick: all states that can be reached."""
    graph = explore(protocol(Topology.merge(2, 1), rounds=1, last_covers_all=False, storage_takes_time=False))
    assert graph.complete
    assert {name: graph.shortest(name) for name in [*graph.protocol.invariants, ENDS]} == dict.fromkeys(
        [*graph.protocol.invariants, ENDS]
    )


@pytest.mark.parametrize("mutant", COUNTED, ids=[mutant.__name__ for mutant in COUNTED])
def test_a_mutant_is_caught(mutant: type[Dataflow] | type[LogStructured]) -> None:
    """As often as the documentation says."""
    found = catch(mutant, SEEDS)
    assert found.caught > 0
    assert asdict(found) in recorded()


def test_the_documentation_has_every_mutant_and_no_other() -> None:
    """Each has a fault of its own, and each protocol has three at least, of which two stop first."""
    assert [(each["protocol"], each["fault"]) for each in recorded()] == [(each.name, each.fault) for each in COUNTED]
    assert len({(each.name, each.fault) for each in COUNTED}) == len(COUNTED)
    for name in ("Chandy-Lamport", "aligned barriers", "unaligned barriers"):
        assert sum(mutant.name == name for mutant in MUTANTS) >= 3


def test_every_invariant_is_broken_by_some_mutant() -> None:
    """None of them holds for want of a case."""
    broken = {name for mutant in MUTANTS for seed in SEEDS[:15] for name in run(mutant.random(seed), seed).broken}
    assert broken == {name for protocol in PROTOCOLS for name in protocol.random(0).invariants} | {ENDS}


def last(protocol: Dataflow, *schedule: tuple[str | int, ...]) -> Network:
    """The state after a schedule."""
    return replay(protocol, schedule).states[-1]


def enabled(protocol: Dataflow, state: Network) -> set[tuple[str | int, ...]]:
    """The keys of the enabled actions."""
    return {action.key for action in protocol.actions(state)}


def test_a_channel_whose_barrier_is_there_is_blocked() -> None:
    """Its next record waits until the other barrier is there, too."""
    protocol = AlignedBarriers(Topology.merge(), last_covers_all=False)
    schedule: list[tuple[str | int, ...]] = [("start",), ("copy", 0), ("read", 0), ("receive", 0, 0)]
    state = last(protocol, *schedule)
    assert ("receive", 0, 0) not in enabled(protocol, state)
    aligned = last(protocol, *schedule, ("copy", 1), ("receive", 1, 0))
    assert ("receive", 0, 0) in enabled(protocol, aligned)
    assert aligned.tasks[2].state.seen == ()


def test_nothing_moves_while_everything_is_paused() -> None:
    """Tasks copy their states, and nothing else but a crash can happen."""
    protocol = PauseFirst(Topology.merge())
    state = last(protocol, ("read", 0), ("start",))
    assert enabled(protocol, state) == {("copy", 0), ("copy", 1), ("copy", 2), ("crash",)}


def test_the_late_record_that_random_runs_seldom_meet() -> None:
    """A directed case for the mutant that forgets what comes before a late barrier."""
    schedule = [("read", 1), ("start",), ("copy", 0), ("receive", 0, 0), ("receive", 1, 0), ("copy", 1)]
    protocol = LateLost(Topology.merge(1, 1), rounds=1, last_covers_all=False, storage_takes_time=False)
    trace = replay(protocol, [*schedule, ("receive", 1, 0)])
    assert trace.violations[0].reason == "In snapshot 1, b1 was in flight on B→C; its log has nothing."


def test_a_barrier_overtakes_after_a_timeout() -> None:
    """What it overtakes is logged, the state is copied without it, and no channel stays blocked."""
    protocol = AlignedWithTimeout(Topology.merge(), rounds=1, last_covers_all=False, storage_takes_time=False)
    schedule = [("start",), ("copy", 0), ("read", 1), ("copy", 1), ("receive", 0, 0)]
    assert ("overtake", 1) in enabled(protocol, last(protocol, *schedule[:-1]))
    assert last(protocol, *schedule).tasks[2].blocked == (0,)
    trace = replay(protocol, [*schedule, ("overtake", 1)])
    state = trace.states[-1]
    assert state.complete.number == 1
    assert state.complete.parts[2] == Part(protocol.initial(2)._replace(prepared=(1, ())), ((1, (Record("b1"),)),))
    assert (state.tasks[2].blocked, state.queues[1]) == ((), (Record("b1"),))
    assert protocol.tell(trace.states[-2], trace.actions[-1], state) == (
        "The barrier from B overtakes the records in front of C. It copies its state. Snapshot 1 is complete."
    )


def test_a_crash_takes_what_no_snapshot_has() -> None:
    """Sources go back and read again; the mutant whose sources go on loses a record."""
    schedule = [("read", 0), ("receive", 0, 0), ("crash",)]
    topology = Topology.chain(2)
    assert last(AlignedBarriers(topology), *schedule) == AlignedBarriers(topology, crashes=0).start()
    assert last(SourcesGoOn(topology), *schedule).tasks[0].state.offset == 1


def test_what_happened_is_told() -> None:
    """The sentence has the action, and what came of it."""
    protocol = AlignedBarriers(Topology.merge(), last_covers_all=False, storage_takes_time=False)
    trace = replay(protocol, [("start",), ("copy", 0), ("copy", 1), ("receive", 0, 0), ("receive", 1, 0)])
    told = [
        protocol.tell(before, action, after)
        for before, action, after in zip(trace.states, trace.actions, trace.states[1:], strict=False)
    ]
    assert told[3:] == [
        "C receives the barrier from A. It takes nothing more from A until the barrier from B is there.",
        "C receives the barrier from B. It copies its state. Snapshot 1 is complete.",
    ]
