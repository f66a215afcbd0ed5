"""The picture of a dataflow: tasks from top to bottom, channels with their messages, and what is stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import count
from typing import NamedTuple

from streamstate.tutorials.simulation.network import Marker, Message, Network, Part, Task, TaskState
from streamstate.tutorials.simulation.scene import Point, Scene, Tone, on_arrow
from streamstate.tutorials.simulation.topology import Topology

_WIDE, _HIGH, _BESIDE, _BETWEEN = 136, 98, 16, 96
_IN_CHANNEL = 3
"""So many messages of a channel are shown; of the others, how many there are."""


def draw(topology: Topology, marker: str, network: Network, *, publishes: bool) -> Scene:
    """Return the picture of a state.

    Args:
        topology: tasks and channels.
        marker: what the protocol calls its markers.
        network: the state.
        publishes: there are epochs to publish.
    """
    places = _places(topology)
    width = max(x for x, _ in places) + _WIDE + 8
    scene = Scene(max(width, 330))
    places = [(x + (scene.width - width) / 2, y) for x, y in places]
    lines = [
        _Line(topology, network, channel, *_ends(topology, places, channel))
        for channel in range(len(topology.channels))
    ]
    for line in lines:
        line.draw(scene)
    for index, (x, y) in enumerate(places):
        task = network.tasks[index]
        title = f"{topology.tasks[index]} · {_role(topology, index)}"
        tone: Tone = "busy" if task.copy or task.part or task.blocked else ""
        scene.box(f"task {index}", x, y, _WIDE, title, cells=list(_cells(topology, network, index)), tone=tone, lines=3)
    for line in lines:
        line.draw_queue(scene, marker)
    _draw_store(scene, topology, network, publishes=publishes)
    return scene


def _places(topology: Topology) -> list[Point]:
    """Return where each task is: below all tasks that send to it, except those that come after it."""
    depths = [0] * len(topology.tasks)
    for source, target in sorted(topology.channels):
        if source < target:
            depths[target] = max(depths[target], depths[source] + 1)
    step = _WIDE + _BESIDE
    widest = max(map(depths.count, depths)) * step
    beside = {depth: count() for depth in depths}
    lefts = [8 + (widest - depths.count(depth) * step) / 2 + next(beside[depth]) * step for depth in depths]
    return [(left, 8 + depth * (_HIGH + _BETWEEN)) for left, depth in zip(lefts, depths, strict=True)]


def _ends(topology: Topology, places: list[Point], channel: int) -> tuple[Point, Point, float]:
    """Return where a channel begins and ends, and how much it is bent."""
    source, target = topology.channels[channel]
    outs, ins = topology.outs[source], topology.ins[target]
    x = places[source][0] + _WIDE * (outs.index(channel) + 0.5) / len(outs)
    to = places[target][0] + _WIDE * (ins.index(channel) + 0.5) / len(ins)
    above, below = places[source][1], places[target][1]
    if above < below:
        return (x, above + _HIGH), (to, below - 2), 0
    if above > below:
        return (x, above), (to, below + _HIGH + 2), 16
    return (x, above + _HIGH), (to, below + _HIGH + 2), -34


class _Line(NamedTuple):
    """A channel, where it is drawn."""

    topology: Topology
    network: Network
    channel: int
    start: Point
    end: Point
    bend: float

    @property
    def blocked(self) -> bool:
        """Its receiver takes nothing from it."""
        return self.channel in self._receiver.blocked

    @property
    def logged(self) -> bool:
        """Its receiver logs what comes through it."""
        return self._receiver.copy is not None and self.channel in self._receiver.open

    @property
    def _receiver(self) -> Task:
        return self.network.tasks[self.topology.channels[self.channel][1]]

    def draw(self, scene: Scene) -> None:
        """Add the arrow."""
        tone: Tone = "bad" if self.blocked else "mark" if self.logged else ""
        scene.arrow(f"channel {self.channel}", self.start, self.end, bend=self.bend, tone=tone)

    def draw_queue(self, scene: Scene, marker: str) -> None:
        """Add the messages, the next one nearest to the receiver, after what happens to them there."""
        places, name = self._places(), self.topology.channel_name(self.channel)
        if self.blocked:
            scene.chip(f"blocked {self.channel}", *next(places), "✕", tone="bad", words=f"{name} is blocked.")
        elif self.logged:
            scene.chip(f"logged {self.channel}", *next(places), "log", tone="mark", words=f"{name} is being logged.")
        queue = self.network.queues[self.channel]
        for position, message in enumerate(queue[:_IN_CHANNEL]):
            words = "" if position else f"In {name}: {', '.join(_text(each, marker) for each in queue)}."
            tone: Tone = "busy" if isinstance(message, Marker) else ""
            scene.chip(_identity(message, self.channel), *next(places), _text(message, marker), tone=tone, words=words)
        if len(queue) > _IN_CHANNEL:
            text = f"+{len(queue) - _IN_CHANNEL}"
            scene.chip(f"more {self.channel}", *next(places), text, tone="faint", words="")

    def _places(self) -> Iterator[Point]:
        across, down = self.start[0] - self.end[0], abs(self.start[1] - self.end[1])
        length = abs(across) if self.bend < 0 else down
        for number in count():
            share = max(0.06, 1 - (18 + 22 * number) / max(length, 1))
            yield on_arrow(self.start, self.end, share, self.bend)


def _identity(message: Message, channel: int) -> str:
    """Return the name of a message's chip: a record keeps it on its way, a marker in its channel."""
    return f"{message.number} in {channel}" if isinstance(message, Marker) else f"record {message.name}"


def _text(message: Message, marker: str) -> str:
    return f"{marker} {message.number}" if isinstance(message, Marker) else message.name


def _role(topology: Topology, index: int) -> str:
    if topology.inputs[index]:
        return "source"
    return "sink" if not topology.outs[index] else "task"


def _cells(topology: Topology, network: Network, index: int) -> Iterator[tuple[str, Tone]]:
    task = network.tasks[index]
    if topology.inputs[index]:
        yield f"read {task.state.offset} of {topology.inputs[index]}", ""
    if topology.ins[index]:
        yield f"seen {in_short(task.state.seen)}", ""
    if task.blocked:
        yield f"blocked: {' '.join(topology.tasks[topology.channels[c][0]] for c in task.blocked)}", "bad"
    yield from _of_snapshot(topology, task, index)
    if task.state.prepared:
        yield f"epoch {task.state.prepared[0]} waits", "busy"


def _of_snapshot(topology: Topology, task: Task, index: int) -> Iterator[tuple[str, Tone]]:
    own = [(c, records) for c, records in task.logs if c in topology.ins[index]]
    if task.copy is not None:
        logged = in_short(record.name for _, records in own for record in records)
        yield f"copy {task.round}, log {logged}", "busy"
    elif task.part is not None:
        yield f"copy {task.round} not stored", "busy"


def in_short(names: Iterable[str]) -> str:
    """Return the names of records, in short: those that follow each other as a range, those seen again with how often.

    Example:
        >>> in_short(["a1", "a2", "a3", "b1", "b1"])
        'a1–3 b1×2'
    """
    ranges: list[list[str]] = []
    for name, times in Counter(names).items():
        follows = ranges and times == 1 and _next(ranges[-1][-1]) == name
        if follows:
            ranges[-1].append(name)
        else:
            ranges.append([name if times == 1 else f"{name}×{times}"])
    return " ".join(run[0] if len(run) == 1 else f"{run[0]}–{run[-1][1:]}" for run in ranges) or "–"


def _next(name: str) -> str:
    number = name[1:]
    return f"{name[0]}{int(number) + 1}" if number.isdigit() else ""


def _draw_store(scene: Scene, topology: Topology, network: Network, *, publishes: bool) -> None:
    """Add what survives a crash."""
    y = scene.height + 6
    scene.text("store", 8, y + 8, "What survives a crash", tone="faint")
    y += 22
    number = network.complete.number
    newest = f"Newest complete snapshot: {number or 'none'}"
    y += _row(scene, y, newest, _parts(topology, network.complete.parts) if number else (), "good")
    if network.started > number:
        missing = len(topology.tasks) - sum(part is not None for part in network.stored)
        taken = f"Snapshot {network.started}: {missing} of {len(topology.tasks)} parts missing"
        y += _row(scene, y, taken, _parts(topology, network.stored), "busy")
    if publishes:
        epochs = [
            f"{topology.tasks[index]} epoch {epoch}: {in_short(sorted(names))}"
            for index, published in enumerate(network.published)
            for epoch, names in published
        ]
        _row(scene, y, "Published" if epochs else "Published: nothing yet", epochs, "good")


def _row(scene: Scene, y: float, title: str, cells: Iterable[str], tone: Tone) -> float:
    """Add a title with cells below it, and return the height of both."""
    name = title.partition(":")[0]
    scene.text(name, 8, y + 8, title)
    shown = [(text, tone) for text in cells]
    return 22 + (scene.cells(name, 8, y + 20, scene.width - 16, shown) + 4 if shown else 0)


def _parts(topology: Topology, parts: tuple[Part | None, ...]) -> Iterator[str]:
    for index, part in enumerate(parts):
        if part is not None:
            yield f"{topology.tasks[index]} {_copied(topology, index, part.state)}"
            for channel, records in part.logs:
                if records:
                    yield f"log {topology.channel_name(channel)}: {in_short(record.name for record in records)}"


def _copied(topology: Topology, index: int, state: TaskState) -> str:
    return f"read {state.offset}" if topology.inputs[index] else in_short(state.seen)
