"""Keyed state on several tasks: keys hash to groups, groups belong to tasks, and a group can move with its state.

Key groups are Flink's (Carbone et al. 2017). Moving them while records flow is the partition primitive of SEEP (Castro
Fernandez et al. 2013): records wait until the state and the queue are where the new routing leads.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from operator import add
from typing import ClassVar, Self

from streamstate.tutorials.simulation.key_group_scene import listed, picture
from streamstate.tutorials.simulation.keyed_state import (
    GROUPS,
    Cluster,
    Ranges,
    Records,
    Task,
    group_of,
    numbered,
    owner,
)
from streamstate.tutorials.simulation.protocol import Action, Invariant, Key, Protocol
from streamstate.tutorials.simulation.scene import Scene


class KeyGroups(Protocol[Cluster]):
    """A router, and tasks that count records by key. The number of tasks changes while records flow.

    Args:
        keys: the keys of the records, in order; a key is a letter.
        sizes: the numbers of tasks, one after the other.

    Example:
        >>> from streamstate.tutorials.simulation import run
        >>> run(KeyGroups("aba", (2, 3)), seed=1)
        Trace of key groups: 12 actions; all invariants hold
    """

    name: ClassVar[str] = "key groups"

    def __init__(self, keys: str, sizes: Sequence[int] = (2, 3, 2)) -> None:
        self.records = numbered(keys)
        self.sizes = tuple(sizes)

    @classmethod
    def random(cls, seed: int) -> Self:
        """Return a scenario with 12 records, a hot key, and three changes of the number of tasks."""
        chance = random.Random(seed)  # noqa: S311 (reproducible, not secret)
        hot = chance.choice("abcdefgh")
        keys = "".join(hot if chance.random() < 0.5 else chance.choice("abcdefgh") for _ in range(12))
        sizes = [chance.randint(1, 4)]
        while len(sizes) < 4:
            sizes.append(chance.choice([size for size in range(1, 5) if size != sizes[-1]]))
        return cls(keys, sizes)

    # The rules, which mutants and learners override.

    def assign(self, ranges: Ranges, tasks: int) -> Ranges:
        """Return the groups of each of so many tasks. ``ranges`` has those of each task now; at the start, none."""
        return tuple(tuple(group for group in range(GROUPS) if owner(group, tasks) == task) for task in range(tasks))

    def route(self, routing: tuple[int, ...], key: str) -> int:
        """Return the task to which the router sends a record."""
        return routing[group_of(key)]

    def steps_of(self, moves: Sequence[Key]) -> Sequence[Key]:
        """Return the steps of a change: groups stop, move with state and queue, are routed anew, and resume."""
        return [("stop",), *moves, ("switch",), ("resume",)]

    def taken(self, queue: Records, group: int) -> Records:
        """Return what of a task's queue moves with a group."""
        return tuple(record for record in queue if group_of(record[0]) == group)

    def resumed(self, queue: Records, held: Records) -> Records:
        """Return the queue of a task with the records that waited at the router."""
        return (*queue, *held)

    # What can happen.

    def start(self) -> Cluster:
        """Return the first state: nothing was sent."""
        ranges = self.assign((), self.sizes[0])
        spare = (Task(),) * (max(self.sizes) - len(ranges))
        return Cluster(0, _routing(ranges), (), (), (*map(Task, ranges), *spare))

    def actions(self, state: Cluster) -> list[Action]:
        """Return what can happen next."""
        found = []
        if state.sent < len(self.records):
            found.append(Action(("send",), f"{self.records[state.sent]} comes to the router"))
        for number, task in enumerate(state.tasks):
            if task.queue:
                found.append(Action(("count", number), f"Task {number} counts {task.queue[0]}", 0.5))
        begun = self._begun(state)
        if begun.steps:
            found.append(Action(begun.steps[0], self._label(begun), 0.7))
        return found

    def act(self, state: Cluster, action: Action) -> Cluster:
        """Return the state after an action."""
        match action.key:
            case ("send",):
                return self._sent(state._replace(sent=state.sent + 1), self.records[state.sent])
            case ("count", int(number)):
                task = state.tasks[number]
                counted = (*task.counted, task.queue[0])
                return _with(state, number, task._replace(queue=task.queue[1:], counted=counted))
        begun = self._begun(state)
        state = begun._replace(steps=begun.steps[1:])
        match action.key:
            case ("stop",):
                return state._replace(stopped=self._moving(state.changes))
            case ("move", int(group)):
                return self._moved(state, group)
            case ("switch",):
                return state._replace(routing=_routing(self.ranges(state.changes)))
        return self._delivered(state, state.held, self.resumed)._replace(stopped=(), held=())

    def ranges(self, changes: int) -> Ranges:
        """Return the groups of each task, after so many changes."""
        ranges = self.assign((), self.sizes[0])
        for tasks in self.sizes[1 : changes + 1]:
            ranges = self.assign(ranges, tasks)
        return ranges

    def _begun(self, state: Cluster) -> Cluster:
        """Return a state in which the next change has begun, if no change is under way."""
        if state.steps or state.changes + 1 == len(self.sizes):
            return state
        changes = state.changes + 1
        moves: list[Key] = [("move", group) for group in self._moving(changes)]
        return state._replace(changes=changes, steps=tuple(self.steps_of(moves)))

    def _moving(self, changes: int) -> tuple[int, ...]:
        """Return the groups that the newest of so many changes moves."""
        before, after = self.ranges(changes - 1), self.ranges(changes)
        return tuple(group for group in range(GROUPS) if _owners(before, group) != _owners(after, group))

    def _sent(self, state: Cluster, record: str) -> Cluster:
        if group_of(record[0]) in state.stopped:
            return state._replace(held=(*state.held, record))
        return self._delivered(state, (record,), add)

    def _delivered(self, state: Cluster, records: Records, joined: Callable[[Records, Records], Records]) -> Cluster:
        """Put records into the queues of their tasks."""
        for number, task in enumerate(state.tasks):
            coming = tuple(record for record in records if self.route(state.routing, record[0]) == number)
            state = _with(state, number, task._replace(queue=joined(task.queue, coming)))
        return state

    def _moved(self, state: Cluster, group: int) -> Cluster:
        """Move a group with its state and its queue. If several tasks shall have it, the last one gets the state."""
        owners = _owners(self.ranges(state.changes), group)
        queue: Records = ()
        counted: Records = ()
        for number, task in enumerate(state.tasks):
            groups = {*task.groups} - {group} | ({group} if number in owners else set())
            taken = self.taken(task.queue, group)
            known = tuple(record for record in task.counted if group_of(record[0]) == group)
            queue, counted = (*queue, *taken), (*counted, *known)
            left = Task(tuple(sorted(groups)), _without(task.queue, taken), _without(task.counted, known))
            state = _with(state, number, left)
        for number in owners[-1:]:
            task = state.tasks[number]
            state = _with(state, number, Task(task.groups, (*task.queue, *queue), (*task.counted, *counted)))
        return state

    def finished(self, state: Cluster) -> bool:
        """Check that all records are counted and all changes are done."""
        waits = state.held or state.steps or any(task.queue for task in state.tasks)
        return not waits and state.sent == len(self.records) and state.changes + 1 == len(self.sizes)

    # What must hold.

    @property
    def invariants(self) -> Mapping[str, Invariant[Cluster]]:
        """What the tasks promise together."""
        return {
            "every group has a task": _complete,
            "no group has two tasks": _disjoint,
            "records go where their state is": _routed,
            "nothing is lost or doubled": self._once,
            "records of a key stay in order": _ordered,
        }

    def _once(self, state: Cluster) -> str | None:
        there = Counter(state.held)
        for task in state.tasks:
            there.update((*task.queue, *task.counted))
        wrong = [record for record in self.records[: state.sent] if there[record] != 1]
        return f"{wrong[0]} is there {there[wrong[0]]} times." if wrong else None

    # How it looks.

    def _label(self, state: Cluster) -> str:
        kind, *groups = state.steps[0]
        if kind == "stop":
            before, after = self.sizes[state.changes - 1 : state.changes + 1]
            return f"{before} to {after} tasks: the routing to groups {listed(self._moving(state.changes))} stops"
        if kind == "move":
            owners = _owners(self.ranges(state.changes), int(groups[0]))
            return f"Group {groups[0]} moves to {f'task {owners[-1]}' if owners else 'no task'}"
        return "The routing is switched" if kind == "switch" else "The routing to all groups resumes"

    def scene(self, state: Cluster) -> Scene:
        """Return the picture of a state."""
        return picture(state, self.records)


def _complete(state: Cluster) -> str | None:
    lost = [group for group in range(GROUPS) if not _owners(_ranges(state), group)]
    return f"No task has group {listed(lost)}." if lost else None


def _disjoint(state: Cluster) -> str | None:
    shared = [group for group in range(GROUPS) if len(_owners(_ranges(state), group)) > 1]
    return f"Group {shared[0]} has tasks {listed(_owners(_ranges(state), shared[0]))}." if shared else None


def _routed(state: Cluster) -> str | None:
    for number, task in enumerate(state.tasks):
        for record in (*task.queue, *task.counted):
            if group_of(record[0]) not in task.groups:
                return f"{record} is in task {number}, which does not have group {group_of(record[0])}."
    return None


def _ordered(state: Cluster) -> str | None:
    waiting = [record for queue in (state.held, *(task.queue for task in state.tasks)) for record in queue]
    for task in state.tasks:
        for place, record in enumerate(task.counted):
            for later in (*task.counted[place + 1 :], *waiting):
                if later[0] == record[0] and int(later[1:]) < int(record[1:]):
                    return f"{record} is counted before {later}."
    return None


def _ranges(state: Cluster) -> Ranges:
    return tuple(task.groups for task in state.tasks)


def _routing(ranges: Ranges) -> tuple[int, ...]:
    """Return the first task that has each group; -1: none has it."""
    return tuple(next(iter(_owners(ranges, group)), -1) for group in range(GROUPS))


def _owners(ranges: Ranges, group: int) -> list[int]:
    return [number for number, groups in enumerate(ranges) if group in groups]


def _with(state: Cluster, number: int, task: Task) -> Cluster:
    return state._replace(tasks=(*state.tasks[:number], task, *state.tasks[number + 1 :]))


def _without(records: Records, gone: Records) -> Records:
    return tuple(record for record in records if record not in gone)
