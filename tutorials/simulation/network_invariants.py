"""What must hold in every dataflow, whatever protocol takes its snapshots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Generic, TypeVar

from streamstate.tutorials.simulation.network import Network, Published, Record, Snapshot, logged
from streamstate.tutorials.simulation.topology import Topology

P = TypeVar("P")


class Judged(Generic[P]):
    """An invariant of a part of the network, such as its newest complete snapshot, which is judged when it changes."""

    def __init__(
        self, topology: Topology, part: Callable[[Network], P], judge: Callable[[Topology, P], str | None]
    ) -> None:
        self._topology = topology
        self._part = part
        self._judge = judge
        self._last: tuple[P | None, str | None] = (None, None)

    def __call__(self, network: Network) -> str | None:
        """Return why the part is wrong, or None."""
        part = self._part(network)
        if part is not self._last[0]:
            self._last = (part, self._judge(self._topology, part))
        return self._last[1]


def received_was_sent(topology: Topology, snapshot: Snapshot) -> str | None:
    """No part has received a record that the sender's part has not sent: the cut is consistent."""
    for channel, (source, target) in enumerate(topology.channels):
        sender, receiver = snapshot.parts[source], snapshot.parts[target]
        if sender is None or receiver is None:
            continue
        sent = set(sender.state.sent[topology.outs[source].index(channel)])
        for record in receiver.state.received[topology.ins[target].index(channel)]:
            if record not in sent:
                return (
                    f"In snapshot {snapshot.number}, {topology.tasks[target]} has received {record.name} from "
                    f"{topology.tasks[source]}, which has not sent it."
                )
    return None


def log_is_in_flight(topology: Topology, snapshot: Snapshot) -> str | None:
    """The log of each channel has what was sent and not received, in the order in which it was sent."""
    logs = logged(topology, snapshot)
    for channel, (source, target) in enumerate(topology.channels):
        sender, receiver = snapshot.parts[source], snapshot.parts[target]
        if sender is None or receiver is None:
            continue
        received = set(receiver.state.received[topology.ins[target].index(channel)])
        sent = sender.state.sent[topology.outs[source].index(channel)]
        in_flight = tuple(record for record in sent if record not in received)
        if logs[channel] != in_flight:
            return (
                f"In snapshot {snapshot.number}, {_names(in_flight)} was in flight on "
                f"{topology.channel_name(channel)}; its log has {_names(logs[channel])}."
            )
    return None


def prefix(topology: Topology, snapshot: Snapshot) -> str | None:
    """A run that goes on from the snapshot, without more input, ends where the input that was read leads."""
    states = [part.state if part else None for part in snapshot.parts]
    expected = _seen_of(topology, [state.offset if state else 0 for state in states])
    found = [Counter(state.seen if state else ()) for state in states]
    for log in logged(topology, snapshot):
        for record in log:
            for later in topology.ways[record.name][record.hop :]:
                found[topology.channels[later][1]][record.name] += 1
    for task, (counted, right) in enumerate(zip(found, expected, strict=True)):
        if counted != right:
            return f"Restored from snapshot {snapshot.number}, {_difference(topology.tasks[task], counted, right)}."
    return None


def end(topology: Topology, network: Network, *, publishes: bool) -> str | None:
    """At the end, each task has counted, and each sink has published, what it would have without a crash."""
    expected = _seen_of(topology, topology.inputs)
    for task, (found, right) in enumerate(zip(network.tasks, expected, strict=True)):
        counted = Counter(found.state.seen)
        if counted != right:
            return f"At the end, {_difference(topology.tasks[task], counted, right)}."
    if publishes:
        results = Counter(name for epochs in network.published for _, names in epochs for name in names)
        right = Counter(topology.ways.keys())
        if results != right:
            return f"At the end, {_difference('the published result', results, right)}."
    return None


def published(topology: Topology, results: Published) -> str | None:
    """The epochs of each sink are 1, 2, 3, …, and no record is in two of them."""
    for task, epochs in enumerate(results):
        numbers = [number for number, _ in epochs]
        if numbers != list(range(1, len(numbers) + 1)):
            return f"{topology.tasks[task]} has published the epochs {', '.join(map(str, numbers))}."
        for name, times in Counter(name for _, names in epochs for name in names).items():
            if times > 1:
                return f"{topology.tasks[task]} has published {name} {times} times."
    return None


def _seen_of(topology: Topology, offsets: tuple[int, ...] | list[int]) -> list[Counter[str]]:
    """Return what each task counts if so many records of each source are read, and nothing fails."""
    expected: list[Counter[str]] = [Counter() for _ in topology.tasks]
    for records, offset in zip(topology.records, offsets, strict=True):
        for name in records[:offset]:
            for channel in topology.ways[name]:
                expected[topology.channels[channel][1]][name] += 1
    return expected


def _difference(who: str, found: Counter[str], right: Counter[str]) -> str:
    twice, missing = sorted((found - right).elements()), sorted((right - found).elements())
    parts = [f"counts {', '.join(twice)} too often"] if twice else []
    parts += [f"misses {', '.join(missing)}"] if missing else []
    return f"{who} {' and '.join(parts)}"


def _names(records: tuple[Record, ...]) -> str:
    return ", ".join(record.name for record in records) or "nothing"
