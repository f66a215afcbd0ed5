"""The state of a dataflow: tasks, the messages between them, and the snapshots that are stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

from streamstate.tutorials.simulation.topology import Topology

T = TypeVar("T")


class Record(NamedTuple):
    """A record on its way: its name, and how many channels it has passed."""

    name: str
    hop: int = 0


class Marker(NamedTuple):
    """A message of the protocol: what was sent before it belongs to snapshot ``number``."""

    number: int


Message: TypeAlias = Record | Marker
Logs: TypeAlias = tuple[tuple[int, tuple[Record, ...]], ...]
"""Records of channels, by channel."""
Published: TypeAlias = tuple[tuple[tuple[int, tuple[str, ...]], ...], ...]
"""For each task, the epochs that it published, with their results."""


class TaskState(NamedTuple):
    """What a task remembers, and loses when it crashes.

    Args:
        offset: how many records it has read from outside.
        seen: the names of the records that came through channels, sorted: its operator state.
        received: the records that came, for each channel that leads in.
        sent: the records that it sent, for each channel that leads out.
        output: results since the last epoch, which nobody outside sees yet.
        prepared: the number and the results of an epoch that waits to be published.
    """

    offset: int
    seen: tuple[str, ...]
    received: tuple[tuple[Record, ...], ...]
    sent: tuple[tuple[Record, ...], ...]
    output: tuple[str, ...] = ()
    prepared: tuple[int, tuple[str, ...]] | None = None


class Part(NamedTuple):
    """A task's part of a snapshot: a copy of its state, and logs of channels."""

    state: TaskState
    logs: Logs = ()


class Task(NamedTuple):
    """A task that runs.

    Args:
        state: its state.
        round: the number of the last snapshot for which it copied its state.
        copy: the copy, while channels are still being logged for it.
        open: the channels that are being logged.
        blocked: the channels from which it takes nothing now.
        logs: the records logged so far.
        part: its part of a snapshot, complete but not stored yet.
    """

    state: TaskState
    round: int = 0
    copy: TaskState | None = None
    open: tuple[int, ...] = ()
    blocked: tuple[int, ...] = ()
    logs: Logs = ()
    part: Part | None = None


class Snapshot(NamedTuple):
    """A complete snapshot; a part that was never stored is None."""

    number: int
    parts: tuple[Part | None, ...]


class Network(NamedTuple):
    """The state of the whole dataflow.

    Args:
        tasks: the tasks.
        queues: the messages in each channel; the first one arrives next.
        started: the number of the last snapshot that was started.
        stored: the parts of that snapshot that are stored.
        acknowledged: the tasks that said that their part is stored.
        complete: the newest complete snapshot.
        published: for each task, the epochs that it published, with their results. No crash can undo it.
        crashes: how many crashes may still happen.
    """

    tasks: tuple[Task, ...]
    queues: tuple[tuple[Message, ...], ...]
    started: int
    stored: tuple[Part | None, ...]
    acknowledged: frozenset[int]
    complete: Snapshot
    published: Published
    crashes: int


class Local(NamedTuple):
    """All that a task's handler may look at: itself, and its own ends of the channels."""

    task: Task
    ins: tuple[int, ...]
    outs: tuple[int, ...]
    queues: tuple[tuple[Message, ...], ...]

    def queued(self, channel: int) -> tuple[Record, ...]:
        """Return the records that wait in a channel."""
        return tuple(message for message in self.queues[channel] if isinstance(message, Record))


class Send(NamedTuple):
    """A message that a handler sends; one with ``first`` overtakes what waits in the channel."""

    channel: int
    message: Message
    first: bool = False


Handled: TypeAlias = tuple[Task, Sequence[Send]]
"""What a handler returns: the task afterwards, and what it sends."""


def logged(topology: Topology, snapshot: Snapshot) -> tuple[tuple[Record, ...], ...]:
    """Return the log of each channel: what its receiver logged, then what its sender did."""
    logs = [dict(part.logs) if part else {} for part in snapshot.parts]
    return tuple(
        (*logs[target].get(channel, ()), *logs[source].get(channel, ()))
        for channel, (source, target) in enumerate(topology.channels)
    )


def log_more(logs: Logs, channel: int, records: Iterable[Record]) -> Logs:
    """Return logs with more records of a channel."""
    known = dict(logs)
    known[channel] = (*known.get(channel, ()), *records)
    return tuple(sorted(known.items()))


def appended(channels: tuple[tuple[Record, ...], ...], place: int, record: Record) -> tuple[tuple[Record, ...], ...]:
    """Return the records of channels with one more record of one of them."""
    return put(channels, place, (*channels[place], record))


def put(items: tuple[T, ...], index: int, item: T) -> tuple[T, ...]:
    """Return items of which one is replaced."""
    return (*items[:index], item, *items[index + 1 :])
