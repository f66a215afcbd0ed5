"""Unaligned checkpoints (Flink's FLIP-76): barriers overtake records, and what they overtake is logged."""

from __future__ import annotations

from collections.abc import Sequence

from streamstate.tutorials.simulation.chandy_lamport import ChandyLamport
from streamstate.tutorials.simulation.network import Handled, Local, Logs, Marker, Send


class UnalignedBarriers(ChandyLamport):
    """A task copies its state at the first barrier and sends barriers ahead of the records that wait to be sent.

    The sender logs the records that its barrier overtakes; the receiver logs what still comes before it. The two logs
    of a channel, one after the other, are what was in flight. Chandy and Lamport's protocol is the one whose barriers
    overtake nothing.
    """

    name = "unaligned barriers"
    marker = "barrier"
    circles = False
    publishes = True

    def starters(self) -> Sequence[int]:
        """Only sources begin."""
        return self.topology.sources

    def begin(self, here: Local, number: int, logging: tuple[int, ...], logs: Logs = ()) -> Handled:
        """Copy the state, log what the barriers overtake, and send them ahead."""
        overtaken = tuple((channel, records) for channel in here.outs if (records := here.queued(channel)))
        return super().begin(here, number, logging, (*logs, *overtaken))

    def markers(self, here: Local, number: int) -> list[Send]:
        """Return barriers that overtake the records that wait."""
        return [Send(channel, Marker(number), first=True) for channel in here.outs]
