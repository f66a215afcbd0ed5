"""Four ways to read state that changes, and the promises that each of them keeps."""

from __future__ import annotations

import pytest

from streamstate.tutorials.exercises.i10_isolation import EXERCISES, InTurn
from streamstate.tutorials.simulation import Player, explore, replay, run
from streamstate.tutorials.simulation.isolation import LEVELS, Level, SharedState

BROKEN = {
    "live": ["no read of what is undone", "reads repeat", "the sum holds"],
    "committed": ["reads repeat", "the sum holds"],
    "snapshot": [],
    "replica": ["time goes forward"],
}


@pytest.mark.parametrize("level", LEVELS)
def test_each_level_keeps_its_promises(level: Level) -> None:
    """All states are looked at: what is not broken in one of them holds."""
    graph = explore(SharedState(level, epochs=1 if level == "live" else 2), 20_000)
    assert graph.complete
    traces = {name: graph.shortest(name) for name in graph.protocol.invariants}
    assert [name for name, trace in traces.items() if trace is not None] == BROKEN[level]
    for trace in filter(None, traces.values()):
        assert replay(graph.protocol, trace.schedule).broken
    assert {name for seed in range(300) for name in run(graph.protocol, seed).broken} <= set(BROKEN[level])


@pytest.mark.parametrize("level", LEVELS)
def test_readers_in_turn_show_every_anomaly(level: Level) -> None:
    """The smaller scenario of the notebook breaks what the larger one does."""
    graph = explore(InTurn(level, epochs=1))
    assert graph.complete
    assert [name for name in graph.protocol.invariants if graph.shortest(name) is not None] == BROKEN[level]


@pytest.mark.parametrize(
    ("schedule", "message", "tick"),
    [
        ([("read", 0)], "Action ('read', 0) is not enabled", None),
        (5, "Return a list of steps", None),
        ([("begin", 0, 0), ("read", 0)], "Each promise holds", 2),
        ([("begin", 0, 0), "write", ("read", 0), ("read", 0)], "another promise: 'the sum holds'", 4),
        ([("begin", 0, 0), "write", ("read", 0), ("read", 0), "fail"], "and also 'the sum holds'", 4),
    ],
)
def test_a_schedule_is_judged_by_what_it_breaks(schedule: object, message: str, tick: int | None) -> None:
    """The player opens where the first promise is broken, or at the end if none is."""
    [exercise] = [each for each in EXERCISES if each.id == "schedule"]
    answer = exercise.check(lambda level, promise: schedule)  # type: ignore[union-attr]
    assert any(message in line for line in answer.lines)
    assert (answer.picture and answer.picture.at) == tick
    assert answer.picture is None or isinstance(answer.picture, Player)


def test_an_unknown_level_is_refused() -> None:
    """The error names those that there are."""
    with pytest.raises(ValueError, match="expected live, committed, snapshot, replica"):
        SharedState("serializable")  # type: ignore[arg-type]


def test_the_picture() -> None:
    """It says what is in memory, what is committed, and what each reader has read."""
    trace = explore(SharedState("committed")).shortest("the sum holds")
    assert trace is not None
    words = trace.protocol.scene(trace.states[-1]).words
    assert "epoch 1: x = 90; y = 10. reader 1: x = 100; y = 10. reader 2." in words
