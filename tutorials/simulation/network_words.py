"""What changed between two states of a dataflow, in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from streamstate.tutorials.simulation.network import Marker, Network, Record, Task
from streamstate.tutorials.simulation.protocol import Action
from streamstate.tutorials.simulation.topology import Topology


def consequences(topology: Topology, marker: str, before: Network, action: Action, after: Network) -> Iterator[str]:
    """Yield a sentence for each thing that an action did beside what its label says."""
    if action.key == ("crash",):
        yield from _of_crash(topology, before, after)
    else:
        for index in range(len(topology.tasks)):
            yield from _of_blocking(topology, marker, before.tasks[index], after.tasks[index])
            if after.tasks[index].round > before.tasks[index].round and action.key[0] in ("receive", "overtake"):
                yield "It copies its state."
            yield from _of_markers(topology, marker, topology.outs[index], (before, after))
            yield from _of_logs(topology, before.tasks[index], after.tasks[index])
    if after.complete.number > before.complete.number:
        yield f"Snapshot {after.complete.number} is complete."


def _of_crash(topology: Topology, before: Network, after: Network) -> Iterator[str]:
    yield "What was in the channels is lost."
    again = [message.name for queue in after.queues for message in queue if isinstance(message, Record)]
    if again:
        yield f"The logs bring back {_listed(again)}."
    for index, name in enumerate(topology.tasks):
        if len(after.published[index]) > len(before.published[index]):
            yield f"{name} publishes the epoch that the snapshot has prepared."


def _of_blocking(topology: Topology, marker: str, old: Task, new: Task) -> Iterator[str]:
    for channel in new.blocked:
        if channel not in old.blocked:
            target = topology.channels[channel][1]
            waiting = [other for other in topology.ins[target] if other not in new.blocked]
            until = f" until the {marker} from {_senders(topology, waiting)} is there" if waiting else ""
            yield f"It takes nothing more from {_senders(topology, [channel])}{until}."


def _of_markers(
    topology: Topology, marker: str, channels: Iterable[int], networks: tuple[Network, Network]
) -> Iterator[str]:
    before, after = networks
    marked = [channel for channel in channels if _markers(after, channel) > _markers(before, channel)]
    if marked:
        receivers = _listed(topology.tasks[topology.channels[channel][1]] for channel in marked)
        queues = [after.queues[channel] for channel in marked]
        ahead = any(len(queue) > 1 and isinstance(queue[0], Marker) for queue in queues)
        yield f"It sends the {marker} to {receivers}{', ahead of the records that wait' if ahead else ''}."


def _of_logs(topology: Topology, old: Task, new: Task) -> Iterator[str]:
    if new.round > old.round and new.copy is not None:
        yield f"From now on it logs what comes from {_senders(topology, new.open)}."
    elif new.copy is not None and new.logs != old.logs:
        yield "It logs the record, too."


def _markers(network: Network, channel: int) -> int:
    return sum(isinstance(message, Marker) for message in network.queues[channel])


def _senders(topology: Topology, channels: Iterable[int]) -> str:
    return _listed(topology.tasks[topology.channels[channel][0]] for channel in channels)


def _listed(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
