"""Snapshots that take time: bounded channels and a slow relay, as a simulation of discrete events.

The protocols say what may happen; :class:`Clock` decides *when* it does. So a timed run is one of a protocol's runs.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from streamstate.tutorials.simulation.aligned import AlignedBarriers
from streamstate.tutorials.simulation.aligned_timeout import AlignedWithTimeout, barrier_at
from streamstate.tutorials.simulation.dataflow import Dataflow
from streamstate.tutorials.simulation.network import Marker, Message, Network, Record, Snapshot, logged
from streamstate.tutorials.simulation.protocol import Action, Key
from streamstate.tutorials.simulation.topology import Topology
from streamstate.tutorials.simulation.unaligned import UnalignedBarriers

Mode: TypeAlias = Literal["aligned", "unaligned", "timeout"]

MODES: dict[Mode, type[Dataflow]] = {
    "aligned": AlignedBarriers,
    "unaligned": UnalignedBarriers,
    "timeout": AlignedWithTimeout,
}
TASKS = ("A", "B", "fast", "slow", "C")
CHANNELS = ((0, 2), (1, 3), (2, 4), (3, 4))
A, B, FAST, SLOW, C = range(len(TASKS))
STRETCH = 200  # ticks after which the slow relay changes its speed


class Load(NamedTuple):
    """What a dataflow has to do: A sends to C through a fast relay, B through a slow one. Times are in ticks.

    Args:
        a_every: ticks between two records of A.
        b_every: ticks between two records of B.
        slow: what a record costs the slow relay; any other task needs one tick for it.
        slowest: what it costs in every second stretch of 200 ticks.
        capacity: how many records a channel holds.
        copy: how long a task stands still to copy its state.
        write: how long it takes to store a copy, while records flow.
        until: when the run ends.
        b_at: when the records of B arrive, if not regularly.
    """

    a_every: int = 3
    b_every: int = 2
    slow: int = 5
    slowest: int = 5
    capacity: int = 20
    copy: int = 1
    write: int = 2
    until: int = 1_000
    b_at: tuple[int, ...] | None = None

    @property
    def arrivals(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """When the records of A and of B arrive."""
        regular = tuple(range(0, self.until, self.b_every))
        return tuple(range(0, self.until, self.a_every)), regular if self.b_at is None else self.b_at

    def cost(self, task: int, now: int) -> int:
        """Return how long a task needs for a record."""
        if task != SLOW:
            return 1
        return self.slowest if now // STRETCH % 2 else self.slow


class Plan(NamedTuple):
    """How snapshots are taken.

    Args:
        mode: "aligned"; "unaligned"; or "timeout": aligned at first.
        interval: ticks from the start of a snapshot to that of the next one, which waits for its end.
        timeout: with "timeout", the ticks after the start from which barriers overtake.
    """

    mode: Mode
    interval: int
    timeout: int = 0


class Taken(NamedTuple):
    """A complete snapshot: when it was started, when its last part was stored, and how many records it logged."""

    start: int
    end: int
    logged: int


class Moment(NamedTuple):
    """What a run was like after an action."""

    time: int
    key: Key
    network: Network


@dataclass
class Measured:
    """What a run was like, in ticks and records.

    Args:
        latencies: for each record of A, from its arrival to the end of C's work on it.
        taken: the complete snapshots.
        started: when the newest snapshot was started.
        again: for each change, its time, and what a crash would have led to: records read and results given again.
    """

    latencies: list[int] = field(default_factory=list)
    taken: list[Taken] = field(default_factory=list)
    started: int = 0
    again: list[tuple[int, int, int]] = field(default_factory=list)

    def latency(self, percent: int) -> int:
        """Return the latency that so many percent of A's records do not exceed."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]

    @property
    def duration(self) -> float:
        """The mean duration of a complete snapshot; infinite if there is none."""
        return sum(each.end - each.start for each in self.taken) / len(self.taken) if self.taken else float("inf")

    @property
    def logged(self) -> int:
        """How many records the snapshots logged."""
        return sum(each.logged for each in self.taken)

    @property
    def worst_replay(self) -> int:
        """How many records are read again after a crash at the worst time."""
        return max(records for _, records, _ in self.again)

    def crash(self, at: int) -> tuple[int, int]:
        """Return how many records are read again after a crash, and how many results are given again."""
        place = bisect_right(self.again, at, key=lambda change: change[0]) - 1
        return self.again[max(0, place)][1:]


class Clock:
    """Runs a protocol in time: a task does one thing after the other, and takes a record if the next channel has room.

    Args:
        load: what the dataflow has to do.
        plan: how snapshots are taken.
        protocol: another protocol than that of the plan's mode.

    Raises:
        ValueError: the mode is unknown, or the interval is not positive.
    """

    def __init__(self, load: Load, plan: Plan, protocol: type[Dataflow] | None = None) -> None:
        if plan.mode not in MODES or plan.interval < 1 or plan.timeout < 0:
            raise ValueError(f"Invalid {plan}: expected one of {', '.join(MODES)}, a positive interval and a timeout.")
        self.load, self.plan = load, plan
        self.arrivals = load.arrivals
        inputs = (*map(len, self.arrivals), 0, 0, 0)
        self.protocol = (protocol or MODES[plan.mode])(
            Topology(TASKS, CHANNELS, inputs), rounds=load.until, crashes=0, last_covers_all=False
        )
        self.topology = self.protocol.topology
        self.network = self.protocol.start()
        self.measured = Measured()
        self._events = sorted({*self.arrivals[A], *self.arrivals[B], plan.interval})  # a heap of times
        self._free = [0] * len(TASKS)  # when each task has done its work
        self._ready: dict[tuple[int, Message], int] = {}  # when each message is in its channel
        self._storing: dict[int, int] = {}  # when the copy of each task is stored
        self._due = plan.interval
        self._read = self._shown = 0

    def run(self) -> Measured:
        """Run to the end, and return what was measured; a record of A that still waits counts with its age."""
        for _ in self.moments():
            pass
        waiting = self.arrivals[A][len(self.measured.latencies) :]
        self.measured.latencies += [self.load.until - time for time in waiting]
        return self.measured

    def moments(self) -> Iterator[Moment]:
        """Yield what happens, action by action."""
        while self._events and (now := heapq.heappop(self._events)) < self.load.until:
            while (chosen := self._next(now)) is not None:
                self._do(chosen, now)
                yield Moment(now, chosen, self.network)

    def _next(self, now: int) -> Key | None:
        """Return an action that happens now; None if all wait."""
        network = self.network
        for task, time in self._storing.items():
            if time <= now:
                return ("store", task)
        for task in self.topology.sinks:
            prepared = network.tasks[task].state.prepared
            if prepared and self.protocol.may_publish(network, prepared[0]):
                return ("publish", task)
        if now >= self._due and network.started == network.complete.number and not self._storing:
            return ("start",)
        idle = (task for task in reversed(range(len(TASKS))) if self._free[task] <= now)
        return next((key for task in idle if (key := self._work(task, now)) is not None), None)

    def _work(self, task: int, now: int) -> Key | None:
        """Return what a task that is idle does next: barriers first, then the record that waits longest."""
        if task in self.topology.sources:
            return self._source(task, now)
        ready: list[tuple[int, int]] = []
        for channel in self.topology.ins[task]:
            queue = self.network.queues[channel]
            if self._overtakes(channel, now):
                return ("overtake", channel)
            if not queue or not self.protocol.may_receive(self.network, channel):
                continue
            message, time = queue[0], self._ready[channel, queue[0]]
            if isinstance(message, Marker) and time <= now:
                return ("receive", channel, 0)
            if isinstance(message, Record) and time <= now and self._room(message.name, message.hop + 1):
                ready.append((time, channel))
        return ("receive", min(ready)[1], 0) if ready else None

    def _source(self, task: int, now: int) -> Key | None:
        here = self.network.tasks[task]
        if here.round < self.network.started:
            return ("copy", task)
        offset, times = here.state.offset, self.arrivals[task]
        arrived = offset < len(times) and times[offset] <= now
        return ("read", task) if arrived and self._room(self.topology.records[task][offset], 0) else None

    def _overtakes(self, channel: int, now: int) -> bool:
        if self.plan.mode != "timeout" or now < self.measured.started + self.plan.timeout:
            return False
        place = barrier_at(self.network, channel)
        return place > 0 and self._ready[channel, self.network.queues[channel][place]] <= now

    def _room(self, name: str, hop: int) -> bool:
        """Check that there is room in the channel to which a record goes next; barriers need none."""
        way = self.topology.ways[name]
        queue = self.network.queues[way[hop]] if hop < len(way) else ()
        return sum(isinstance(each, Record) for each in queue) < self.load.capacity

    def _do(self, key: Key, now: int) -> None:
        before = self.network
        self.network = self.protocol.act(before, Action(key, ""))
        match key:
            case ("start",):
                self.measured.started = now
                self._due = now + self.plan.interval
                heapq.heappush(self._events, self._due)
                heapq.heappush(self._events, now + self.plan.timeout)
            case ("store", int(task)):
                del self._storing[task]
                if self.network.complete is not before.complete:
                    log = sum(map(len, logged(self.topology, self.network.complete)))
                    self.measured.taken.append(Taken(self.measured.started, now, log))
                    self._note(now)
            case ("read" | "copy", int(task)):
                self._worked(task, before, now)
            case ("overtake", int(channel)):
                self._worked(self.topology.channels[channel][1], before, now)
            case ("receive", int(channel), _):
                self._worked(self.topology.channels[channel][1], before, now, before.queues[channel][0])

    def _worked(self, task: int, before: Network, now: int, message: Message | None = None) -> None:
        """Let time pass for what a task did, and for what it sent."""
        read = self.network.tasks[task].state.offset - before.tasks[task].state.offset
        copied = self.network.tasks[task].round > before.tasks[task].round
        taken = read or isinstance(message, Record)
        self._free[task] = now + (self.load.copy if copied else self.load.cost(task, now) if taken else 0)
        heapq.heappush(self._events, self._free[task])
        for channel in self.topology.outs[task]:
            queue = self.network.queues[channel]
            for sent in {queue[0], queue[-1]} if queue else ():
                self._ready.setdefault((channel, sent), self._free[task])
        if self.network.tasks[task].part and task not in self._storing:
            self._storing[task] = self._free[task] + self.load.write
            heapq.heappush(self._events, self._storing[task])
        if read or (taken and task == C):
            self._counted(read, message, now)

    def _counted(self, read: int, message: Message | None, now: int) -> None:
        """Note a record that was read, or a result."""
        self._read += read
        self._shown += not read
        if isinstance(message, Record) and message.name.startswith("a"):
            self.measured.latencies.append(self._free[C] - self.arrivals[A][int(message.name[1:]) - 1])
        self._note(now)

    def _note(self, now: int) -> None:
        covered, shown = _in_snapshot(self.network.complete)
        self.measured.again.append((now, self._read - covered, self._shown - shown))


def _in_snapshot(snapshot: Snapshot) -> tuple[int, int]:
    """Return how many records the sources had read, and how many results C had given."""
    states = [part.state for part in snapshot.parts if part]
    return sum(state.offset for state in states), len(states[C].seen)
