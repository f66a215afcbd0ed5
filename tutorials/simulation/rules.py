"""The rules by which tasks take snapshots of themselves and of what is in flight between them."""

from __future__ import annotations

from abc import abstractmethod
from bisect import insort
from collections.abc import Sequence
from typing import ClassVar, Self

from streamstate.tutorials.simulation.network import (
    Handled,
    Local,
    Message,
    Network,
    Record,
    Send,
    Snapshot,
    TaskState,
    appended,
    logged,
    put,
)
from streamstate.tutorials.simulation.protocol import Protocol
from streamstate.tutorials.simulation.topology import Topology


class Rules(Protocol[Network]):
    """The rules of a snapshot protocol, which variants and mutants override, and what they are made of.

    Args:
        topology: tasks and channels.
        rounds: how many snapshots are taken. The last one starts when all input has arrived, and covers all of it.
        crashes: how many times everything may crash.
        last_covers_all: if not, the last snapshot may start at any time, and the run ends without the results after it.
        storage_takes_time: if not, a copy is stored in the same step in which it is complete.
    """

    marker: ClassVar[str] = "marker"
    """What the protocol calls its markers."""
    circles: ClassVar[bool] = False
    """The protocol copes with channels that form circles."""
    publishes: ClassVar[bool] = False
    """Sinks publish their results by epoch."""

    def __init__(
        self,
        topology: Topology,
        *,
        rounds: int = 2,
        crashes: int = 1,
        last_covers_all: bool = True,
        storage_takes_time: bool = True,
    ) -> None:
        self.topology = topology
        self.rounds = rounds
        self.crashes = crashes
        self.last_covers_all = last_covers_all
        self.storage_takes_time = storage_takes_time

    @property
    def scenario(self) -> tuple[object, ...]:
        """All that tells two instances of a protocol apart."""
        return (self.topology, self.rounds, self.crashes, self.last_covers_all, self.storage_takes_time)

    @classmethod
    def random(cls, seed: int) -> Self:
        """Return a scenario with a random topology, three snapshots and up to two crashes."""
        return cls(Topology.random(seed, circles=cls.circles), rounds=3, crashes=2)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rules) and type(self) is type(other) and self.scenario == other.scenario

    def __hash__(self) -> int:
        return hash((type(self), self.scenario))

    # The rules, which variants and mutants override.

    @abstractmethod
    def on_start(self, here: Local, number: int) -> Handled:
        """A task that begins a snapshot by itself: a source, at least."""

    @abstractmethod
    def on_marker(self, here: Local, channel: int, number: int) -> Handled:
        """A marker has come through a channel."""

    def on_record(self, here: Local, channel: int, record: Record) -> Handled:
        """A record has come through a channel."""
        return self.process(here, channel, record)

    def starters(self) -> Sequence[int]:
        """Return the tasks that may begin a snapshot by themselves."""
        return self.topology.sources

    def may_start(self, network: Network, index: int) -> bool:
        """Check that a task may begin the snapshot that was started."""
        return network.tasks[index].round < network.started

    def may_read(self, network: Network) -> bool:
        """Check that sources may read now."""
        return True

    def may_receive(self, network: Network, channel: int) -> bool:
        """Check that a channel may deliver now."""
        return channel not in network.tasks[self.topology.channels[channel][1]].blocked

    def arrivals(self, queue: tuple[Message, ...]) -> Sequence[int]:
        """Return the positions of the messages that may arrive next in a channel that is not empty: the first."""
        return (0,)

    def stored(self, network: Network, index: int) -> Network:
        """Store a task's part and acknowledge it."""
        return self.acknowledge(self.keep(network, index), index)

    def store_label(self, network: Network, index: int) -> str:
        """Return what :meth:`stored` does, in words."""
        return f"The copy of {self.topology.tasks[index]} is stored"

    def may_publish(self, network: Network, number: int) -> bool:
        """Check that a sink may publish an epoch that it has prepared: its snapshot is complete."""
        return number <= network.complete.number

    def enqueue(self, queue: tuple[Message, ...], message: Message, *, first: bool) -> tuple[Message, ...]:
        """Return a channel with one more message."""
        return (message, *queue) if first else (*queue, message)

    def on_crash(self, network: Network, index: int) -> TaskState:
        """Return the state with which a task is restored."""
        part = network.complete.parts[index]
        return self.initial(index) if part is None else part.state

    def replayed(self, network: Network) -> tuple[tuple[Record, ...], ...]:
        """Return the records with which the channels are filled after a crash: the logs."""
        return logged(self.topology, network.complete)

    # Helpers of the rules.

    def process(self, here: Local, channel: int, record: Record) -> Handled:
        """Count a record, and send it on."""
        state = here.task.state
        seen = list(state.seen)
        insort(seen, record.name)
        received = appended(state.received, here.ins.index(channel), record)
        state = state._replace(seen=tuple(seen), received=received)
        return self.forward(here, state, record._replace(hop=record.hop + 1))

    def forward(self, here: Local, state: TaskState, record: Record) -> Handled:
        """Send a record to its next channel; a record that has none is a result."""
        way = self.topology.ways[record.name]
        if record.hop == len(way):
            output = (*state.output, record.name) if self.publishes else ()
            return here.task._replace(state=state._replace(output=output)), ()
        channel = way[record.hop]
        sent = appended(state.sent, here.outs.index(channel), record)
        return here.task._replace(state=state._replace(sent=sent)), [Send(channel, record)]

    def prepared(self, here: Local, number: int) -> TaskState:
        """Return a task's state with its results closed as an epoch, if it is one that publishes."""
        state = here.task.state
        if not self.publishes or here.outs:
            return state
        return state._replace(output=(), prepared=(number, state.output))

    def keep(self, network: Network, index: int) -> Network:
        """Write a task's part to the store."""
        task = network.tasks[index]
        network = network._replace(tasks=put(network.tasks, index, task._replace(part=None)))
        if network.complete.number == network.started:  # a part that is late; no correct protocol has one
            parts = put(network.complete.parts, index, task.part)
            return network._replace(complete=network.complete._replace(parts=parts))
        return network._replace(stored=put(network.stored, index, task.part))

    def acknowledge(self, network: Network, index: int) -> Network:
        """Tell the coordinator that a task is done; with the last one the snapshot is complete."""
        acknowledged = network.acknowledged | {index}
        if len(acknowledged) < len(network.tasks):
            return network._replace(acknowledged=acknowledged)
        return network._replace(
            acknowledged=frozenset(),
            complete=Snapshot(network.started, network.stored),
            stored=(None,) * len(network.tasks),
        )

    def publish(self, network: Network, index: int, epoch: tuple[int, tuple[str, ...]]) -> Network:
        """Show the results of an epoch to the outside."""
        published = put(network.published, index, (*network.published[index], epoch))
        task = network.tasks[index]
        tasks = put(network.tasks, index, task._replace(state=task.state._replace(prepared=None)))
        return network._replace(published=published, tasks=tasks)

    def initial(self, index: int) -> TaskState:
        """Return the state of a task that has seen nothing."""
        return TaskState(0, (), ((),) * len(self.topology.ins[index]), ((),) * len(self.topology.outs[index]))
