"""Key groups with one mistake each."""

from __future__ import annotations

from collections.abc import Sequence

from streamstate.tutorials.simulation.key_groups import KeyGroups
from streamstate.tutorials.simulation.keyed_state import GROUPS, Ranges, Records, hash_of
from streamstate.tutorials.simulation.protocol import Key


class HashesToTasks(KeyGroups):
    """The router does not know of groups."""

    fault = "the router sends a record to the hash of its key modulo the number of tasks"

    def route(self, routing: tuple[int, ...], key: str) -> int:
        """Return the hash modulo the number of tasks."""
        return hash_of(key) % (max(routing) + 1)


class ResumesFirst(KeyGroups):
    """The new task gets records before it has the state."""

    fault = "the routing is switched, and resumes, before the state has moved"

    def steps_of(self, moves: Sequence[Key]) -> Sequence[Key]:
        """Move the groups last."""
        return [("stop",), ("switch",), ("resume",), *moves]


class LeavesQueue(KeyGroups):
    """What waits in front of the old task stays there."""

    fault = "the state moves without the queue"

    def taken(self, queue: Records, group: int) -> Records:
        """Take nothing."""
        return ()


class SharesEdge(KeyGroups):
    """Both tasks at the edge of a range have the group there."""

    fault = "a range includes its end, which is the beginning of the next one"

    def assign(self, ranges: Ranges, tasks: int) -> Ranges:
        """Add the next group to each range."""
        right = super().assign(ranges, tasks)
        return tuple((*groups, groups[-1] + 1) if groups[-1] + 1 < GROUPS else groups for groups in right)


class DropsRange(KeyGroups):
    """Nobody takes over from a task that leaves."""

    fault = "a merge drops the groups of the tasks that leave"

    def assign(self, ranges: Ranges, tasks: int) -> Ranges:
        """Leave out the groups of the tasks that leave."""
        gone = {group for groups in ranges[tasks:] for group in groups}
        return tuple(tuple(group for group in groups if group not in gone) for groups in super().assign(ranges, tasks))


class HeldFirst(KeyGroups):
    """Records that waited at the router overtake those that waited at the task."""

    fault = "what waited at the router comes before the queue that has moved"

    def resumed(self, queue: Records, held: Records) -> Records:
        """Return the queue behind the records that waited."""
        return (*held, *queue)


KEY_GROUP_MUTANTS: tuple[type[KeyGroups], ...] = (
    HashesToTasks,
    ResumesFirst,
    LeavesQueue,
    SharesEdge,
    DropsRange,
    HeldFirst,
)
"""One mistake each."""
