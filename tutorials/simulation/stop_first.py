"""Snapshots of a dataflow that stops for them: at once, or when all channels are empty."""

from __future__ import annotations

from streamstate.tutorials.simulation.dataflow import Dataflow
from streamstate.tutorials.simulation.network import Handled, Local, Network, Part


class PauseFirst(Dataflow):
    """Nothing moves until every task has copied its state and what waits in the channels to it."""

    name = "pause everything"
    circles = True

    def starters(self) -> range:
        """Every task copies its state by itself; no markers are needed."""
        return range(len(self.topology.tasks))

    def on_start(self, here: Local, number: int) -> Handled:
        """Copy the state and the channels that lead in."""
        logs = tuple((channel, records) for channel in here.ins if (records := here.queued(channel)))
        return here.task._replace(round=number, part=Part(here.task.state, logs)), ()

    def on_marker(self, here: Local, channel: int, number: int) -> Handled:
        """There are no markers."""
        raise NotImplementedError

    def may_read(self, network: Network) -> bool:
        """Read only while no snapshot is being taken."""
        return network.started == network.complete.number

    def may_receive(self, network: Network, channel: int) -> bool:
        """Deliver only while no snapshot is being taken."""
        return network.started == network.complete.number


class DrainFirst(PauseFirst):
    """Sources stop reading; when all channels are empty, every task copies its state."""

    name = "drain first"

    def may_receive(self, network: Network, channel: int) -> bool:
        """Deliver always."""
        return True

    def may_start(self, network: Network, index: int) -> bool:
        """Copy when nothing is in flight."""
        return super().may_start(network, index) and not any(network.queues)

    def on_start(self, here: Local, number: int) -> Handled:
        """Copy the state; the channels are empty."""
        return here.task._replace(round=number, part=Part(here.task.state)), ()
