"""Asynchronous barrier snapshots (Carbone et al. 2015): channels wait for each other, and nothing is logged."""

from __future__ import annotations

from streamstate.tutorials.simulation.dataflow import Dataflow
from streamstate.tutorials.simulation.network import Handled, Local, Marker, Part, Send, Task


class AlignedBarriers(Dataflow):
    """Sources send barriers. A task takes nothing from a channel after its barrier, until all barriers are there.

    Then it copies its state and sends the barrier on. Copies are stored later, while records flow again.
    """

    name = "aligned barriers"
    marker = "barrier"
    publishes = True

    def on_start(self, here: Local, number: int) -> Handled:
        """Copy a source's offset and send the barrier."""
        return self.copied(here, number)

    def on_marker(self, here: Local, channel: int, number: int) -> Handled:
        """Block the channel; if it was the last one, copy the state, send the barrier, and unblock all."""
        blocked = (*here.task.blocked, channel)
        if len(blocked) < len(here.ins):
            return here.task._replace(blocked=blocked), ()
        return self.copied(here, number)

    def copied(self, here: Local, number: int) -> Handled:
        """Copy the state, and send the barrier through every channel."""
        state = self.prepared(here, number)
        return Task(state, round=number, part=Part(state)), [Send(channel, Marker(number)) for channel in here.outs]
