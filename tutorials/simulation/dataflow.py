"""Tasks that exchange records over channels, crash, and are restored from their newest complete snapshot."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

from streamstate.tutorials.simulation import network_invariants as invariants
from streamstate.tutorials.simulation.network import (
    Handled,
    Local,
    Message,
    Network,
    Part,
    Record,
    Snapshot,
    Task,
    put,
)
from streamstate.tutorials.simulation.network_scene import draw
from streamstate.tutorials.simulation.network_words import consequences
from streamstate.tutorials.simulation.protocol import Action, Invariant
from streamstate.tutorials.simulation.rules import Rules
from streamstate.tutorials.simulation.scene import Scene


class Dataflow(Rules):
    """The base of all snapshot protocols: what can happen, and when; subclasses have the rules for markers."""

    def start(self) -> Network:
        """Return the first state: nothing has been read."""
        count = len(self.topology.tasks)
        states = [self.initial(index) for index in range(count)]
        return Network(
            tasks=tuple(map(Task, states)),
            queues=((),) * len(self.topology.channels),
            started=0,
            stored=(None,) * count,
            acknowledged=frozenset(),
            complete=Snapshot(0, tuple(map(Part, states))),
            published=((),) * count,
            crashes=self.crashes,
        )

    def actions(self, state: Network) -> list[Action]:
        """Return what can happen next."""
        if self.finished(state):
            return []
        return [*self._reads(state), *self._deliveries(state), *self._snapshot(state), *self._crash(state)]

    def _reads(self, network: Network) -> Iterator[Action]:
        if self.may_read(network):
            for task in self.topology.sources:
                offset = network.tasks[task].state.offset
                if offset < self.topology.inputs[task]:
                    record = self.topology.records[task][offset]
                    yield Action(("read", task), f"{self._name(task)} reads {record} and sends it on")

    def _deliveries(self, network: Network) -> Iterator[Action]:
        for channel, (source, target) in enumerate(self.topology.channels):
            queue = network.queues[channel]
            if queue and self.may_receive(network, channel):
                for position in self.arrivals(queue):
                    text = self.words(queue[position])
                    overtakes = ", overtaking others" if position else ""
                    label = f"{self._name(target)} receives {text} from {self._name(source)}{overtakes}"
                    yield Action(("receive", channel, position), label)

    def _snapshot(self, network: Network) -> Iterator[Action]:
        if self._may_begin(network):
            yield Action(("start",), f"Snapshot {network.started + 1} is started", 0.4)
        if network.started > network.complete.number:
            for index in self.starters():
                if self.may_start(network, index):
                    label = f"{self._name(index)} copies its state for snapshot {network.started}"
                    yield Action(("copy", index), label, 0.6)
        for index, task in enumerate(network.tasks):
            if task.part is not None:
                yield Action(("store", index), self.store_label(network, index))
            if task.state.prepared is not None and self.may_publish(network, task.state.prepared[0]):
                yield Action(("publish", index), f"{self._name(index)} publishes epoch {task.state.prepared[0]}")

    def _may_begin(self, network: Network) -> bool:
        if network.started > network.complete.number or network.started == self.rounds:
            return False
        if any(task.state.prepared or task.part for task in network.tasks):
            return False
        return network.started + 1 < self.rounds or not self.last_covers_all or self._all_arrived(network)

    def _all_arrived(self, network: Network) -> bool:
        read = [network.tasks[task].state.offset for task in self.topology.sources]
        return all(map(operator.ge, read, self.topology.inputs)) and not any(network.queues)

    def _crash(self, network: Network) -> Iterator[Action]:
        if network.crashes:
            known = f"snapshot {network.complete.number}" if network.complete.number else "the beginning"
            yield Action(("crash",), f"Everything crashes and is restored from {known}", 0.1)

    def act(self, state: Network, action: Action) -> Network:
        """Return the state after an action."""
        steps: dict[object, Callable[..., Network]] = {
            "read": self._read,
            "receive": self._received,
            "start": self._started,
            "copy": self._copied,
            "store": self.stored,
            "publish": self._published,
            "crash": self._restored,
        }
        kind, *where = action.key
        return steps[kind](state, *where)

    def _read(self, network: Network, index: int) -> Network:
        here = self._local(network, index)
        before = here.task.state
        record = Record(self.topology.records[index][before.offset])
        return self._handled(network, index, self.forward(here, before._replace(offset=before.offset + 1), record))

    def _started(self, network: Network) -> Network:
        return network._replace(started=network.started + 1)

    def _copied(self, network: Network, index: int) -> Network:
        return self._handled(network, index, self.on_start(self._local(network, index), network.started))

    def _published(self, network: Network, index: int) -> Network:
        epoch = network.tasks[index].state.prepared
        return self.publish(network, index, epoch) if epoch else network

    def _received(self, network: Network, channel: int, position: int) -> Network:
        queue = network.queues[channel]
        message = queue[position]
        network = network._replace(
            queues=put(network.queues, channel, queue[:position] + queue[position + 1 :]),
        )
        target = self.topology.channels[channel][1]
        here = self._local(network, target)
        if isinstance(message, Record):
            return self._handled(network, target, self.on_record(here, channel, message))
        return self._handled(network, target, self.on_marker(here, channel, message.number))

    def _local(self, network: Network, index: int) -> Local:
        return Local(network.tasks[index], self.topology.ins[index], self.topology.outs[index], network.queues)

    def _handled(self, network: Network, index: int, handled: Handled) -> Network:
        task, sends = handled
        queues = list(network.queues)
        for channel, message, first in sends:
            queues[channel] = self.enqueue(queues[channel], message, first=first)
        network = network._replace(tasks=put(network.tasks, index, task), queues=tuple(queues))
        return self.stored(network, index) if task.part and not self.storage_takes_time else network

    def _restored(self, network: Network) -> Network:
        number = network.complete.number
        states = [self.on_crash(network, index) for index in range(len(network.tasks))]
        network = network._replace(
            tasks=tuple(Task(state, round=number) for state in states),
            queues=self.replayed(network),
            started=number,
            stored=(None,) * len(states),
            acknowledged=frozenset(),
            crashes=network.crashes - 1,
        )
        for index, state in enumerate(states):
            network = self.restore_output(network, index, state.prepared)
        return network

    def restore_output(self, network: Network, index: int, epoch: tuple[int, tuple[str, ...]] | None) -> Network:
        """Publish the epoch of a restored snapshot, unless it was published before the crash."""
        if epoch is None or epoch[0] in dict(network.published[index]):
            task = network.tasks[index]
            tasks = put(network.tasks, index, task._replace(state=task.state._replace(prepared=None)))
            return network._replace(tasks=tasks)
        return self.publish(network, index, epoch)

    def finished(self, state: Network) -> bool:
        """Check that all input was read, delivered, covered by a snapshot, and published."""
        return (
            state.complete.number >= self.rounds
            and self._all_arrived(state)
            and not any(task.part or task.state.prepared for task in state.tasks)
        )

    @cached_property
    def invariants(self) -> Mapping[str, Invariant[Network]]:
        """What must hold in every state."""
        of_snapshots = {
            "received ≤ sent": invariants.received_was_sent,
            "channel logs are what was in flight": invariants.log_is_in_flight,
            "states and logs are those of the input read": invariants.prefix,
        }
        found: dict[str, Invariant[Network]] = {
            name: invariants.Judged(self.topology, lambda network: network.complete, judge)
            for name, judge in of_snapshots.items()
        }
        found["the end is that of a run without failure"] = self._as_without_failure
        if self.publishes:
            found["epochs are published without gap or duplicate"] = invariants.Judged(
                self.topology, lambda network: network.published, invariants.published
            )
        return found

    def _as_without_failure(self, network: Network) -> str | None:
        if not self.finished(network):
            return None
        return invariants.end(self.topology, network, publishes=self.publishes and self.last_covers_all)

    # Words and pictures.

    def _name(self, index: int) -> str:
        return self.topology.tasks[index]

    def words(self, message: Message) -> str:
        """Return a message in words."""
        return message.name if isinstance(message, Record) else f"the {self.marker}"

    def tell(self, before: Network, action: Action, after: Network) -> str:
        """Return what an action did, in a few sentences."""
        return " ".join([f"{action.label}.", *consequences(self.topology, self.marker, before, action, after)])

    def scene(self, state: Network) -> Scene:
        """Return the picture of a state."""
        return draw(self.topology, self.marker, state, publishes=self.publishes)
