"""Splits and streams that a learner wrote, and what is wrong with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from streamstate.tutorials.exercises.judged_runs import Judged
from streamstate.tutorials.simulation import Trace, run
from streamstate.tutorials.simulation.key_groups import KeyGroups
from streamstate.tutorials.simulation.keyed_state import GROUPS, Cluster, Ranges, Records, group_of, owner, task_of

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from streamstate.tutorials.exercises.attempts import Function
    from streamstate.tutorials.exercises.sampling import Case

Groups: TypeAlias = list[list[int]]
"""The groups of each task, as a learner writes them."""

PROMISES = {
    "complete": "every group has a task",
    "disjoint": "no group has two tasks",
    "routed": "records go where their state is",
    "once": "nothing is lost or doubled",
    "order": "records of a key stay in order",
}
"""What the tasks promise together: a short name, and the invariant."""
_SHORT = {invariant: name for name, invariant in PROMISES.items()}


@dataclass(frozen=True)
class Split(Judged):
    """A learner's split. Two are equal if the same is wrong with them."""

    groups: Ranges = field(default=(), compare=False)

    def __repr__(self) -> str:
        return repr([list(groups) for groups in self.groups])


@dataclass(frozen=True)
class Stream(Judged):
    """A learner's stream. Two are equal if the same is wrong with them."""

    keys: Records = field(default=(), compare=False)

    def __repr__(self) -> str:
        counts = Counter(self.keys).most_common(1)
        heaviest = f", {counts[0][1]} of the same key" if counts else ""
        return f"{len(self.keys)} records{heaviest}, {max(loads(self.keys, 8))} in one of 8 tasks"


def loads(keys: Sequence[str], tasks: int, groups: int = GROUPS) -> list[int]:
    """Return how many of the records each task gets."""
    counts = Counter(task_of(key, tasks, groups) for key in keys)
    return [counts[task] for task in range(tasks)]


def split(ranges: Groups, tasks: int) -> Groups:
    """Return the groups of each of more tasks than now; as few as possible change their task."""
    found = [list(groups) for groups in ranges] + [[] for _ in range(tasks - len(ranges))]
    while len(max(found, key=len)) > len(min(found, key=len)) + 1:
        min(found, key=len).append(max(found, key=len).pop())
    return found


def colliding() -> list[str]:
    """Return a stream of ten keys, which all hash to the same group."""
    return [key for key in map(str, range(1_000)) if group_of(key) == 0][:10] * 10


def hot() -> list[str]:
    """Return a stream of which half is of one key."""
    return ["hot"] * 50 + [str(number) for number in range(50)]


def dealt(_ranges: Groups, tasks: int) -> Groups:
    """Deal all groups anew, by Flink's rule."""
    return [[group for group in range(GROUPS) if owner(group, tasks) == task] for task in range(tasks)]


def copied(ranges: Groups, tasks: int) -> Groups:
    """Give groups to the new tasks, and take them from nobody."""
    return [*map(list, ranges), *split(ranges, tasks)[len(ranges) :]]


def rest_lost(ranges: Groups, tasks: int) -> Groups:
    """Give each task as many groups, and forget the rest."""
    groups, share = sorted(chain(*ranges)), GROUPS // tasks
    return [groups[task * share : (task + 1) * share] for task in range(tasks)]


def from_the_first(ranges: Groups, tasks: int) -> Groups:
    """Take all groups from the first task."""
    first, *others = map(list, ranges)
    new = [[first.pop() for _ in range(GROUPS // tasks) if len(first) > 1] for _ in range(tasks - len(ranges))]
    return [first, *others, *new]


class _Split(KeyGroups):
    """Key groups that are split as a learner says."""

    name = "your split"

    def __init__(self, before: Ranges, after: Ranges) -> None:
        super().__init__("abcdefgk", (len(before), len(after)))
        self.before, self.after = before, after

    def assign(self, ranges: Ranges, tasks: int) -> Ranges:
        return self.after if ranges else self.before


def splits() -> SearchStrategy[Case]:
    """Return cases: the groups of tasks that have equally many, as far as possible; and a larger number of tasks."""
    from hypothesis import strategies as st

    def even(groups: Sequence[int], before: int, more: int) -> tuple[Groups, int]:
        places = range(GROUPS)
        ranges = [sorted(groups[each] for each in places if owner(each, before) == task) for task in range(before)]
        return ranges, before + more

    return st.builds(even, st.permutations(range(GROUPS)), st.integers(1, 3), st.integers(1, 3))


def run_split(function: Function, case: Case) -> Split | None:
    """Run a learner's split while records come, up to the first broken promise."""
    ranges, tasks = case
    before = tuple(map(tuple, ranges))
    answer = function(ranges, tasks)
    if answer is None or answer is ...:
        return None
    try:
        after = tuple(tuple(sorted({*groups})) for groups in answer)
    except TypeError:
        after = ()
    if len(after) != tasks or not {*chain(*after)} <= {*range(GROUPS)}:
        raise ValueError(f"expected {tasks} lists of groups from 0 to {GROUPS - 1}, not {answer!r}")
    trace = run(_Split(before, after), 0, until_broken=True)
    return Split(_fault(before, after, trace), trace, after)


def _fault(before: Ranges, after: Ranges, trace: Trace[Cluster]) -> str:
    if trace.violations:
        return _SHORT.get(trace.violations[0].invariant, "end")
    if _sizes(after)[-1] > _sizes(after)[0] + 1:
        return "uneven"
    return "moves" if _changed(before, after) > _fewest(before, len(after)) else ""


def _sizes(ranges: Ranges) -> list[int]:
    return sorted(map(len, ranges))


def _changed(before: Ranges, after: Ranges) -> int:
    return GROUPS - sum(len({*old} & {*new}) for old, new in zip(before, after, strict=False))


def _fewest(before: Ranges, tasks: int) -> int:
    return _changed(before, tuple(map(tuple, split([list(groups) for groups in before], tasks))))


def judge_split(case: Case, answer: Split) -> str:
    """Say what must hold for a split, and does not; empty if all does."""
    before = tuple(map(tuple, case[0]))
    if answer.fault == "uneven":
        return f"The tasks have {', '.join(map(str, _sizes(answer.groups)))} groups. That is not even."
    if answer.fault == "moves":
        needed = _fewest(before, case[1])
        return f"{_changed(before, answer.groups)} groups change their task. {needed} are enough."
    found = answer.trace.violations[:1] if answer.trace else ()
    return " ".join(f"'{each.invariant}' is broken: {each.reason}" for each in found)


def run_stream(judge: Callable[[Records], str]) -> Callable[[Function, Case], Stream | None]:
    """Return what runs a learner's function that makes a stream, and judges it."""

    def streamed(function: Function, _: Case) -> Stream | None:
        answer = function()
        if answer is None or answer is ...:
            return None
        if not isinstance(answer, (list, tuple)) or not all(isinstance(key, str) for key in answer):
            raise ValueError(f"expected a list of texts, not {answer!r}"[:200])
        keys = tuple(answer)
        return Stream(f"There are {len(keys)} records." if len(keys) != 100 else judge(keys), keys=keys)

    return streamed


def collides(keys: Records) -> str:
    """Say why a stream is not one of many keys that collide; empty if it is."""
    if max(Counter(keys).values()) > 10:
        return "More than a tenth of the records have the same key."
    return "" if max(loads(keys, 8)) >= 50 else "No task has half of the records."


def is_hot(keys: Records) -> str:
    """Say why a stream is not one that no split helps; empty if it is."""
    if len({*keys}) < 10:
        return "There are fewer than ten different keys."
    if max(loads(keys, 8)) < 50:
        return "With 8 tasks, none has half of the records."
    apart = any(max(loads(keys, groups, groups)) < 50 for groups in (8, 128, 1_024))
    return "With more groups, and a task for each, no task has half of the records." if apart else ""


def fault_of_stream(_: Case, stream: Stream) -> str:
    """Say what is wrong with a stream."""
    return stream.fault
