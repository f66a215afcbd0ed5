"""The bottleneck of a query: which part takes its time, and whether more partitions would help.

The numbers are those of recent epochs (:class:`EpochLoad`). The input rows of an epoch are counted by key, which takes
a job of Spark, only if one partition's task is much slower than the others: a single hot key cannot be split, several
heavy keys in one partition can.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Literal, TypeAlias

from streamstate.errors import EpochGoneError, NoResultError, NotReplayableError
from streamstate.snapshots.store.epoch_load import EpochLoad, OperatorLoad, TaskLoad

if TYPE_CHECKING:
    from streamstate.state_inspect import History
    from streamstate.state_inspect.inputs.heavy_inputs import HeavyInput

BottleneckKind: TypeAlias = Literal["operator", "partition", "source", "sink", "hot key"]

# A part that takes less of an epoch is not its bottleneck.
_MUST_TAKE = 0.4
# A key with so much of the slowest task's rows is the reason that it is slow.
_HOT = 0.6
# So many times as long as a median task is a slow one.
_UNEVEN = 2.0
# Shorter tasks are not compared: starting them takes longer than their rows.
_SHORT = 0.2
_SOURCE = ("latestOffset", "getBatch", "getOffset")
_SINK = ("commitOffsets", "commitBatch")


@dataclass(frozen=True)
class Bottleneck:
    """The part of a query that takes its time.

    Attributes:
        kind: the kind of part; None if no part stands out.
        name: its name: an operator's, a source's, or a key such as ``carrier='ORD'``; empty without one.
        share: the share of the epochs' time that it takes, from 0 to 1; of a hot key, its share of the rows.
        helps: whether more partitions would help.
        reason: the reason, in a sentence or two.
        numbers: the numbers that it follows from, by name.
    """

    kind: BottleneckKind | None
    name: str
    share: float
    helps: bool
    reason: str
    numbers: Mapping[str, float | str | None] = field(default_factory=dict)


def bottleneck_of(
    loads: Sequence[EpochLoad], cores: int, *, heavy: Callable[[], Sequence[HeavyInput] | None] = lambda: None
) -> Bottleneck:
    """Return the bottleneck of a query.

    Args:
        loads: the load of recent epochs that read input, without the first two of a start.
        cores: the tasks that run at once.
        heavy: returns the heaviest keys of the input of one of these epochs; None if they are not known. It is called
            only if one partition is much slower than the others.
    """
    if not loads:
        return Bottleneck(None, "", 0.0, helps=False, reason="No epoch has read input yet.")
    seconds = _typical(loads, lambda load: load.seconds)
    source = _typical(loads, lambda load: _phases(load, _SOURCE))
    stage = _typical(loads, lambda load: _stage_seconds(load.tasks, cores))
    # The other stages are shorter than the longest one; of a query with one shuffle, there is one other.
    sink = _typical(loads, lambda load: _sink_seconds(load, cores))
    numbers: dict[str, float | str | None] = {
        "seconds": seconds,
        "source_seconds": source,
        "stage_seconds": stage,
        "sink_seconds": sink,
        "cores": cores,
    }
    shares = {"source": source, "stage": stage, "sink": sink}
    part = max(shares, key=lambda name: shares[name])
    share = min(shares[part] / seconds, 1.0) if seconds else 0.0
    if share < _MUST_TAKE:
        reason = f"No part of an epoch stands out: of its {seconds:.1f} s, the tasks take {stage:.1f} s."
        return Bottleneck(None, "", share, helps=False, reason=reason, numbers=numbers)
    if part == "source":
        return _source(loads[-1], share, numbers)
    if part == "sink":
        reason = (
            f"An epoch takes {seconds:.1f} s, but its longest stage only {stage:.1f} s: the rest, {sink:.1f} s, is the"
            " sink's, or that of a function that gets each epoch's rows. More partitions will not make it faster."
        )
        return Bottleneck("sink", "sink", share, helps=False, reason=reason, numbers=numbers)
    return _stage(loads, share, cores, numbers, heavy)


def keys_of_epoch(history: History, epoch: int, rows: int | None = None) -> Callable[[], list[HeavyInput] | None]:
    """Return the function that counts the input of an epoch by key, for :func:`bottleneck_of`.

    Args:
        history: the history of a query whose plan is known in this process.
        epoch: a captured epoch.
        rows: how many rows it read, if that is known; of more than a million, a sample is counted.
    """

    def counted() -> list[HeavyInput] | None:
        from streamstate.state_inspect.inputs.heavy_inputs import heavy_inputs

        try:
            return heavy_inputs(history.recorded, epoch, rows=rows)
        except (NoResultError, NotReplayableError, EpochGoneError):
            return None

    return counted


def _source(load: EpochLoad, share: float, numbers: Mapping[str, float | str | None]) -> Bottleneck:
    reason = (
        f"{share:.0%} of an epoch is spent asking the source for its newest offsets and planning what to read, not"
        " processing. More partitions will not make it faster."
    )
    return Bottleneck("source", _busiest(load), share, helps=False, reason=reason, numbers=numbers)


def _busiest(load: EpochLoad) -> str:
    return max(load.sources, key=lambda source: source.rows).name if load.sources else "source"


def _stage(
    loads: Sequence[EpochLoad],
    share: float,
    cores: int,
    numbers: dict[str, float | str | None],
    heavy: Callable[[], Sequence[HeavyInput] | None],
) -> Bottleneck:
    """Return the bottleneck of a query whose longest stage takes most of an epoch."""
    known = [load.tasks for load in loads if load.tasks is not None]
    tasks = known[-1]
    numbers |= {"tasks": tasks.tasks, "median_seconds": tasks.median_seconds, "worst_seconds": tasks.worst_seconds}
    if not tasks.stateful and _is_uneven(tasks):
        reason = (
            f"The longest stage reads the source, and its slowest task takes {tasks.worst_seconds:.1f} s where a median"
            f" one takes {tasks.median_seconds:.1f} s: one of the source's partitions has more rows than others. More"
            " partitions of the state do not change that."
        )
        return Bottleneck("source", _busiest(loads[-1]), share, helps=False, reason=reason, numbers=numbers)
    if not tasks.stateful:
        reason = (
            f"The longest stage comes before the state: its {tasks.tasks} tasks read the source and compute the rows,"
            " such as with a function in Python. Their number follows from the source's partitions, not from those of"
            " the state."
        )
        return Bottleneck("operator", "reading and computing", share, helps=False, reason=reason, numbers=numbers)
    slow = [one for one in known if _is_uneven(one)]
    if len(slow) * 2 > len(known):
        return _uneven(slow, share, numbers, heavy)
    return _operator(loads[-1], tasks, share, cores, numbers)


def _uneven(
    slow: Sequence[TaskLoad],
    share: float,
    numbers: dict[str, float | str | None],
    heavy: Callable[[], Sequence[HeavyInput] | None],
) -> Bottleneck:
    """Return why one partition's task is slower than the others: a hot key, an unlucky hash, or not its rows."""
    tasks = slow[-1]
    ratio = tasks.worst_seconds / tasks.median_seconds if tasks.median_seconds else math.inf
    place = f"partition {tasks.worst_partition}"
    slower = f"The task of {place} takes {tasks.worst_seconds:.1f} s, {ratio:.1f} times that of a median one"
    even = tasks.worst_rows is not None and tasks.median_rows and tasks.worst_rows < 1.3 * tasks.median_rows
    if even or len({one.worst_partition for one in slow}) * 2 > max(len(slow), 3):
        why = "with no more rows" if even else "but in other epochs it is another one"
        reason = f"{slower}, {why}: the machine or the work per row is uneven, which more partitions do not change."
        return Bottleneck("partition", place, share, helps=False, reason=reason, numbers=numbers)
    share_of_worst = _share_of_worst(tasks)
    numbers["worst_share_of_rows"] = share_of_worst
    keys = heavy()
    if not keys:
        reason = (
            f"{slower}. Whether one hot key or several keys are the reason is not known, because the epoch's input"
            " cannot be read again."
        )
        return Bottleneck("partition", place, share, helps=False, reason=reason, numbers=numbers)
    first = keys[0]
    numbers |= {f"rows of {key.name}": key.share for key in keys}
    if first.share >= _HOT * share_of_worst:
        reason = (
            f"The key {first.name} has {first.share:.0%} of all rows, and all of them fall on {place}. A key cannot be"
            " split: no number of partitions helps. A finer key would, or aggregating before this operator."
        )
        return Bottleneck("hot key", first.name, first.share, helps=False, reason=reason, numbers=numbers)
    reason = (
        f"{slower}, but no single key is the reason: the heaviest, {first.name}, has {first.share:.0%} of the rows."
        f" Several keys fall on {place}; more partitions separate them."
    )
    return Bottleneck("partition", place, share, helps=True, reason=reason, numbers=numbers)


def _operator(
    load: EpochLoad, tasks: TaskLoad, share: float, cores: int, numbers: dict[str, float | str | None]
) -> Bottleneck:
    """Return the bottleneck of a query with an even stateful stage: the number of its tasks, or their work."""
    slowest = max(load.operators, key=_state_seconds, default=None)
    name = "stateful stage" if slowest is None else slowest.name
    work = tasks.tasks * tasks.median_seconds
    on_state = sum(map(_state_seconds, load.operators))
    numbers |= {"task_seconds": work, "state_seconds": on_state}
    what = "in their state stores" if on_state >= work / 2 else "on the rows, beside their state stores"
    spent = f"The tasks of {name} spend {max(on_state, work - on_state):.1f} of {work:.1f} s {what}"
    if tasks.tasks < cores:
        reason = f"{spent}. {tasks.tasks} partitions keep only {tasks.tasks} of {cores} cores busy."
        return Bottleneck("operator", name, share, helps=True, reason=reason, numbers=numbers)
    reason = (
        f"{spent}. All {cores} cores are busy with {tasks.tasks} partitions: more cores or fewer rows would help, more"
        " partitions alone will not."
    )
    return Bottleneck("operator", name, share, helps=False, reason=reason, numbers=numbers)


def _typical(loads: Sequence[EpochLoad], value: Callable[[EpochLoad], float]) -> float:
    return median(map(value, loads))


def _phases(load: EpochLoad, names: Sequence[str]) -> float:
    return sum(load.phases.get(name, 0.0) for name in names)


def _stage_seconds(tasks: TaskLoad | None, cores: int) -> float:
    """Return how long the longest stage takes, if its tasks run on all cores."""
    if tasks is None:
        return 0.0
    return max(tasks.worst_seconds, (tasks.median_seconds * (tasks.tasks - 1) + tasks.worst_seconds) / cores)


def _sink_seconds(load: EpochLoad, cores: int) -> float:
    if load.tasks is None:
        return _phases(load, _SINK)
    rest = load.phases.get("addBatch", 0.0) - 2 * _stage_seconds(load.tasks, cores)
    return max(rest, 0.0) + _phases(load, _SINK)


def _is_uneven(tasks: TaskLoad) -> bool:
    """Return whether one task takes much longer than the others."""
    return tasks.tasks > 1 and tasks.worst_seconds >= max(_SHORT, _UNEVEN * tasks.median_seconds)


def _share_of_worst(tasks: TaskLoad) -> float:
    """Return the share of the rows that the slowest task has, or of the time, if the rows are not known."""
    known = tasks.worst_rows is not None and tasks.median_rows is not None
    worst, typical = (tasks.worst_rows, tasks.median_rows) if known else (tasks.worst_seconds, tasks.median_seconds)
    assert worst is not None
    assert typical is not None
    total = worst + (tasks.tasks - 1) * typical
    return worst / total if total else 1.0


def _state_seconds(operator: OperatorLoad) -> float:
    return operator.update_seconds + operator.commit_seconds
