"""Pictures of a timed run: how full each channel is, where the barriers stand, and who waits for whom."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import ClassVar

from streamstate.tutorials.simulation.aligned_timeout import barrier_at
from streamstate.tutorials.simulation.network import Network, Record, Task
from streamstate.tutorials.simulation.network_words import consequences
from streamstate.tutorials.simulation.protocol import Action, Invariant, Protocol
from streamstate.tutorials.simulation.runs import Trace
from streamstate.tutorials.simulation.scene import LINE, Item, Scene, Tone
from streamstate.tutorials.simulation.timed import A, B, C, Clock, Load, Moment, Plan

_PLACES = {0: (8, 34), 1: (8, 124), 2: (196, 34), 3: (196, 124), 4: (384, 34)}
"""The top left corner of each task's box."""
_BOX = 76
_CHANNEL = 104
_SOUTH = 16
"""How far below a box's top its channels begin."""


class Timeline(Protocol[Moment]):
    """A timed run as a protocol in which one thing can happen: what happened in the next tick.

    Args:
        clock: the run's clock, for its load and its protocol.
        moments: the last moment of each tick.
        told: for each moment, what happened in it.
    """

    name: ClassVar[str] = "snapshots that take time"

    def __init__(self, clock: Clock, moments: Sequence[Moment], told: Sequence[str]) -> None:
        self.clock = clock
        self.moments = tuple(moments)
        self.told = tuple(told)

    def _index(self, moment: Moment) -> int:
        return bisect_left(self.moments, moment.time, key=lambda other: other.time)

    def start(self) -> Moment:
        """Return the first moment."""
        return self.moments[0]

    def actions(self, state: Moment) -> list[Action]:
        """Return what happens next."""
        after = self._index(state) + 1
        return [Action(("tick", after), f"Tick {self.moments[after].time}")] if after < len(self.moments) else []

    def act(self, state: Moment, action: Action) -> Moment:
        """Return the next moment."""
        return self.moments[self._index(state) + 1]

    def finished(self, state: Moment) -> bool:
        """Check that the film is over."""
        return not self.actions(state)

    @property
    def invariants(self) -> Mapping[str, Invariant[Moment]]:
        """What must hold of the snapshots, as in any run of the protocol."""
        return {name: _of_network(judge) for name, judge in self.clock.protocol.invariants.items()}

    def tell(self, before: Moment, action: Action, after: Moment) -> str:
        """Return what happened in a tick."""
        return self.told[self._index(after)]

    def scene(self, state: Moment) -> Scene:
        """Return the picture of a moment."""
        return draw(self.clock, state)


def _of_network(judge: Invariant[Network]) -> Invariant[Moment]:
    return lambda moment: judge(moment.network)


def film(load: Load, plan: Plan, *, after: int = 30) -> Trace[Moment]:
    """Return the first snapshot of a run, tick by tick, and some ticks after it, as long as no other one begins."""
    clock = Clock(load, plan)
    moments: list[Moment] = []
    told: list[list[str]] = []
    before = clock.network
    for moment in clock.moments():
        if moment.network.started > 1:
            break
        if moment.network.started:
            if not moments or moments[-1].time < moment.time:
                moments.append(moment)
                told.append([])
            moments[-1] = moment
            told[-1] += _said(clock, before, moment)
        before = moment.network
        if moment.network.complete.number and moment.time > clock.measured.taken[0].end + after:
            break
    said = [
        f"Tick {moment.time}. {' '.join(each) or 'Records move.'}" for moment, each in zip(moments, told, strict=True)
    ]
    protocol = Timeline(clock, moments, said)
    actions = [action for moment in moments for action in protocol.actions(moment)]
    return Trace(protocol, tuple(actions), protocol.moments, ())


def _said(clock: Clock, before: Network, moment: Moment) -> list[str]:
    """Say what an action did to the snapshot; nothing if it only moved a record."""
    action = next(each for each in clock.protocol.actions(before) if each.key == moment.key)
    more = list(consequences(clock.topology, clock.protocol.marker, before, action, moment.network))
    moved = action.key[0] in ("read", "receive") and "barrier" not in action.label
    return more if moved else [f"{action.label}.", *more]


def draw(clock: Clock, moment: Moment) -> Scene:
    """Return the picture of a moment."""
    scene, network = Scene(470), moment.network
    scene.text("tick", 8, 12, f"Tick {moment.time}")
    for channel in range(len(clock.topology.channels)):
        _draw_channel(scene, clock, network, channel)
    for index, (x, y) in _PLACES.items():
        name, task = clock.topology.tasks[index], network.tasks[index]
        cell: tuple[str, Tone] = _cell(clock, moment, index, task)
        scene.box(name, x, y, _BOX, name, cells=[cell], lines=5 if index == C else None)
    scene.text("snapshot", 8, 200, _snapshot(network))
    return scene


def _cell(clock: Clock, moment: Moment, index: int, task: Task) -> tuple[str, Tone]:
    if task.blocked:
        return "aligns", "bad"
    if task.copy is not None:
        return "logs", "mark"
    if index in (A, B):
        waiting = sum(time <= moment.time for time in clock.arrivals[index]) - task.state.offset
        return f"{waiting} wait", "busy" if waiting > 1 else ""
    cost = clock.load.cost(index, moment.time)
    return f"{len(task.state.seen)} seen" if index == C else f"{cost} tick{'s'[: cost > 1]}", ""


def _draw_channel(scene: Scene, clock: Clock, network: Network, channel: int) -> None:
    """Add a channel, as full as it is; its head is at the right."""
    topology, capacity = clock.topology, clock.load.capacity
    source, target = topology.channels[channel]
    name = f"{topology.tasks[source]}→{topology.tasks[target]}"
    x, y = _PLACES[source][0] + _BOX + 4, _PLACES[source][1] + _SOUTH
    records = sum(isinstance(message, Record) for message in network.queues[channel])
    filled = round(_CHANNEL * min(1, records / capacity))
    blocked = channel in network.tasks[target].blocked
    words = f"{name}: {records} of {capacity} records{', blocked' if blocked else ''}."
    scene.add(Item(name, "cell bad" if blocked else "cell", x, y, _CHANNEL, LINE, words=words))
    if filled:
        kind = "bar bad" if blocked else "bar"
        scene.add(Item(f"in {name}", kind, x + _CHANNEL - filled, y, filled, LINE))
    scene.add(Item(f"count {name}", "text faint", x, y + LINE + 9, text=f"{records} of {capacity}"))
    ahead = barrier_at(network, channel)
    if ahead >= 0:
        place = x + _CHANNEL - 8 - round((_CHANNEL - 16) * min(1, ahead / capacity))
        scene.chip(f"barrier {name}", place, y + LINE / 2, "▮", tone="busy", words=f"Its barrier is behind {ahead}.")
    if blocked:
        scene.chip(f"blocked {name}", x + _CHANNEL - 8, y + LINE / 2, "✕", tone="bad", words="")


def _snapshot(network: Network) -> str:
    """Say how far the newest snapshot is, and what it has logged."""
    number, done = network.started, network.complete.number == network.started
    parts = network.complete.parts if done else network.stored
    logs = [part.logs for part in parts if part] + [task.part.logs for task in network.tasks if task.part]
    logs += [task.logs for task in network.tasks if task.copy is not None]
    records = sum(len(log) for each in logs for _, log in each)
    stored = "complete" if done else f"{sum(part is not None for part in parts)} of {len(parts)} parts stored"
    return f"Snapshot {number}: {stored}; {records} records logged"
