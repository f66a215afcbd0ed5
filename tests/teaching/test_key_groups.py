"""Key groups that move between tasks while records flow: state, queue and routing stay together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import pytest

from scripts.mutants import SEEDS, recorded
from streamstate.tutorials.exercises import Construct
from streamstate.tutorials.exercises.i03_key_groups import EXERCISES, InOrder, play
from streamstate.tutorials.exercises.key_group_runs import dealt, split
from streamstate.tutorials.simulation import Player, explore, run
from streamstate.tutorials.simulation.key_group_mutants import KEY_GROUP_MUTANTS, DropsRange, LeavesQueue
from streamstate.tutorials.simulation.key_groups import KeyGroups
from streamstate.tutorials.simulation.keyed_state import GROUPS, group_of, hash_of, owner, task_of
from streamstate.tutorials.simulation.runs import violations


def broken(protocol: KeyGroups) -> set[str]:
    """The invariants that some reachable state breaks."""
    graph = explore(protocol, 50_000)
    assert graph.complete
    pairs = zip(graph.states, graph.edges, strict=True)
    return {name for state, edges in pairs for name, _ in violations(protocol, state, stuck=not edges)}


def test_a_key_keeps_its_group_and_a_task_has_neighbours() -> None:
    """Flink's rule gives each task a range, and all ranges differ by one group at most."""
    for tasks in range(1, GROUPS + 1):
        owners = [owner(group, tasks) for group in range(GROUPS)]
        assert owners == sorted(owners)
        counts = [owners.count(task) for task in range(tasks)]
        assert max(counts) - min(counts) <= 1
        assert task_of("a", tasks) == owners[group_of("a")]


def test_what_moves_follows_from_the_rule() -> None:
    """From four tasks to five: four keys of five, half of the groups, or a fifth."""
    assert sum(hash_of(str(number)) % 4 != hash_of(str(number)) % 5 for number in range(1_000)) == 800
    assert sum(owner(group, 4, 128) != owner(group, 5, 128) for group in range(128)) == 62
    groups = [[2 * task, 2 * task + 1] for task in range(4)]
    kept = sum(len({*old} & {*new}) for old, new in zip(groups, split(groups, 5), strict=False))
    assert GROUPS - kept == GROUPS // 5


def test_no_promise_breaks() -> None:
    """In random runs with a hot key, splits and merges; also in all states of a small scenario."""
    for seed in SEEDS:
        trace = run(KeyGroups.random(seed), seed)
        assert trace.violations == (), (seed, trace)
        assert trace.protocol.finished(trace.states[-1])
    assert broken(KeyGroups("aca", (2, 3, 1))) == set()


def test_two_orders_of_the_steps_are_right() -> None:
    """The routing stops first and resumes last; when the table changes in between does not matter."""
    right = [order for order in permutations(("stop", "move", "switch", "resume")) if not broken(InOrder("aca", order))]
    assert right == [("stop", "move", "switch", "resume"), ("stop", "switch", "move", "resume")]


@pytest.mark.parametrize("mutant", KEY_GROUP_MUTANTS)
def test_a_mistake_is_caught(mutant: type[KeyGroups]) -> None:
    """Not seldom; ``test_snapshot_protocols.py`` counts again what is recorded."""
    [found] = [each for each in recorded() if (each["protocol"], each["fault"]) == (mutant.name, mutant.fault)]
    assert found["caught"] >= 15


def test_every_promise_is_broken_by_some_mutant() -> None:
    """None of them holds for want of a case."""
    found = {
        name for mutant in KEY_GROUP_MUTANTS for seed in SEEDS[:10] for name in run(mutant.random(seed), seed).broken
    }
    assert found == {*KeyGroups("a").invariants}


@pytest.mark.parametrize(
    ("groups", "message", "tick"),
    [
        ([[0, 1, 2, 3], [4, 5, 6], [7, 3]], "'no group has two tasks' is broken: Group 3 has tasks 0, 2.", 2),
        ([[0, 1, 2], [4, 5, 6], [7]], "'every group has a task' is broken: No task has group 3.", 2),
        ([[0, 1, 2, 3], [4, 5, 6, 7], []], "The tasks have 0, 4, 4 groups. That is not even.", 19),
        (dealt([], 3), "3 groups change their task. 2 are enough.", 22),
        ([[0, 1, 2, 3], [4, 5, 6, 7]], "expected 3 lists of groups from 0 to 7", None),
        ([[0], 1, 2], "expected 3 lists of groups from 0 to 7", None),
    ],
)
def test_a_split_is_judged_by_what_it_does(groups: Sequence[object], message: str, tick: int | None) -> None:
    """A player opens where a promise broke, or at the end of the run if none did."""
    [exercise] = [each for each in EXERCISES if isinstance(each, Construct) and each.id == "split"]
    case = ([[0, 1, 2, 3], [4, 5, 6, 7]], 3)
    answer = exercise.check(lambda ranges, tasks: groups if (ranges, tasks) == case else split(ranges, tasks))
    assert answer.mark == "wrong"
    assert any(message in line for line in answer.lines)
    assert (answer.picture and answer.picture.at) == tick
    assert answer.picture is None or isinstance(answer.picture, Player)


def test_the_picture() -> None:
    """It says what the router holds, where each group goes, and what each task has."""
    trace = explore(LeavesQueue("aca", (2, 3))).shortest("records of a key stay in order")
    assert trace is not None
    words = trace.protocol.scene(trace.states[-1]).words
    assert words.startswith("router: ")
    assert "group 3: to task 1." in words
    assert trace.violations[-1].reason == "a2 is counted before a1."


def test_a_group_without_a_task_loses_its_records() -> None:
    """The router has nobody to send them to, and the state is gone."""
    trace = run(DropsRange("cc", (3, 2)), 1)
    assert trace.violations[0].reason == "No task has group 6."
    assert trace.states[-1].routing[6:] == (-1, -1)


def test_the_player_is_small() -> None:
    """A notebook keeps it in its output."""
    assert len(play()._repr_html_()) < 200_000
