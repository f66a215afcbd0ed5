"""Snapshots that take time: timed runs keep the promises of their protocols, and a slow relay tells the modes apart."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from streamstate.tutorials.exercises import Worksheet, i08_alignment, timed_runs
from streamstate.tutorials.simulation import Player, network_invariants, replay
from streamstate.tutorials.simulation.dataflow import Dataflow
from streamstate.tutorials.simulation.mutants import LogsTooEarly, NotBlocking, OvertakenLost, TimeoutLosesOvertaken
from streamstate.tutorials.simulation.network import Record
from streamstate.tutorials.simulation.protocol import Key
from streamstate.tutorials.simulation.timed import MODES, Clock, Load, Mode, Moment, Plan
from streamstate.tutorials.simulation.timed_scene import film

SHORT = pytest.param(range(20), id="some")
ALL = pytest.param(range(300), id="all", marks=pytest.mark.exhaustive)


@pytest.fixture(autouse=True)
def progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress of its own for each test."""
    monkeypatch.setenv("STREAMSTATE_PROGRESS", str(tmp_path / "progress.json"))


def random_clock(mode: Mode, seed: int, protocol: type[Dataflow] | None = None) -> Clock:
    """A short run: other speeds, channels, intervals and timeouts for each seed."""
    chance = random.Random(seed)
    slow = chance.randint(1, 9)
    load = Load(chance.randint(1, 4), chance.randint(1, 3), slow, slow, chance.randint(1, 5), chance.randint(0, 3))
    plan = Plan(mode, chance.randint(5, 25), chance.randint(0, 9))
    return Clock(load._replace(until=100), plan, protocol)


def snapshot_faults(clock: Clock, moments: Iterable[Moment]) -> list[str]:
    """What is wrong with the complete snapshots of a run."""
    snapshots = {moment.network.complete for moment in moments}
    judges = (network_invariants.received_was_sent, network_invariants.log_is_in_flight, network_invariants.prefix)
    return [fault for each in snapshots for judge in judges if (fault := judge(clock.topology, each))]


@pytest.mark.parametrize("seeds", [SHORT, ALL])
@pytest.mark.parametrize("mode", MODES)
def test_snapshots_are_right_in_each_mode(mode: Mode, seeds: range) -> None:
    """Every snapshot of every run is that of its input, with what was in flight; no channel holds too much."""
    taken = 0
    for seed in seeds:
        clock = random_clock(mode, seed)
        moments = list(clock.moments())
        assert snapshot_faults(clock, moments) == [], seed
        taken += len(clock.measured.taken)
        held = [
            sum(isinstance(each, Record) for each in queue) for moment in moments for queue in moment.network.queues
        ]
        assert max(held) <= clock.load.capacity
    assert taken > 2 * len(seeds)


@pytest.mark.parametrize("mode", MODES)
def test_a_timed_run_is_a_run_of_its_protocol(mode: Mode) -> None:
    """Each action is enabled when it happens, and after a crash the run ends like one without a failure."""
    for seed in range(10):
        clock = random_clock(mode, seed)
        keys: list[Key] = []
        for moment in clock.moments():
            if moment.key == ("start",) and moment.network.started == 2:
                break
            keys.append(moment.key)
        protocol = MODES[mode](clock.topology, rounds=1, crashes=1, last_covers_all=False)
        crashed = replay(protocol, [*keys, ("crash",)])
        state = crashed.states[-1]
        assert state.complete.number == 1
        while actions := protocol.actions(state):
            state = protocol.act(state, actions[0])
        assert protocol.finished(state)
        assert not crashed.broken
        assert [judge(state) for judge in protocol.invariants.values()] == [None] * 5


@pytest.mark.parametrize("mutant", [NotBlocking, OvertakenLost, LogsTooEarly, TimeoutLosesOvertaken])
def test_a_mistake_is_caught_in_time(mutant: type[Dataflow]) -> None:
    """In some of 40 timed runs, a snapshot is wrong."""
    mode = next(mode for mode, kind in MODES.items() if issubclass(mutant, kind))
    clocks = [random_clock(mode, seed, mutant) for seed in range(40)]
    assert sum(bool(snapshot_faults(clock, clock.moments())) for clock in clocks) >= 4


def test_a_timeout_is_between_the_modes() -> None:
    """One that never ends is alignment, action by action; one that ends at once logs about what unaligned does."""

    def keys(plan: Plan) -> list[Key]:
        return [moment.key for moment in Clock(Load(), plan).moments()]

    assert keys(Plan("timeout", 250, 1_000)) == keys(Plan("aligned", 250))
    at_once, unaligned = (Clock(Load(), Plan(mode, 250)).run().logged for mode in ("timeout", "unaligned"))
    assert abs(at_once - unaligned) <= 3


def test_a_slow_relay_tells_the_modes_apart() -> None:
    """The figures of the documentation: alignment waits for a full channel, and nothing else does."""
    aligned, timeout, _ = runs = [
        Clock(Load(), Plan(mode, 250, 30)).run() for mode in ("aligned", "timeout", "unaligned")
    ]
    assert [(run.latency(50), run.latency(95), round(run.duration), run.logged, run.worst_replay) for run in runs] == [
        (6, 94, 106, 0, 210),
        (3, 24, 36, 42, 172),
        (3, 3, 5, 63, 156),
    ]
    assert aligned.crash(0) == (2, 0)
    assert aligned.crash(600)[0] > timeout.crash(600)[0]


@pytest.mark.parametrize("plan", [Plan("both", 100), Plan("aligned", 0), Plan("timeout", 100, -1)])  # type: ignore[arg-type]
def test_a_plan_has_a_mode_and_ticks(plan: Plan) -> None:
    """Anything else is an error that says what would be right."""
    with pytest.raises(ValueError, match="expected one of aligned, unaligned, timeout, a positive interval"):
        Clock(Load(), plan)


def test_a_snapshot_as_a_film() -> None:
    """It has one picture for each tick, says who waits and what is logged, and keeps its promises."""
    trace = film(Load(capacity=8, until=400), Plan("aligned", 60), after=20)
    times = [moment.time for moment in trace.states]
    assert times == sorted(set(times))
    scenes = [trace.protocol.scene(moment) for moment in trace.states]
    for scene in scenes:
        assert len({item.name for item in scene.items}) == len(scene.items)
        assert all(item.x >= 0 and item.x + item.width <= scene.width for item in scene.items)
    words = [scene.words for scene in scenes]
    blocked = next(text for text in words if "fast→C" in text and "blocked" in text)
    assert "C: aligns." in blocked
    assert "Snapshot 1: complete; 0 records logged." in words[-1]
    player = Player(trace)
    assert "is broken" not in player._repr_html_()
    assert [judge(trace.states[-1]) for judge in trace.protocol.invariants.values()] == [None] * 5


def test_the_players_of_the_notebook_are_small() -> None:
    """Together less than 200 kB."""
    shown = [i08_alignment.play(mode) for mode in MODES]
    assert sum(len(player._repr_html_()) for player in shown) < 200_000


def test_no_interval_saves_a_mode() -> None:
    """Under one load, aligned snapshots break a promise at any interval, and so do unaligned ones."""
    load = i08_alignment.LOADS[3]
    for mode in ("aligned", "unaligned"):
        assert all(i08_alignment.serve(load, (mode, interval)).broken for interval in range(60, 340, 40))
    assert not i08_alignment.serve(load, i08_alignment.choose(load)).broken


@pytest.mark.parametrize("choice", ["aligned", ("aligned", 0), ("timeout", 100), ("both", 100), ("aligned", "soon"), 7])
def test_a_choice_of_another_form_gets_a_line(choice: Any) -> None:
    """Nothing that a learner writes ends in a traceback."""
    checked = Worksheet("i08_alignment").check("choose", lambda load: choice)
    assert checked.mark == "wrong"
    assert 'expected ("aligned", interval)' in repr(checked)


@pytest.mark.parametrize("arrivals", [[5, 3], [100], [1.5], ["soon"], 7])
def test_a_schedule_of_another_form_gets_a_line(arrivals: Any) -> None:
    """It says what a schedule is."""
    checked = Worksheet("i08_alignment").check("late", lambda: arrivals)
    assert checked.mark == "wrong"
    assert "expected ticks from 0 to 99 in order" in repr(checked)


def test_a_failed_check_opens_the_player_where_c_waits() -> None:
    """It has the first snapshot of the load, and begins where C has waited longest."""
    answer = Worksheet("i08_alignment").check("choose", lambda load: ("aligned", 200))
    assert "are promised." in repr(answer)
    assert isinstance(answer.picture, Player)
    assert answer.picture.at > 5
    assert "aligns" in repr(answer.picture)
    assert len(answer.picture._repr_html_()) < 200_000
    never = i08_alignment.serve(i08_alignment.LOADS[0], ("unaligned", 10_000))
    assert timed_runs.picture_served((0,), never) is None


def test_a_schedule_is_wrong_by_a_little() -> None:
    """Nine or ten records keep the barrier between 30 and 45 ticks."""
    waits = {count: timed_runs.run_schedule(range(100 - count, 100)) for count in range(6, 13)}
    assert [count for count, decision in waits.items() if decision and not decision.verdict] == [9, 10]
