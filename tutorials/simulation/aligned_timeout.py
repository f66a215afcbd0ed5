"""Aligned barriers with a timeout: a barrier that waits too long overtakes what is before it, and that is logged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from streamstate.tutorials.simulation.chandy_lamport import ChandyLamport
from streamstate.tutorials.simulation.network import Handled, Local, Marker, Network, Record, log_more, put
from streamstate.tutorials.simulation.protocol import Action


class AlignedWithTimeout(ChandyLamport):
    """Channels wait for each other, until a barrier overtakes.

    Then its receiver logs the records that it overtook, copies its state, and logs what still comes through each
    channel whose barrier is missing. When a barrier has waited for too long is a matter of time, which is not part of
    the protocol: it may overtake whenever there is something before it.
    """

    name = "aligned barriers with a timeout"
    marker = "barrier"
    circles = False
    publishes = True

    def starters(self) -> Sequence[int]:
        """Only sources begin."""
        return self.topology.sources

    def on_marker(self, here: Local, channel: int, number: int) -> Handled:
        """Align, as long as no barrier has overtaken; after that, close the channel's log."""
        if number == here.task.round:
            return super().on_marker(here, channel, number)
        blocked = (*here.task.blocked, channel)
        if len(blocked) < len(here.ins):
            return here.task._replace(blocked=blocked), ()
        return self.begin(here, number, ())

    def on_timeout(self, here: Local, channel: int, number: int, overtaken: tuple[Record, ...]) -> Handled:
        """Log what a barrier has overtaken; if it is the first one to do so, copy the state and unblock all."""
        task = here.task
        logs = log_more(task.logs, channel, overtaken)
        if number > task.round:
            logging = tuple(other for other in here.ins if other not in (*task.blocked, channel))
            return self.begin(here, number, logging, logs)
        still_open = tuple(other for other in task.open if other != channel)
        return self.closed(task._replace(open=still_open, logs=logs)), ()

    def actions(self, state: Network) -> list[Action]:
        """Return what can happen next."""
        return [*super().actions(state), *self._timeouts(state)] if not self.finished(state) else []

    def _timeouts(self, network: Network) -> Iterator[Action]:
        for channel, (source, target) in enumerate(self.topology.channels):
            if barrier_at(network, channel) > 0:
                names = self.topology.tasks
                label = f"The barrier from {names[source]} overtakes the records in front of {names[target]}"
                yield Action(("overtake", channel), label, 0.3)

    def act(self, state: Network, action: Action) -> Network:
        """Return the state after an action."""
        match action.key:
            case ("overtake", int(channel)):
                return self._overtaken(state, channel)
        return super().act(state, action)

    def _overtaken(self, network: Network, channel: int) -> Network:
        queue, position = network.queues[channel], barrier_at(network, channel)
        records = tuple(message for message in queue[:position] if isinstance(message, Record))
        network = network._replace(queues=put(network.queues, channel, queue[:position] + queue[position + 1 :]))
        target = self.topology.channels[channel][1]
        handled = self.on_timeout(self._local(network, target), channel, network.started, records)
        return self._handled(network, target, handled)


def barrier_at(network: Network, channel: int) -> int:
    """Return how many records are before the barrier in a channel; −1 if there is no barrier."""
    markers = (place for place, message in enumerate(network.queues[channel]) if isinstance(message, Marker))
    return next(markers, -1)
