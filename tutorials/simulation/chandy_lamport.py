"""The snapshot protocol of Chandy and Lamport (1985): nothing stops, and channels are logged."""

from __future__ import annotations

from collections.abc import Sequence

from streamstate.tutorials.simulation.dataflow import Dataflow
from streamstate.tutorials.simulation.network import Handled, Local, Logs, Marker, Part, Record, Send, Task, log_more


class ChandyLamport(Dataflow):
    """Each task copies its state when it likes, at the latest when the first marker comes, and sends markers.

    It logs what comes through each other channel until that channel's marker is there.
    """

    name = "Chandy-Lamport"
    circles = True

    def starters(self) -> Sequence[int]:
        """Any task may begin."""
        return range(len(self.topology.tasks))

    def on_start(self, here: Local, number: int) -> Handled:
        """Copy the state, send a marker through every channel, and log every channel that leads in."""
        return self.begin(here, number, here.ins)

    def on_marker(self, here: Local, channel: int, number: int) -> Handled:
        """Begin, if this is the first marker; nothing of its channel is logged, or nothing more."""
        if number > here.task.round:
            return self.begin(here, number, tuple(other for other in here.ins if other != channel))
        return self.closed(here.task._replace(open=tuple(other for other in here.task.open if other != channel))), ()

    def on_record(self, here: Local, channel: int, record: Record) -> Handled:
        """Count the record, and log it if it was in flight when the state was copied."""
        task, sends = self.process(here, channel, record)
        if channel in task.open:
            task = task._replace(logs=log_more(task.logs, channel, [record]))
        return task, sends

    def begin(self, here: Local, number: int, logging: tuple[int, ...], logs: Logs = ()) -> Handled:
        """Copy the state before anything else comes, and send the markers."""
        live = here.task.state
        copied = self.prepared(here, number)
        live = live._replace(output=copied.output, prepared=copied.prepared)
        task = Task(live, round=number, copy=copied, open=logging, logs=logs)
        return self.closed(task), self.markers(here, number)

    def markers(self, here: Local, number: int) -> list[Send]:
        """Return the markers that a task sends."""
        return [Send(channel, Marker(number)) for channel in here.outs]

    def closed(self, task: Task) -> Task:
        """Return the task with its part complete, if no channel is being logged any more."""
        if task.copy is None or task.open:
            return task
        return task._replace(copy=None, logs=(), part=Part(task.copy, task.logs))
