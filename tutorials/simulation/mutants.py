"""Protocols with one mistake each, and how often random runs find it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from streamstate.tutorials.simulation.aligned import AlignedBarriers
from streamstate.tutorials.simulation.aligned_timeout import AlignedWithTimeout
from streamstate.tutorials.simulation.chandy_lamport import ChandyLamport
from streamstate.tutorials.simulation.dataflow import Dataflow
from streamstate.tutorials.simulation.key_groups import KeyGroups
from streamstate.tutorials.simulation.log_structured import LogStructured
from streamstate.tutorials.simulation.network import (
    Handled,
    Local,
    Logs,
    Marker,
    Message,
    Network,
    Part,
    Record,
    TaskState,
    log_more,
)
from streamstate.tutorials.simulation.protocol import Protocol
from streamstate.tutorials.simulation.runs import run
from streamstate.tutorials.simulation.stop_first import DrainFirst, PauseFirst
from streamstate.tutorials.simulation.unaligned import UnalignedBarriers


class Reordering(ChandyLamport):
    """Channels that are not first in, first out."""

    fault = "channels reorder messages"

    def arrivals(self, queue: tuple[Message, ...]) -> Sequence[int]:
        """Any message may come next."""
        return range(len(queue))


class NoLog(ChandyLamport):
    """The state of the channels is not part of the snapshot."""

    fault = "channels are not logged"

    def on_record(self, here: Local, channel: int, record: Record) -> Handled:
        """Count the record only."""
        return self.process(here, channel, record)


class LogsOneChannel(ChandyLamport):
    """The second marker ends the logging of all channels."""

    fault = "the second marker ends the logging of all channels"

    def on_marker(self, here: Local, channel: int, number: int) -> Handled:
        """Close every channel."""
        if number > here.task.round:
            return super().on_marker(here, channel, number)
        return self.closed(here.task._replace(open=())), ()


class LateMarkers(ChandyLamport):
    """A record may be sent between the copy and the marker."""

    fault = "the marker is sent after the next record"

    def enqueue(self, queue: tuple[Message, ...], message: Message, *, first: bool) -> tuple[Message, ...]:
        """Put a record before a marker that was sent just now."""
        if isinstance(message, Record) and queue and isinstance(queue[-1], Marker):
            return (*queue[:-1], message, queue[-1])
        return super().enqueue(queue, message, first=first)


class LogsLost(ChandyLamport):
    """The logs are stored and forgotten."""

    fault = "logs are not sent again after a crash"

    def replayed(self, network: Network) -> tuple[tuple[Record, ...], ...]:
        """All channels are empty after a crash."""
        return ((),) * len(network.queues)


class PauseWithoutChannels(PauseFirst):
    """Only the states of tasks are copied."""

    fault = "what waits in the channels is not copied"

    def on_start(self, here: Local, number: int) -> Handled:
        """Copy the state only."""
        return here.task._replace(round=number, part=Part(here.task.state)), ()


class DrainWithoutWaiting(DrainFirst):
    """Sources stop reading, but the channels need not be empty."""

    fault = "states are copied before the channels are empty"

    def may_start(self, network: Network, index: int) -> bool:
        """Copy at any time."""
        return network.tasks[index].round < network.started


class NotBlocking(AlignedBarriers):
    """Records are taken from a channel after its barrier."""

    fault = "channels are not blocked"

    def on_marker(self, here: Local, channel: int, number: int) -> Handled:
        """Copy the state at the last barrier, but block nothing."""
        waiting = tuple(other for other in here.task.open or here.ins if other != channel)
        return self.copied(here, number) if not waiting else (here.task._replace(open=waiting), ())


class FirstBarrier(AlignedBarriers):
    """The other barriers are not waited for."""

    fault = "the state is copied at the first barrier"

    def on_marker(self, here: Local, channel: int, number: int) -> Handled:
        """Copy the state at once, and ignore the other barriers."""
        return self.copied(here, number) if number > here.task.round else (here.task, ())


class StaysBlocked(AlignedBarriers):
    """Blocked channels are forgotten."""

    fault = "channels stay blocked after the copy"

    def on_marker(self, here: Local, channel: int, number: int) -> Handled:
        """Copy the state as usual."""
        task, sends = super().on_marker(here, channel, number)
        return task._replace(blocked=(*here.task.blocked, channel)), sends


class AcknowledgesFirst(AlignedBarriers):
    """The coordinator hears that a copy is stored while it is not."""

    fault = "a copy is acknowledged before it is stored"

    def stored(self, network: Network, index: int) -> Network:
        """Acknowledge the first time, store the second."""
        return self.keep(network, index) if self._told(network, index) else self.acknowledge(network, index)

    def store_label(self, network: Network, index: int) -> str:
        """Say which of the two it is."""
        if self._told(network, index):
            return super().store_label(network, index)
        return f"{self.topology.tasks[index]} says that its copy is stored"

    def _told(self, network: Network, index: int) -> bool:
        return index in network.acknowledged or network.tasks[index].round <= network.complete.number


class PublishesAtOnce(AlignedBarriers):
    """A sink publishes its results when its barriers are there."""

    fault = "epochs are published before their snapshot is complete"

    def may_publish(self, network: Network, number: int) -> bool:
        """Publish what is prepared."""
        return True


class SourcesGoOn(AlignedBarriers):
    """After a crash, sources read on from where they were."""

    fault = "sources do not go back after a crash"

    def on_crash(self, network: Network, index: int) -> TaskState:
        """Keep the offset."""
        return super().on_crash(network, index)._replace(offset=network.tasks[index].state.offset)


class OvertakenLost(UnalignedBarriers):
    """The sender logs nothing."""

    fault = "records that a barrier overtakes are not logged"

    def begin(self, here: Local, number: int, logging: tuple[int, ...], logs: Logs = ()) -> Handled:
        """Copy the state, and log only what still arrives."""
        return ChandyLamport.begin(self, here, number, logging)


class LateLost(UnalignedBarriers):
    """The receiver logs nothing."""

    fault = "records that come before a late barrier are not logged"

    def on_record(self, here: Local, channel: int, record: Record) -> Handled:
        """Count the record only."""
        return self.process(here, channel, record)


class UnalignedLogsLost(UnalignedBarriers):
    """The logs are stored and forgotten."""

    fault = "logs are not sent again after a crash"

    def replayed(self, network: Network) -> tuple[tuple[Record, ...], ...]:
        """All channels are empty after a crash."""
        return ((),) * len(network.queues)


class LogsTooEarly(UnalignedBarriers):
    """The newest record that a task has counted is logged, too."""

    fault = "a log begins one record before the copy"

    def begin(self, here: Local, number: int, logging: tuple[int, ...], logs: Logs = ()) -> Handled:
        """Begin each log with the newest record that came."""
        for channel in logging:
            logs = log_more(logs, channel, here.task.state.received[here.ins.index(channel)][-1:])
        return super().begin(here, number, logging, logs)


class TimeoutLosesOvertaken(AlignedWithTimeout):
    """The receiver logs nothing of what was overtaken."""

    fault = "records that a barrier overtakes are not logged"

    def on_timeout(self, here: Local, channel: int, number: int, overtaken: tuple[Record, ...]) -> Handled:
        """Copy the state, and log only what still arrives."""
        return super().on_timeout(here, channel, number, ())


class TimeoutLogsBlocked(AlignedWithTimeout):
    """What waits behind a barrier is logged like what waits before one."""

    fault = "records that wait in blocked channels are logged, too"

    def on_timeout(self, here: Local, channel: int, number: int, overtaken: tuple[Record, ...]) -> Handled:
        """Log the blocked channels before they are unblocked."""
        logs = here.task.logs
        for blocked in here.task.blocked:
            logs = log_more(logs, blocked, here.queued(blocked))
        return super().on_timeout(here._replace(task=here.task._replace(logs=logs)), channel, number, overtaken)


class TimeoutStaysAligned(AlignedWithTimeout):
    """After a timeout, nothing is logged of the channels whose barrier is missing."""

    fault = "records that come after the timeout, before a late barrier, are not logged"

    def on_record(self, here: Local, channel: int, record: Record) -> Handled:
        """Count the record only."""
        return self.process(here, channel, record)


PROTOCOLS: tuple[type[Dataflow], ...] = (
    PauseFirst,
    DrainFirst,
    ChandyLamport,
    AlignedBarriers,
    UnalignedBarriers,
    AlignedWithTimeout,
)
"""The correct protocols."""
MUTANTS: tuple[type[Dataflow], ...] = (
    PauseWithoutChannels,
    DrainWithoutWaiting,
    NoLog,
    LogsOneChannel,
    LateMarkers,
    Reordering,
    LogsLost,
    NotBlocking,
    FirstBarrier,
    StaysBlocked,
    AcknowledgesFirst,
    PublishesAtOnce,
    SourcesGoOn,
    OvertakenLost,
    LateLost,
    UnalignedLogsLost,
    LogsTooEarly,
    TimeoutLosesOvertaken,
    TimeoutStaysAligned,
    TimeoutLogsBlocked,
)
"""Protocols with one mistake each."""


@dataclass(frozen=True)
class Catch:
    """How often random runs of a protocol break an invariant.

    Args:
        protocol: the protocol's name.
        fault: the mistake; empty for a correct protocol.
        runs: how many seeds were tried.
        caught: how many runs broke an invariant.
        first: for each invariant, how many runs broke it before any other.
    """

    protocol: str
    fault: str
    runs: int
    caught: int
    first: dict[str, int]


def catch(kind: type[Dataflow] | type[KeyGroups] | type[LogStructured], seeds: Sequence[int]) -> Catch:
    """Run a protocol once for each seed, which also gives the scenario, up to the first violation.

    Example:
        >>> catch(NotBlocking, range(20)).caught
        3
    """
    first: Counter[str] = Counter()
    caught = 0
    for seed in seeds:
        scenario: Protocol[Any] = kind.random(seed)
        found = run(scenario, seed, until_broken=True).violations
        caught += bool(found)
        first.update(violation.invariant for violation in found[:1])
    return Catch(kind.name, kind.fault, len(seeds), caught, dict(sorted(first.items())))
