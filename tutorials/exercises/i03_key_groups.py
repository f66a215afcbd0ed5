"""The exercises of the notebook I3, "Whose state is it?": key groups, and what moves when a task is split."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING

from streamstate.tutorials.exercises.construct import Construct, Exercise, Invariant
from streamstate.tutorials.exercises.judged_runs import picture_of
from streamstate.tutorials.exercises.key_group_runs import (
    PROMISES,
    collides,
    colliding,
    copied,
    dealt,
    fault_of_stream,
    from_the_first,
    hot,
    is_hot,
    judge_split,
    loads,
    rest_lost,
    run_split,
    run_stream,
    split,
    splits,
)
from streamstate.tutorials.exercises.questions import Choice, Keys, Number, Question, WrongAnswer
from streamstate.tutorials.exercises.sampling import no_case
from streamstate.tutorials.simulation import Graph, Player, explore, run
from streamstate.tutorials.simulation.key_group_mutants import (
    DropsRange,
    HashesToTasks,
    HeldFirst,
    LeavesQueue,
    ResumesFirst,
)
from streamstate.tutorials.simulation.key_groups import KeyGroups
from streamstate.tutorials.simulation.keyed_state import GROUPS, Cluster, Records, hash_of, numbered, owner, task_of
from streamstate.tutorials.simulation.protocol import Key

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from streamstate.tutorials.exercises.sampling import Case


def play(keys: str = "aca") -> Player[Cluster]:
    """Return a player of a task that is split while records come, by the protocol and by three that lack something.

    Args:
        keys: the keys of the records, in order.
    """
    kinds = {
        "nothing": KeyGroups,
        "the queue": LeavesQueue,
        "the wait": ResumesFirst,
        "the groups": HashesToTasks,
    }
    return Player(
        {name: explore(kind(keys, (2, 3))) for name, kind in kinds.items()},
        title="Two tasks become three",
        caption="You choose what happens next. Group 3, which has the key a, is to move.",
        parameter="missing",
    )


def holds(sent: Records, _run: int, counted: Sequence[Records]) -> bool:
    """Check that each task has counted, of each of its keys, what was sent; and nothing else."""
    for key in {record[0] for record in sent}:
        expected = [record for record in sent if record[0] == key]
        for number, records in enumerate(counted):
            found = [record for record in records if record[0] == key]
            if found != (expected if number == task_of(key, len(counted)) else []):
                return False
    return True


class InOrder(KeyGroups):
    """Key groups whose steps have another order."""

    def __init__(self, keys: str, order: Sequence[str]) -> None:
        super().__init__(keys, (2, 3))
        self.order = tuple(order)

    def steps_of(self, moves: Sequence[Key]) -> Sequence[Key]:
        """Return the steps in that order."""
        return [step for kind in self.order for step in (moves if kind == "move" else [(kind,)])]


_STEPS = ("stop", "move", "switch", "resume")


def _broken(graph: Graph[Cluster]) -> set[str]:
    return {name for name, invariant in PROMISES.items() if graph.shortest(invariant) is not None}


@cache
def _may_swap() -> str:
    """Return the pair of neighbouring steps that may change places."""
    found = []
    for place in range(3):
        order = list(_STEPS)
        order[place : place + 2] = reversed(order[place : place + 2])
        if not _broken(explore(InOrder("aca", order))):
            found.append(f"{_STEPS[place]} and {_STEPS[place + 1]}")
    return ", ".join(found) or "none"


def _moved(place: Callable[[int, int], int], things: Sequence[int]) -> int:
    """Return how many things are in another place with five tasks than with four."""
    return sum(place(thing, 4) != place(thing, 5) for thing in things)


def _helping() -> set[str]:
    """Return what makes the fullest task's messages fewer than half, of a stream with a hot key."""
    keys = hot()
    salted = [f"{key}/{number % 10}" for number, key in enumerate(keys)]
    combined = [key for sender in range(4) for key in dict.fromkeys(keys[sender::4])]
    after = {
        "tasks": loads(keys, 128),
        "groups": loads(keys, 8, 1_024),
        "salt": loads(salted, 8),
        "combine": loads(combined, 8),
    }
    return {name for name, counts in after.items() if 2 * max(counts) < max(loads(keys, 8))}


def _sent() -> SearchStrategy[Case]:
    from hypothesis import strategies as st

    return st.tuples(st.text("acb", min_size=1, max_size=4).map(numbered), st.integers(0, 999))


@cache
def _counted(kind: type[KeyGroups], sent: Records, seed: int) -> tuple[Records, ...]:
    """Return what each of three tasks counts, after one has left and another one has come."""
    keys = "".join(record[0] for record in sent)
    return tuple(task.counted for task in run(kind(keys, (3, 2, 3)), seed).states[-1].tasks)


def _mutant(kind: type[KeyGroups], message: str) -> WrongAnswer:
    return WrongAnswer(lambda sent, seed: _counted(kind, sent, seed), message)


def _at_home(counted: Sequence[Records]) -> bool:
    return all(task_of(record[0], 3) == number for number, records in enumerate(counted) for record in records)


def _in_order(records: Records) -> bool:
    return sorted(records, key=lambda record: record[0]) == sorted(records)


EXERCISES: Sequence[Question | Exercise] = (
    Question(
        id="needed",
        task="How many keys must change their task at least?",
        kind=Number(),
        truth=lambda: 1_000 // 5,
        because="The fifth task needs 200 keys, and they come from the others, 50 from each. No other key has to move.",
        wrong=[
            WrongAnswer(50, "That is what each of the four gives."),
            WrongAnswer(250, "That is what each task has now. How many will the fifth one have?"),
            WrongAnswer(1_000, "Must a key that stays with its task be touched?"),
        ],
        hints=["Who gives, and who gets?", "How many keys will the fifth task have?"],
    ),
    Question(
        id="modulo",
        task="How many keys change their task by hash % tasks?",
        kind=Number(tolerance=40),
        truth=lambda: _moved(lambda number, tasks: hash_of(str(number)) % tasks, range(1_000)),
        because="A key stays only if hash % 4 and hash % 5 are the same: that is so for 4 of 20 remainders by 20. "
        "Four of five keys move, and with them their state, though one of five would do.",
        wrong=[
            WrongAnswer(200, "So many have to move. Does the hash know where a key was?"),
            WrongAnswer(1_000, "Some stay: which remainders by 20 are the same by 4 and by 5?"),
            WrongAnswer(500, "Write down the hashes 0 to 19, with both remainders."),
        ],
        hints=["Write down the hashes 0 to 19: by 4, and by 5.", "After 20, it begins again."],
    ),
    Question(
        id="queue",
        task="What breaks if a group moves without its queue?",
        kind=Keys(PROMISES),
        truth=lambda: _broken(explore(LeavesQueue("aca", (2, 3)))),
        because="The old task counts a record of a key whose state has left: it begins a second state for it. "
        "And the new task may count a later record of that key first.",
        wrong=[
            WrongAnswer({"once"}, "The record is not lost: it waits at the old task, which will count it."),
            WrongAnswer({"routed"}, "And if the new task counts the next record of the same key before?"),
            WrongAnswer({"order"}, "Where is the state that the waiting record should be added to?"),
            WrongAnswer(set(), "One record waits at the old task, and the state of its key is at the new one."),
        ],
        hints=["A record waits at the old task. Follow it.", "Then follow the next record of the same key."],
    ),
    Question(
        id="swap",
        task="Which two steps may change places?",
        kind=Choice(
            {
                "stop and move": "groups move before the routing stops",
                "move and switch": "the table is switched before the groups move",
                "switch and resume": "the routing resumes before the table is switched",
                "none": "none of these",
            }
        ),
        truth=_may_swap,
        because="While the routing is stopped, nobody asks the table. It has to be right when the routing resumes.",
        wrong=[
            WrongAnswer("stop and move", "A record may come between the two. Where does the router send it?"),
            WrongAnswer("switch and resume", "Then what was held goes by the old table."),
            WrongAnswer("none", "Who reads the table while the routing is stopped?"),
        ],
        hints=["For each pair: can a record come between the two steps, and where does it go?"],
    ),
    Question(
        id="idle",
        task="With 8 groups and 12 tasks, how many tasks have something to do?",
        kind=Number(),
        truth=lambda: len({owner(group, 12) for group in range(GROUPS)}),
        because="A group is the smallest thing that moves, so at most as many tasks as groups have work. The number is "
        "fixed: the group of each stored key follows from it. Flink calls it the maximum parallelism.",
        wrong=[
            WrongAnswer(12, "Then some group would have two tasks."),
            WrongAnswer(4, "That is how many have nothing to do."),
            WrongAnswer(6, "Is there a reason why two groups should share a task here?"),
        ],
        hints=["Can a group be in two tasks?"],
    ),
    Question(
        id="ranges",
        task="How many of 128 groups change their task by Flink's rule?",
        kind=Number(tolerance=10),
        truth=lambda: _moved(lambda group, tasks: owner(group, tasks, 128), range(128)),
        because="Each range ends earlier than before, and shifts the next. About half of the groups move: fewer than "
        "by hash % tasks, and more than needed. In return, each task has neighbours, which can be read in one go.",
        wrong=[
            WrongAnswer(26, "So many have to move: a fifth. Compare where the range of the last task begins and ends."),
            WrongAnswer(102, "That is four of five, as by hash % tasks. Does group 0 move? And group 1?"),
            WrongAnswer(128, "Group 0 stays with task 0."),
        ],
        hints=["`owner(group, tasks, 128)` computes it, for all groups of `range(128)`."],
    ),
    Construct(
        id="split",
        task="Write `split(ranges, tasks)`",
        solution=split,
        arguments=["ranges", "tasks"],
        cases=splits,
        examples=[([[0, 1, 2, 3], [4, 5, 6, 7]], 3)],
        run=run_split,
        judge=judge_split,
        picture=picture_of,
        wrong=[
            WrongAnswer(
                dealt,
                "You deal all groups anew. A task that goes on should keep what it has, as far as it can.",
            ),
            WrongAnswer(copied, "What the new tasks get has to leave the old ones."),
            WrongAnswer(rest_lost, "Eight groups cannot always be divided without a rest. Who has the rest?"),
            WrongAnswer(from_the_first, "One task gives all. The others have too much still."),
        ],
        hints=[
            "Begin with the groups as they are, and an empty list for each new task.",
            "While one task has two groups more than another, move one.",
        ],
    ),
    Invariant(
        id="invariant",
        task="Write the invariant of a finished run",
        solution=holds,
        arguments=["sent", "run", "counted"],
        cases=_sent,
        examples=[(("a1", "c1", "a2"), 0), (("a1", "a2"), 1), (("a1", "a2"), 11)],
        rule=lambda sent, seed: _counted(KeyGroups, sent, seed),
        mutants=[
            _mutant(HashesToTasks, "routes by hash % tasks, and moves groups."),
            _mutant(ResumesFirst, "lets records go on before the state is there."),
            _mutant(LeavesQueue, "leaves the queue behind."),
            _mutant(DropsRange, "forgets the groups of a task that leaves."),
            _mutant(HeldFirst, "lets records that waited at the router overtake others."),
        ],
        wrong=[
            WrongAnswer(
                lambda sent, run, counted: sorted(sent) == sorted(chain(*counted)),
                "You look at what was counted. Where was it counted?",
            ),
            WrongAnswer(
                lambda sent, run, counted: sorted(sent) == sorted(chain(*counted)) and _at_home(counted),
                "You do not look at the order of a key's records.",
            ),
            WrongAnswer(
                lambda sent, run, counted: _at_home(counted) and all(map(_in_order, counted)),
                "What was counted is right. Was everything counted?",
            ),
        ],
        hints=[
            "For each key: which records were sent, in which order? Who should have them, and what should others have?",
            "`record[0]` is the key, and `task_of(key, 3)` its task.",
        ],
    ),
    Construct(
        id="colliding",
        task="Write a stream of keys that collide",
        solution=colliding,
        arguments=[],
        cases=no_case,
        run=run_stream(collides),
        judge=fault_of_stream,
        wrong=[
            WrongAnswer(lambda: ["a"] * 100, "That is one key. Here, at least ten should do the same harm together."),
            WrongAnswer(lambda: list("abcdefghij") * 10, "Ten keys are few, but their hashes are spread."),
            WrongAnswer(lambda: colliding()[:10], "Each key may come more than once. A hundred records are asked for."),
        ],
        hints=[
            'Look for keys with the same `task_of(key, 8)`: try "0", "1", "2", …',
            "Ten such keys, ten times each.",
        ],
    ),
    Construct(
        id="hot",
        task="Write a stream that no split helps",
        solution=hot,
        arguments=[],
        cases=no_case,
        run=run_stream(is_hot),
        judge=fault_of_stream,
        wrong=[
            WrongAnswer(colliding, "Keys that collide in 8 groups part in 1,024. What can never part?"),
            WrongAnswer(lambda: ["a"] * 100, "A stream of one key. In a real one, most keys are harmless."),
            WrongAnswer(
                lambda: ["a"] * 30 + [str(number) for number in range(70)],
                "The hot key has 30 records. Other keys at its task come and go with the number of groups.",
            ),
        ],
        hints=["What is in one group, whatever the number of groups?", "One key with half of the records."],
    ),
    Question(
        id="helps",
        task="What relieves the task of a hot key?",
        kind=Keys(("tasks", "groups", "salt", "combine")),
        truth=_helping,
        because="A key is in one group, and a group in one task. Salt makes ten keys of one; combining, one message "
        "of many. Both need a step that adds up, which is right for counts, and not for a median.",
        wrong=[
            WrongAnswer({"tasks", "salt", "combine"}, "On which of the many tasks is the hot key?"),
            WrongAnswer({"groups", "salt", "combine"}, "With more groups, the hot key has one for itself. And then?"),
            WrongAnswer({"salt"}, "How many messages does a sender need to tell a count?"),
            WrongAnswer({"combine"}, "With ten keys instead of one, how many tasks share the work?"),
        ],
        hints=["Two of them leave all records of the hot key in one place."],
    ),
    Question(
        id="setting",
        task="How many partitions does the state have after the restart?",
        kind=Number(),
        truth=lambda: 8,
        because="The first epoch fixed it in the checkpoint. A key's state is in the partition hash modulo 8. Modulo "
        "16, the state of about half of the keys would be looked for in a partition that does not have it.",
        wrong=[
            WrongAnswer(16, "Who would have moved the state?"),
            WrongAnswer(24, "The restart adds no partition. By what would Spark then know the partition of a key?"),
            WrongAnswer(1, "The state was written in several partitions, and stays there."),
        ],
        hints=["Where would Spark look for a key's state?"],
    ),
)
