"""Keys, the groups that they hash to, and tasks that have the groups, with their state and their queues."""

from __future__ import annotations

import zlib
from typing import NamedTuple, TypeAlias

from streamstate.tutorials.simulation.protocol import Key

GROUPS = 8
"""How many groups there are; fixed for ever, because a key's group follows from it."""
Ranges: TypeAlias = tuple[tuple[int, ...], ...]
"""The groups of each task."""
Records: TypeAlias = tuple[str, ...]


class Task(NamedTuple):
    """A task.

    Args:
        groups: the groups that it owns.
        queue: the records that wait, the next one in front.
        counted: the records that its state counts, in order. A key's state is what is counted of this key.
    """

    groups: tuple[int, ...] = ()
    queue: Records = ()
    counted: Records = ()


class Cluster(NamedTuple):
    """A state of the simulation.

    Args:
        sent: how many records have come to the router.
        routing: the task to which the router sends each group; -1: to none.
        stopped: the groups whose records wait at the router.
        held: these records.
        tasks: the tasks; one without groups is not in use.
        changes: how many changes of the number of tasks have begun.
        steps: what is left to do of the latest one.
    """

    sent: int
    routing: tuple[int, ...]
    stopped: tuple[int, ...]
    held: Records
    tasks: tuple[Task, ...]
    changes: int = 0
    steps: tuple[Key, ...] = ()


def hash_of(key: str) -> int:
    """Return a hash that is the same in every process."""
    return zlib.crc32(key.encode())


def group_of(key: str, groups: int = GROUPS) -> int:
    """Return the group of a key."""
    return hash_of(key) % groups


def owner(group: int, tasks: int, groups: int = GROUPS) -> int:
    """Return the task of a group by Flink's rule: each task has a range of neighbours.

    Example:
        >>> [owner(group, 3) for group in range(8)]
        [0, 0, 0, 1, 1, 1, 2, 2]
    """
    return group * tasks // groups


def task_of(key: str, tasks: int, groups: int = GROUPS) -> int:
    """Return the task of a key."""
    return owner(group_of(key, groups), tasks, groups)


def numbered(keys: str) -> tuple[str, ...]:
    """Return a record for each key, with a number among those of its key.

    Example:
        >>> numbered("aba")
        ('a1', 'b1', 'a2')
    """
    return tuple(f"{key}{keys[: place + 1].count(key)}" for place, key in enumerate(keys))
