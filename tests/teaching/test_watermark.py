"""Counts under a watermark: the rule of the notebook, its promises, and its mistakes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from streamstate.tutorials.exercises import i02_watermarks as notebook
from streamstate.tutorials.simulation import explore, replay, run
from streamstate.tutorials.simulation.watermark import WATERMARK_MUTANTS, WindowedCount


@dataclass(frozen=True)
class Step:
    """What an event did.

    Args:
        name: the event.
        time: its event time.
        late: whether it was dropped.
        watermark: the watermark after it.
        fired: the windows that it closed, with their counts.
        state: the windows that stay, with their counts.
    """

    name: str
    time: int
    late: bool
    watermark: int
    fired: notebook.State
    state: notebook.State


def steps(events: dict[str, int], *, delay: int) -> Iterator[Step]:
    """Count events per window, with a watermark that follows the largest event time at some distance."""
    state: notebook.State = {}
    largest = 0
    watermark = -delay
    for name, time in events.items():
        late = notebook.is_late(time, notebook.SIZE, watermark)
        if not late:
            window = notebook._window(time, notebook.SIZE)
            state[window] = state.get(window, 0) + 1
        largest = max(largest, time)
        watermark = largest - delay
        kept = notebook.evict(state, watermark)
        yield Step(name, time, late, watermark, {key: state[key] for key in state.keys() - kept.keys()}, dict(kept))
        state = kept


def events(seed: int) -> dict[str, int]:
    """Twelve events, not quite in order."""
    chance = random.Random(seed)
    return {chr(ord("a") + number): max(0, 3 * number + chance.randint(-9, 9)) for number in range(12)}


def caught(protocol: type[WindowedCount]) -> int:
    """Count the runs of 300 random ones that break a promise."""
    return sum(bool(run(protocol(events(seed), ahead=3), seed).broken) for seed in range(300))


def test_the_promises_hold() -> None:
    """In random runs, and in all orders in which each next two events may change places."""
    assert caught(WindowedCount) == 0
    for delay in (0, 5, 15):
        graph = explore(WindowedCount(notebook.EVENTS, delay=delay, ahead=2))
        assert graph.complete
        assert not any(graph.shortest(name) for name in graph.protocol.invariants)


@pytest.mark.parametrize("mutant", WATERMARK_MUTANTS)
def test_a_mistake_is_caught(mutant: type[WindowedCount]) -> None:
    """Each breaks a promise in many runs."""
    assert mutant.fault
    assert caught(mutant) >= 60


@pytest.mark.parametrize("delay", [0, 5, 9])
def test_it_is_the_rule_of_the_notebook(delay: int) -> None:
    """The same events are dropped, and the same windows stay, event by event."""
    protocol = WindowedCount(notebook.EVENTS, delay=delay)
    trace = replay(protocol, [("arrive", name) for name in notebook.EVENTS])
    for step, state in zip(steps(notebook.EVENTS, delay=delay), trace.states[1:], strict=True):
        assert step.late == (step.name in dict(state.dropped))
        assert {start: count for (start, _), count in step.state.items()} == dict(state.state)


def test_the_picture() -> None:
    """It says what counts, what is dropped, where the watermark is, and what waits."""
    protocol = WindowedCount({"a": 1, "b": 16, "c": 9, "d": 20})
    words = protocol.scene(replay(protocol, [("arrive", name) for name in "abc"]).states[-1]).words
    assert "d of minute 20 waits. a of minute 1 counts. b of minute 16 counts. c of minute 9 is dropped." in words
    assert "fired: 1. 10. state: 1." in words
    assert "The watermark is minute 11." in words
